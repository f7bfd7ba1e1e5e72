"""Shapes of a model within a budget, judged before any training."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_idea.errors import ArgumentError
from keras_idea.shapes.candidate import Candidate, draw, table
from keras_idea.shapes.costs import ShapeCosts
from keras_idea.shapes.grid import LEAST, shapes_within, spread
from keras_idea.shapes.samples import check_compiled, check_finite, loss_of
from keras_idea.shapes.shape_losses import ShapeLosses
from keras_idea.shapes.shrink import measure
from keras_idea.shapes.targets import AXES, Axis, Shape
from keras_idea.surgery.compact import compile_like, narrowed
from keras_idea.targets.budget import Budget
from keras_idea.validation import check_choice, check_int


def search(
    model: keras.Model,
    data: Any,
    *,
    target_parameters: int | None = None,
    target_bytes: int | None = None,
    target_flops: int | None = None,
    target_dtype: str = "float32",
    kinds: Sequence[Axis] = ("neurons", "kv_groups"),
    candidates: int = 8,
    limits: Mapping[Axis, float] | None = None,
    round_to: int = 1,
    num_samples: int = 1024,
    batch_size: int = 32,
    plot: str | os.PathLike | None = None,
    verbose: int = 1,
) -> list[Candidate]:
    """Shapes of a model within a budget, the best first.

    The importance of all parts is measured once. The shapes lie on a grid: of each axis
    some sizes, and the neurons as many as the budget allows beside them; those count
    that could not keep one step more of anything. As many as `candidates` of them, as
    unlike one another as can be, are cut out of the model as `shrink` does and judged
    by their loss on the data, without training. The order before training is not
    always that after it: train the best few.

    Args:
        model: a built and compiled Keras model, as of `shrink`; it is left as it is.
        data: tuple `(x, y)` or `(x, y, sample_weight)` of arrays, or batches of such
            tuples that can be read again and again.
        target_parameters: int >= 1, parameters at most; or None.
        target_bytes: int >= 1, bytes of the parameters in `target_dtype`; or None.
        target_flops: int >= 1, operations of a token in a forward pass, two a weight in
            a matrix; or None. Give one of the three.
        target_dtype: "float32" (default), "bfloat16", "float16" or "int8".
        kinds: list of the axes that may be cut: "neurons", "kv_groups", "blocks",
            "hidden_dim". Default ("neurons", "kv_groups").
        candidates: int >= 1, how many shapes are judged. Default 8.
        limits: dict, axis -> float in (0, 1], the least share that stays. Default:
            0.3 of "neurons" and "kv_groups", 0.7 of "blocks" and "hidden_dim".
        round_to: int >= 1, of which numbers of neurons are multiples; of FFNs that are
            not equally wide, those of the widest. Default 1.
        num_samples: int >= 1, samples that importance is measured on, at most. Default
            1024. The loss is that of all data.
        batch_size: int >= 1, of data that are arrays. Default 32.
        plot: path of a PNG to draw (loss over parameters), or None. Default None.
        verbose: 0, 1 (a bar and a table, the default).

    Returns:
        list of `Candidate`: `targets` (which `shrink` takes), `loss`, `parameters`,
        `flops`; the least loss first.

    Raises:
        ValueError: if the model is not compiled, the data hold no targets, its loss on
            them is not finite, an axis cannot be cut, no shape meets the budget, or the
            model itself does.

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
    check_compiled(model, "search()")
    check_int("candidates", candidates, minimum=1)
    check_int("round_to", round_to, minimum=1)
    axes: Shape = {}
    for axis in kinds:
        axes[check_choice("kinds", axis, AXES)] = 1
    least = {**LEAST, **_check_limits(limits)}
    plain, _ = narrowed(model, "search()")
    compile_like(plain, model, None)
    itself = loss_of(plain, data, batch_size)
    check_finite(itself, f"model '{model.name}' as it is")
    importance = measure(
        plain, axes, data, "activation", "influence", num_samples, batch_size
    )
    costs = ShapeCosts(plain, axes, importance)
    within = shapes_within(budget, costs.of, costs.full, least, round_to)
    chosen = spread(within, costs.full, candidates)
    # Those of one depth and hidden size one after another, which share a program.
    chosen.sort(
        key=lambda shape: [shape.get(axis, 0) for axis in ("blocks", "hidden_dim")]
    )
    losses = ShapeLosses(plain, importance, data, batch_size)
    bar = keras.utils.Progbar(len(chosen), unit_name="shape", verbose=verbose)
    found = []
    for place, shape in enumerate(chosen, 1):
        targets = costs.targets(shape)
        loss = losses.of(targets)
        cost = costs.of(shape)
        found.append(Candidate(targets, loss, cost.parameters, cost.flops))
        bar.update(place, [("loss", loss)])
    found.sort(key=lambda candidate: candidate.loss)
    cost = costs.of({})
    as_it_is = Candidate({}, itself, cost.parameters, cost.flops)
    if verbose:
        print(table(as_it_is, found))
    if plot is not None:
        draw(plot, as_it_is, found)
    return found


def _check_limits(limits: Any) -> dict[Axis, float]:
    if limits is None:
        return {}
    for axis, share in limits.items():
        check_choice("limits", axis, AXES)
        if not 0 < share <= 1:
            raise ArgumentError(
                f"`limits[{axis!r}]` must be a float in (0, 1], the least share that "
                f"stays. Received: {share!r}."
            )
    return dict(limits)
