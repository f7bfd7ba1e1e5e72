"""Shapes of a model within a budget, judged before any training."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_idea import methods
from keras_idea.errors import ArgumentError
from keras_idea.finding.budget import Budget
from keras_idea.methods.method import Method
from keras_idea.shapes.candidate import Candidate, draw, table
from keras_idea.shapes.costs import ShapeCosts
from keras_idea.shapes.grid import shapes_within, spread
from keras_idea.shapes.samples import check_compiled, check_finite, loss_of
from keras_idea.shapes.shrink import (
    Importance,
    cut,
    groups_of,
    measure,
    scores_left,
    widths_in,
    zero_unimportant,
)
from keras_idea.shapes.targets import VOCABULARY, Axis, Shape, axes
from keras_idea.surgery.compact import compile_like, narrowed
from keras_idea.validation import check_choice, check_int


class ShapeLosses:
    """Judges shapes of a model by its loss on data, without training.

    A model computes with zeros in the place of neurons and heads what it computes
    without them. So a model is made and compiled for each depth and hidden size alone,
    and what goes of its widths is zeroed. The last one is kept: ask for shapes of one
    depth and hidden size one after another.

    Args:
        model: a compiled Keras model without pruning state; it is left as it is.
        importance: its `Importance`.
        data: as of `loss_of`.
        batch_size: int, of data that are arrays.
    """

    def __init__(
        self, model: keras.Model, importance: Importance, data: Any, batch_size: int
    ) -> None:
        self._model, self._importance = model, importance
        self._data, self._batch_size = data, batch_size
        self._made: tuple[Shape, keras.Model] | None = None

    def of(self, shape: Shape) -> float:
        """The loss of the model in a shape; infinity where it is not a number."""
        widths: Shape = {kind: shape[kind] for kind in widths_in(shape)}
        others = {axis: size for axis, size in shape.items() if axis not in widths}
        copy = self._of_depth_and_features(others)
        if not widths:
            return loss_of(copy, self._data, self._batch_size)
        rows = [row for group in groups_of(copy, widths) for row in group.cuts()]
        before = [ops.copy(row.variable.value) for row in rows]
        zero_unimportant(
            copy, widths, scores_left(self._model, shape, self._importance)
        )
        loss = loss_of(copy, self._data, self._batch_size)
        for row, value in zip(rows, before, strict=True):
            row.variable.assign(value)
        return loss

    def _of_depth_and_features(self, shape: Shape) -> keras.Model:
        if self._made is None or self._made[0] != shape:
            self._made = None  # two models at once are one too many
            self._made = shape, cut(self._model, shape, self._importance)
        return self._made[1]


def search(
    model: keras.Model,
    data: Any,
    *,
    target_parameters: int | None = None,
    target_bytes: int | None = None,
    target_flops: int | None = None,
    target_dtype: str = "float32",
    kinds: Sequence[Axis] = ("neurons", "kv_groups"),
    method: str | Method = "activation",
    candidates: int = 8,
    limits: Mapping[Axis, float] | None = None,
    round_to: int = 1,
    num_samples: int = 1024,
    batch_size: int = 32,
    plot: str | os.PathLike | None = None,
    verbose: int = 1,
) -> list[Candidate]:
    """Judges shapes of a model within a budget; returns them with the best first.

    Use it to choose the `targets` of `shrink`. The importance of all parts is measured
    once. The shapes are on a grid: some sizes of each axis, with as many neurons as the
    budget then allows. It considers only shapes that cannot keep one more step of any
    axis. Up to `candidates` of them, as different as possible, are cut out of the
    model as in `shrink`. They are judged by their loss on the data, without training.
    The order before training is not always the order after it: train the best few.

    Args:
        model: keras.Model. A built and compiled Keras model, as for `shrink`. It is not
            changed.
        data: tuple or batches. `(x, y)` or `(x, y, sample_weight)` of arrays, or
            batches of such tuples that can be read again and again.
        target_parameters: int >= 1 or None. The most parameters. Give one of the three
            budgets. Defaults to None.
        target_bytes: int >= 1 or None. The most bytes of the parameters in
            `target_dtype`. Defaults to None.
        target_flops: int >= 1 or None. The most operations per token in a forward pass,
            two per weight in a matrix. Defaults to None.
        target_dtype: str. "float32", "bfloat16", "float16" or "int8". Defaults to
            "float32".
        kinds: list of str. The axes that may be cut: "neurons", "kv_groups", "blocks",
            "hidden_dim". Defaults to ("neurons", "kv_groups").
        method: str or `keras_idea.methods.Method`. What ranks neurons and heads, as in
            `shrink`. Defaults to "activation".
        candidates: int >= 1. How many shapes are judged. Defaults to 8.
        limits: dict or None. Maps an axis to the smallest fraction that stays, a float
            in (0, 1]. Defaults to 0.3 of "neurons" and "kv_groups", and 0.7 of "blocks"
            and "hidden_dim".
        round_to: int >= 1. Makes numbers of neurons multiples of this number. If the
            FFN widths differ, it applies to the widest FFNs. Defaults to 1.
        num_samples: int >= 1. The most samples on which importance is measured; the
            loss uses all data. Defaults to 1024.
        batch_size: int >= 1. Samples per batch, if `data` are arrays. Defaults to 32.
        plot: path or None. A PNG file to draw, loss over parameters. Defaults to None.
        verbose: int. 0 prints nothing, 1 a progress bar and a table. Defaults to 1.

    Returns:
        list of `Candidate`, the lowest loss first. Each has `targets` (which `shrink`
        takes), `loss`, `parameters` and `flops`.

    Raises:
        ValueError: If the model is not compiled, if the data hold no targets, or if the
            model's loss on them is not finite. If an axis cannot be cut, if no shape
            meets the budget, or if the model itself meets it.

    Example:
    >>> found = ki.search(
    ...     model, (x, y), target_parameters=4800, kinds=["neurons"], verbose=0
    ... )
    >>> small = ki.shrink(model, found[0].targets, (x, y))

    Source: a grid judged before training is ModelOpt's way (arXiv 2407.14679).
    """
    budget = Budget(target_parameters, target_bytes, target_flops, target_dtype)
    if not budget:
        raise ArgumentError(
            "search() needs a budget. Give target_parameters, target_bytes or "
            "target_flops."
        )
    chosen_by = methods.get(method)
    check_compiled(model, "search()")
    check_int("candidates", candidates, minimum=1)
    check_int("round_to", round_to, minimum=1)
    wanted: Shape = {}
    for axis in kinds:
        if axis == VOCABULARY:
            raise ArgumentError(
                "search() judges by the loss per token, and tokens of another "
                "vocabulary are not as long. Cut the vocabulary first, by "
                f"shrink(model, {{{VOCABULARY!r}: ...}}, texts), then search. "
                f"Received: kinds={tuple(kinds)!r}."
            )
        wanted[check_choice("kinds", axis, tuple(axes()))] = 1
    least = {**axes(), **_check_limits(limits)}
    plain = narrowed(model, "search()")
    compile_like(plain, model)
    itself = loss_of(plain, data, batch_size)
    check_finite(itself, f"model '{model.name}' as it is")
    importance = measure(
        plain, wanted, data, chosen_by, "influence", num_samples, batch_size
    )
    costs = ShapeCosts(plain, wanted, importance)
    within = shapes_within(budget, costs.of, costs.full, least, round_to)
    chosen = spread(within, costs.full, candidates)
    # Those of one depth and hidden size one after another, which share a program.
    chosen.sort(
        key=lambda shape: [shape.get(axis, 0) for axis in ("blocks", "hidden_dim")]
    )
    losses = ShapeLosses(plain, importance, data, batch_size)
    bar = keras.utils.Progbar(len(chosen), unit_name="shape", verbose=verbose)
    judged = []
    for place, shape in enumerate(chosen, 1):
        targets = costs.targets(shape)
        loss = losses.of(targets)
        cost = costs.of(shape)
        judged.append(Candidate(targets, loss, cost.parameters, cost.flops))
        bar.update(place, [("loss", loss)])
    judged.sort(key=lambda candidate: candidate.loss)
    cost = costs.of({})
    as_it_is = Candidate({}, itself, cost.parameters, cost.flops)
    if verbose:
        print(table(as_it_is, judged))
    if plot is not None:
        draw(plot, as_it_is, judged)
    return judged


def _check_limits(limits: Any) -> dict[Axis, float]:
    if limits is None:
        return {}
    for axis, share in limits.items():
        check_choice("limits", axis, tuple(axes()))
        if not 0 < share <= 1:
            raise ArgumentError(
                f"`limits[{axis!r}]` must be a float in (0, 1], the least share that "
                f"stays. Received: {share!r}."
            )
    return dict(limits)
