"""The table `[model]` of a run's description: which model, and of what shape."""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import NoReturn

from keras_idea.errors import ArgumentError
from keras_idea.finding.budget import BYTES, Budget
from keras_idea.finding.targets import target_width
from keras_idea.groups.kinds import KINDS, KindName
from keras_idea.hub.families import FAMILIES, HUB_FAMILIES, PRESET_FAMILIES
from keras_idea.hub.family import Family
from keras_idea.lm.data.make_tokenizer import TOKENIZERS, check_tokenizer
from keras_idea.lm.runs.config import fields
from keras_idea.lm.runs.config.sizes import Sizes, check_kinds, check_targets
from keras_idea.validation import check_choice


def check_hub(name: str, value: object) -> str | None:
    """Returns `value` if a run can make that family from nothing, or if it is None.

    Of another family that is known it says how to prune it.

    Example:
    >>> check_hub("model.hub", "gpt2")
    Traceback (most recent call last):
    keras_idea.errors.ArgumentError: `model.hub` cannot be 'gpt2': a run cannot make...
    """
    if value is None:
        return None
    for family in FAMILIES.values():
        short = _bare(family.prefix)
        if _bare(value) == short and short not in map(_bare, HUB_FAMILIES):
            _refuse(name, value, family)
    return str(check_choice(name, value, tuple(HUB_FAMILIES)))


def _refuse(name: str, value: object, family: Family) -> NoReturn:
    begin, received = f"`{name}` cannot be {value!r}: ", f"Received: {name}={value!r}."
    if family.refused:
        raise ArgumentError(f"{begin}{family.refused}. {received} Use another family.")
    if family.prefix not in PRESET_FAMILIES:
        raise ArgumentError(
            f"{begin}runs train causal language models without experts. {received} "
            "Prune it in a script, with `keras_idea.IdeaPruneCallback`."
        )
    raise ArgumentError(
        f"{begin}a run cannot make a {family.prefix} model from nothing. {received} "
        "Delete `hub`, and set `model.preset` to a trained model of that family: a "
        "preset's folder or handle."
    )


def _bare(name: object) -> str:
    """Letters and digits alone: people write "gpt2", "GPT-2" and "gpt_2"."""
    return re.sub("[^a-z0-9]", "", name.lower()) if isinstance(name, str) else ""


# What a preset decides itself; the values where nothing decides.
_DIMENSIONS = {
    "model_dim": 64,
    "num_layers": 2,
    "num_heads": 4,
    "num_key_value_heads": None,
    "hidden_dim": 512,
}
_TARGET_DIM = 192
# What says how many units of a kind there are at the start.
_AT_START: dict[KindName, str] = {
    "neurons": "hidden_dim",
    "kv_groups": "num_key_value_heads",
}


