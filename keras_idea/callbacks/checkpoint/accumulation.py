"""A checkpoint resumed with another `gradient_accumulation_steps`: same steps.

Keras counts the calls of an optimizer's `apply`, batches; `iterations` is that count
divided by the batches of a step. So the count alone means another step as soon as
someone accumulates more, or less. Here it is carried over to the same step, where
nothing is accumulated: at the end of a step.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from keras_idea.errors import ArgumentError
from keras_idea.keras_private.optimizer_variables import (
    apply_count,
    as_float,
    as_int,
    gradient_sums,
    innermost,
    parts,
    rate_source,
)
from keras_idea.step.pruner import own_variables

_Named = list[tuple[str, keras.Variable]]
_PREFIX = "optimizer/"
# Rates as close as that are of the same schedule, its steps given in other batches.
_CLOSE = 1e-3
#: How many powers of two of steps ahead a schedule is looked at.
_POWERS = 20


def accumulation_facts(optimizer: keras.Optimizer) -> dict[str, Any]:
    """What must be known of an optimizer to resume it under another accumulation.

    The batches of a step, by part (see `parts`); where among its variables the sums of
    gradients are; and the rates of a schedule, which Keras asks per batch.
    """
    sums = _sums(optimizer)
    own = enumerate(own_variables(optimizer))
    calls = as_int(apply_count(innermost(optimizer)))
    return {
        "batches": _batches(optimizer),
        "sums": [place for place, variable in own if id(variable) in sums],
        "rates": _scheduled_rates(optimizer, calls, every=_batches(optimizer)[0]),
    }


def carried_over(
    optimizer: keras.Optimizer,
    saved: Mapping[str, Any] | None,
    shapes: Mapping[str, tuple[int, ...]],
    read: Callable[[str], np.ndarray],
    step: int | None,
) -> "CarriedOver | None":
    """What a checkpoint becomes under the accumulation of a built optimizer.

    None: it is that of the checkpoint. `saved` are its facts, None in those of earlier
    versions; the rest as `restore_state`.

    Raises:
        ArgumentError: if the step would not mean the same.
    """
    here = _batches(optimizer)
    if saved is None:
        _check_unknown(optimizer, shapes, read, step)
        return None
    _check_known(saved)
    if saved["batches"] == here or len(saved["batches"]) != len(here):
        return None  # else of another kind of optimizer: its variables tell
    return CarriedOver(optimizer, saved, shapes, read)


class CarriedOver:
    """An optimizer's count and sums, from one accumulation to another.

    Nothing is changed before `finish`.
    """

    def __init__(
        self,
        optimizer: keras.Optimizer,
        saved: Mapping[str, Any],
        shapes: Mapping[str, tuple[int, ...]],
        read: Callable[[str], np.ndarray],
    ) -> None:
        self._optimizer, self._inner = optimizer, innermost(optimizer)
        place = parts(optimizer).index(self._inner)
        self._was, self._now = saved["batches"][place], _batches(optimizer)[place]
        self._sums = {f"{_PREFIX}{place:05d}" for place in saved["sums"]}
        self._check_kind(saved["batches"])
        count = read(_name_of(apply_count(self._inner), optimizer))
        steps, begun = divmod(int(count), self._was)
        if begun:
            raise ArgumentError(
                f"The checkpoint is {begun} of {self._was} batches into an optimizer "
                f"step. {self._received} Compile with gradient_accumulation_steps="
                f"{self._was} to resume it."
            )
        self._calls = steps * self._now
        self._check_rates(saved["rates"])
        self._saved = {n: s for n, s in shapes.items() if n not in self._sums}

    def match(self, named: _Named) -> tuple[_Named, dict[str, tuple[int, ...]]]:
        """The variables without sums by their saved names, and those shapes."""
        sums = _sums(self._optimizer)
        kept = [(name, v) for name, v in named if id(v) not in sums]
        theirs = sorted(name for name in self._saved if name.startswith(_PREFIX))
        ours = [name for name, _ in kept if name.startswith(_PREFIX)]
        renamed = dict(zip(ours, theirs, strict=False))
        return [(renamed.get(name, name), v) for name, v in kept], self._saved

    def finish(self) -> None:
        """Sets the count of the same step, and sums of nothing, once all is read."""
        apply_count(self._inner).assign(self._calls)
        for variable in gradient_sums(self._inner):
            variable.assign(np.zeros(variable.shape, "float32"))

    @property
    def _received(self) -> str:
        return (
            f"Received: gradient_accumulation_steps={_as_setting(self._now)}, and "
            f"{_as_setting(self._was)} in the checkpoint."
        )

    def _check_kind(self, saved: list[int]) -> None:
        if hasattr(self._inner, "optimizers"):
            raise ArgumentError(
                "The optimizers of a MultiOptimizer cannot resume with another "
                f"gradient_accumulation_steps. Received: {_batches(self._optimizer)}, "
                f"and {saved} in the checkpoint, by optimizer (1: none). Compile with "
                "the same ones."
            )
        if self._inner.use_ema:
            raise ArgumentError(
                "`use_ema` averages the weights of each batch, so the average would "
                f"become another one. {self._received} Compile with "
                f"gradient_accumulation_steps={_as_setting(self._was)}."
            )

    def _check_rates(self, before: list[float] | None) -> None:
        every = _batches(self._optimizer)[0]
        after = _scheduled_rates(self._optimizer, self._calls, every)
        for was, now in zip(before or [], after or [], strict=False):
            if not math.isclose(was, now, rel_tol=_CLOSE):
                raise ArgumentError(
                    f"The learning rate would jump from {was:.3g} to {now:.3g}, now or "
                    "later, because Keras counts the steps of a schedule in batches. "
                    f"{self._received} Multiply the steps of your schedule by "
                    f"{self._now / self._was:.3g}."
                )


def _batches(optimizer: keras.Optimizer) -> list[int]:
    """Of each part, how many batches it accumulates for a step."""
    return [part.gradient_accumulation_steps or 1 for part in parts(optimizer)]


def _sums(optimizer: keras.Optimizer) -> set[int]:
    return {id(v) for part in parts(optimizer) for v in gradient_sums(part)}


def _name_of(variable: keras.Variable, optimizer: keras.Optimizer) -> str:
    """The name under which it is saved: counters stand before all sums."""
    own = [id(v) for v in own_variables(optimizer)]
    return f"{_PREFIX}{own.index(id(variable)):05d}"


def _scheduled_rates(
    optimizer: keras.Optimizer, calls: int, every: int
) -> list[float] | None:
    """The rates of a schedule, from so many batches on; None: it is no schedule.

    Now and after 1, 2, 4, ... steps of `every` batches: a boundary that moves by a
    factor of two or more moves over one of them.
    """
    inner = innermost(optimizer)
    source = None if hasattr(inner, "optimizers") else rate_source(inner)
    if not isinstance(source, keras.optimizers.schedules.LearningRateSchedule):
        return None
    steps = [0, *(2**power for power in range(_POWERS))]
    return [as_float(source(calls + every * step)) for step in steps]


def _as_setting(batches: int) -> str:
    return str(batches) if batches > 1 else "None"


def _check_unknown(
    optimizer: keras.Optimizer,
    shapes: Mapping[str, tuple[int, ...]],
    read: Callable[[str], np.ndarray],
    step: int | None,
) -> None:
    """Refuses a checkpoint without facts whose count is not that of its step."""
    inner = innermost(optimizer)
    name = _name_of(apply_count(inner), optimizer)
    if step is None or shapes.get(name) != ():
        return
    calls, batches = int(read(name)), inner.gradient_accumulation_steps or 1
    if calls // batches != step:
        raise ArgumentError(
            f"The checkpoint is of step {step}, after {calls} batches. Received: "
            f"gradient_accumulation_steps={_as_setting(batches)}, which would make it "
            f"step {calls // batches}. Compile with the same number as before."
        )


def _check_known(saved: Any) -> None:
    entries = saved if isinstance(saved, Mapping) else {}
    lists = [entries.get(name) for name in ("batches", "sums")]
    rates = entries.get("rates", "")
    if (
        not all(isinstance(x, list) and all(type(n) is int for n in x) for x in lists)
        or not (rates is None or isinstance(rates, list))
        or not all(isinstance(rate, float) for rate in rates or [])
        or any(n < 1 for n in entries["batches"])
    ):
        raise ArgumentError(
            "The checkpoint does not tell how its optimizer accumulates gradients. "
            "Restore it from a copy, or resume from the one before."
        )
