"""What `keras-idea shrink` is asked for: checked before any model is loaded."""

import dataclasses
import pathlib
from typing import Any

import keras

from keras_idea.errors import ArgumentError, ExportRefused
from keras_idea.finding.budget import Budget, check_round_to
from keras_idea.finding.find import find_groups
from keras_idea.finding.targets import target_width
from keras_idea.groups.kinds import NEURONS
from keras_idea.lm.export.hf import check_installed
from keras_idea.lm.export.target import check_target
from keras_idea.methods.activation import Activation
from keras_idea.methods.method import Method
from keras_idea.shapes.blocks import find_blocks
from keras_idea.shapes.costs import ShapeCosts
from keras_idea.shapes.grid import shapes_within
from keras_idea.shapes.hidden_size import check_hidden
from keras_idea.shapes.shrink import Importance, groups_of, widths_in
from keras_idea.shapes.targets import (
    VOCABULARY,
    Axis,
    Shape,
    axes,
    check_shape,
    size_of,
)
from keras_idea.surgery.refit import check_refit
from keras_idea.validation import (
    check_choice,
    check_int,
    multiples_beside,
    require,
)

#: Kinds of exports, and what their names add to that of the preset.
EXPORTS = {"hf": "-hf", "gguf": ".gguf"}


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A shrunk checkpoint, as the command line describes it.

    Attributes:
        source: str, what `keras_idea.hub.load` takes.
        to: str, the folder of the preset to be.
        text: str, what `load_text` takes.
        targets: dict, as of `keras_idea.shrink`; empty if there is a budget.
        budget: `Budget`; false if there are targets.
        search: tuple of str, the axes that a search may cut; empty: no search.
        candidates: int >= 1, shapes that a search judges.
        round_to: int >= 1. Of the widest FFNs a multiple of it stays.
        method: str, as of `keras_idea.shrink`.
        by_weights: bool, as of `keras_idea.methods.Activation`.
        refit: bool, as of `keras_idea.shrink`.
        tokens: int >= 1, the most tokens to measure on.
        window: int >= 2, tokens of a row.
        export: str or None, a key of `EXPORTS`.
        gguf_dtype: str or None, as of `export_gguf`.
    """

    source: str
    to: str
    text: str
    targets: Shape
    budget: Budget
    search: tuple[Axis, ...] = ()
    candidates: int = 8
    round_to: int = 1
    method: str = "activation"
    by_weights: bool = False
    refit: bool = False
    tokens: int = 32_768
    window: int = 512
    export: str | None = None
    gguf_dtype: str | None = None

    def __post_init__(self) -> None:
        if bool(self.targets) == bool(self.budget):
            raise ArgumentError(
                "Say how small: either targets (--neurons, --kv-groups, --blocks, "
                "--hidden-dim, --vocabulary) or one budget (--target-parameters, "
                "--target-bytes, --target-flops). Received: "
                f"{'both' if self.budget else 'neither'}. For example --neurons 0.67."
            )
        if self.targets:
            check_shape(self.targets)
        for axis in self.search:
            check_choice("--kinds", axis, tuple(axes()))
        if self.search and not self.budget:
            raise ArgumentError(
                "`--search` looks for the best shape within a budget. Give "
                "--target-parameters, --target-bytes or --target-flops in place of "
                "the targets, or leave `--search` out."
            )
        for name in ("candidates", "round_to", "tokens", "window"):
            if getattr(self, name) is not None:
                check_int(f"--{name.replace('_', '-')}", getattr(self, name), minimum=1)
        if self.by_weights and self.method != "activation":
            raise ArgumentError(
                "`--by-weights` weighs the activations of `--method activation`. "
                f"Received: --method {self.method}. Leave one of them out."
            )
        if self.refit and self.targets and not widths_in(self.targets):
            raise ArgumentError(
                "`--refit` fits what reads neurons or heads, and no target names "
                "them. Add --neurons or --kv-groups, or leave `--refit` out."
            )
        if self.gguf_dtype is not None and self.export != "gguf":
            raise ExportRefused(
                "`--gguf-dtype` is for `--export gguf` only. Add it, or leave it out."
            )

    @property
    def ranks_by(self) -> str | Method:
        """What ranks neurons and heads, as `keras_idea.shrink` takes it."""
        return Activation(by_weights=True) if self.by_weights else self.method

    @property
    def cuts_more(self) -> bool:
        """bool, whether it cuts another axis than the vocabulary."""
        return set(self.targets) != {VOCABULARY}

    @property
    def exported(self) -> str:
        """str, where the export lies: beside the preset, with its name."""
        return str(pathlib.Path(self.to)) + EXPORTS[str(self.export)]

    def check_places(self) -> None:
        """Refuses places that are taken, and packages that are not there."""
        check_target(self.to)
        if self.export is None:
            return
        check_target(self.exported)
        if self.export == "gguf":
            require("gguf", "`--export gguf`", "gguf", ExportRefused)
        else:
            check_installed("`--export hf`")

    def shape_of(self, outline: keras.Model) -> Shape:
        """The targets, for a model of which the outline is enough.

        With a budget and without a search: as many neurons as it allows. Of a search
        none. Refuses what the model does not have, or cannot become.
        """
        if self.search:
            wanted: dict[Axis, Any] = dict.fromkeys(self.search, 1)
            _check_axes(outline, wanted)
            return {}
        shape = {**self.targets, **self._neurons_of(outline)}
        shape.pop(VOCABULARY, None)  # which the tokenizer decides with
        _check_axes(outline, shape)
        if self.refit:
            check_refit(groups_of(outline, shape))
        return shape

    def _neurons_of(self, outline: keras.Model) -> Shape:
        """The neurons that stay, a multiple of `round_to`, where they are to be cut."""
        target = self.targets.get(NEURONS)
        if target is None and not self.budget:
            return {}
        costs = ShapeCosts(outline, {NEURONS: 1}, Importance({}))
        full, step = costs.full[NEURONS], self.round_to
        check_round_to(step, full)
        if target is None:
            least = {NEURONS: 1 / full}
            [found] = shapes_within(self.budget, costs.of, costs.full, least, step)
            return costs.targets(found)
        if step == 1:
            return {NEURONS: target}
        if isinstance(target, int) and target % step:
            raise ArgumentError(
                f"`--neurons` must be a multiple of `--round-to`. Received: {target} "
                f"and {step}. Give {multiples_beside(target, step)}, or a fraction."
            )
        return costs.targets({NEURONS: target_width(target, full, step)})


def _check_axes(outline: keras.Model, shape: Shape) -> None:
    """Refuses axes that a model does not have, and sizes beyond what it has."""
    for kind in widths_in(shape):
        if not find_groups(outline, [kind]):
            raise ArgumentError(
                f"{type(outline).__name__} has no {kind!r} that can be cut, if a "
                "preset is to hold the rest. Cut another axis, such as --neurons."
            )
    for group in groups_of(outline, shape):
        size_of(group.kind, shape[group.kind], group.hidden_dim, group.name)
    if "blocks" in shape:
        count = len(find_blocks(outline))
        size_of("blocks", shape["blocks"], count, outline.name)
    if "hidden_dim" in shape:
        full = check_hidden(outline).hidden_dim
        size_of("hidden_dim", shape["hidden_dim"], full, outline.name)