@dataclasses.dataclass(frozen=True)
class ModelConfig(fields.Table):
    """`[model]`: what is trained, and its shape before and after pruning.

    The defaults stand in the fields; of what a preset decides, in `_DIMENSIONS`, and
    of `target_dim`, if there are no targets and no budget, in `_TARGET_DIM`. As much
    stays of `kinds` as a budget allows; it counts parameters, their bytes in
    `target_dtype`, or the operations of a token, forward: two a weight in a matrix.
    `round_to` is for a width that is not given as a number of neurons.
    """

    table = "model"
    hub: str | None = fields.checked(None, check_hub)
    preset: str | None = fields.optional(fields.check_text)
    tokenizer: str = fields.optional(fields.one_of(*TOKENIZERS, "preset"))
    vocabulary_size: int | None = fields.optional(fields.whole())
    # None only in a run from a preset.
    model_dim: int = fields.optional(fields.whole())
    num_layers: int = fields.optional(fields.whole())
    num_heads: int = fields.optional(fields.whole())
    num_key_value_heads: int | None = fields.optional(fields.whole())
    hidden_dim: int = fields.optional(fields.whole(minimum=2))
    target_dim: int | float = fields.optional(fields.check_kept)
    targets: Mapping[KindName, int | float] | None = fields.optional(check_targets)
    kinds: tuple[KindName, ...] = fields.checked(("neurons",), check_kinds)
    target_parameters: int | None = fields.optional(fields.count)
    target_bytes: int | None = fields.optional(fields.count)
    target_flops: int | None = fields.optional(fields.count)
    target_dtype: str = fields.choice("float32", *BYTES)
    round_to: int = fields.integer(1, minimum=1)
    sequence_length: int = fields.integer(64, minimum=2)

    def _check_together(self) -> None:
        self._check_tokenizer()
        self._check_how_narrow()
        if self.preset is not None:
            return self._refuse_dimensions()
        for name, default in _DIMENSIONS.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        self._check_heads()
        if not self.budget:
            self.sizes_at_end(self.sizes_at_start)

    def _check_how_narrow(self) -> None:
        given = [n for n in ("target_dim", "targets") if getattr(self, n) is not None]
        if len(given) > 1 or (given and self.budget):
            other = self.budget or "`model.targets`"
            raise fields.ConfigError(
                f"`model.{given[0]}` and {other} cannot both be given. Received: "
                f"{self.describe(*given)}. Delete one of them."
            )
        if not self.budget and self.kinds != ("neurons",):
            raise fields.ConfigError(
                "`model.kinds` says what a budget prunes, and there is none. Received: "
                f"{self.describe('kinds')}. Set `model.targets`, what is kept of each "
                "kind, in its place; or add a budget such as target_parameters."
            )
        if not given and not self.budget:
            object.__setattr__(self, "target_dim", _TARGET_DIM)

    def _check_tokenizer(self) -> None:
        default = "bytes" if self.preset is None else "preset"
        kind = self.tokenizer or default
        object.__setattr__(self, "tokenizer", kind)
        refuse = functools.partial(_refuse_tokenizer, kind, self.vocabulary_size)
        if self.preset is not None:
            if kind != "preset" or self.vocabulary_size is not None:
                refuse("a preset has its own tokenizer", "Delete them")
        elif kind == "preset":
            refuse(
                "there is no preset",
                f"Set `model.preset`, or `tokenizer` to {default!r}",
            )
        elif self.hub is not None:
            check_tokenizer(self.hub, kind, self.vocabulary_size, "model.tokenizer")
        elif kind != "bytes" or self.vocabulary_size is not None:
            refuse(
                "this package's own decoder reads bytes",
                "Set `model.hub` to a KerasHub family, or delete them",
            )

    def _refuse_dimensions(self) -> None:
        for name in ("hub", *_DIMENSIONS):
            if getattr(self, name) is not None:
                raise fields.ConfigError(
                    f"`model.{name}` cannot be given together with model.preset="
                    f"{self.preset!r}, which decides it. Received: "
                    f"{self.describe(name)}. Delete `{name}`, or `preset`."
                )

    def _check_heads(self) -> None:
        if self.model_dim % (2 * self.num_heads):
            raise fields.ConfigError(
                "`model.model_dim` must be a multiple of 2 × model.num_heads, because "
                "rotary embeddings rotate pairs. Received: "
                f"{self.describe('model_dim', 'num_heads')}. Set `model_dim` to "
                f"{fields.nearest_multiple(self.model_dim, 2 * self.num_heads)}."
            )
        if self.num_heads % self.key_value_heads:
            raise fields.ConfigError(
                f"`model.num_key_value_heads` must divide model."
                f"{self.describe('num_heads')}. Received: "
                f"{self.describe('num_key_value_heads')}. Set `num_key_value_heads` to "
                f"one of {fields.divisors(self.num_heads)}."
            )

    @property
    def uses_keras_hub(self) -> bool:
        """bool, whether the models are KerasHub's."""
        return self.hub is not None or self.preset is not None

    @property
    def budget(self) -> Budget:
        """`Budget` of the narrow model; empty if its width is given."""
        limits = self.target_parameters, self.target_bytes, self.target_flops
        try:
            return Budget(*limits, self.target_dtype)
        except ArgumentError as error:
            raise fields.ConfigError(f"[model] {error}") from None

    @property
    def key_value_heads(self) -> int:
        """int, of the wide model: as the run says, or as the family has."""
        of_family = None
        if self.hub is not None:
            of_family = HUB_FAMILIES[self.hub].from_nothing.key_value_heads
        return self.num_key_value_heads or of_family or self.num_heads

    @property
    def pruned_kinds(self) -> tuple[KindName, ...]:
        """Tuple of the kinds that are pruned."""
        if self.budget:
            return self.kinds
        return ("neurons",) if self.targets is None else tuple(self.targets)

    @property
    def sizes_at_start(self) -> Sizes:
        """`Sizes` of the wide model; not of a preset, which decides them."""
        if "kv_groups" not in self.pruned_kinds:
            return Sizes(self.hidden_dim)
        return Sizes(self.hidden_dim, self.key_value_heads)

    def sizes_at_end(self, start: Sizes) -> Sizes:
        """The sizes of the narrow model, without a budget, from those of the wide one.

        Raises:
            ConfigError: if there is nothing to prune.
        """
        units = start.by_kind()
        kept: dict[str, int] = {k: self._kept(k, units[k]) for k in self.pruned_kinds}
        return dataclasses.replace(start, **kept)

    def _kept(self, kind: KindName, full: int) -> int:
        name, target = "target_dim", self.target_dim
        if self.targets is not None:
            name, target = f"targets.{kind}", self.targets[kind]
        rounded = ""
        if isinstance(target, int):
            kept = target
        else:
            kept = target_width(
                target, full, self.round_to if KINDS[kind].rounded else 1
            )
            rounded = f", which keeps {kept}"
        if kept >= full:
            at_start = _AT_START[kind]
            known = f"model.{at_start}={full}"
            if self.preset is not None:
                known = f"{at_start}={full} of the preset"
            elif at_start == "hidden_dim":
                known = f"model.{self.describe(at_start)}"
            raise fields.ConfigError(
                f"`model.{name}` must be below {known}: pruning makes the model "
                "narrower. Received: "
                f"{self.describe(name.partition('.')[0])}{rounded}. "
                + (f"Lower `{name}`" if full > 1 else f"Delete `{name}`")
                + ("." if self.preset is not None else f", or raise `{at_start}`.")
            )
        return kept


def _refuse_tokenizer(
    kind: str, vocabulary_size: int | None, reason: str, cure: str
) -> NoReturn:
    size = "" if vocabulary_size is None else f", vocabulary_size={vocabulary_size}"
    raise fields.ConfigError(
        f"`model.tokenizer` does not fit: {reason}. Received: tokenizer={kind!r}{size}"
        f". {cure}."
    )
