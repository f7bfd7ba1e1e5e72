"""The train steps of the widths to come, compiled while the present one runs."""

import warnings
from typing import TypeAlias

import keras

from keras_idea.keras_private.models import make_train_function
from keras_idea.keras_private.train_step import train_step_of
from keras_idea.surgery.ahead import Ahead, narrow_step
from keras_idea.surgery.find import FFN

#: A narrowing: the step after which it is due, how wide each FFN is then, whether it
#: is the last.
Milestone: TypeAlias = tuple[int, list[tuple[FFN, int]], bool]


def pays(wanted: bool | None) -> bool:
    """Whether to compile ahead: as is wanted; None: where CPUs do not take the steps.

    On two cores that do, a run with five milestones was slower by the compilations
    beside its steps than by the pauses (benchmarks/results/run_price-jax.md).
    """
    if wanted is not None or keras.backend.backend() != "jax":
        return bool(wanted)
    import jax

    return jax.default_backend() != "cpu"


class CompileAhead:
    """Has each next train step of a run ready before its milestone; on jax.

    Between two batches the next program is traced, which takes as long as the first
    part of a compilation; the rest is done in the background. When the model has become
    narrower its train step is traced as ever, and compiled if that was not done.

    What is ready when a `fit` is stopped is there for the next one.
    """

    def __init__(self) -> None:
        self._milestones: list[Milestone] = []
        self._begun: set[int] = set()
        self._ahead = Ahead()
        self._data = None

    def begin(self, milestones: list[Milestone]) -> None:
        """Begins with a `fit`, of the milestones to come, ascending."""
        if keras.backend.backend() == "jax":
            self._milestones = [m for m in milestones if m[0] not in self._begun]

    def ready(self, model: keras.Model, step: int) -> bool:
        """bool, whether there is something for `advance` to do after so many steps."""
        while self._milestones and self._milestones[0][0] <= step:
            self._milestones.pop(0)
        if not self._milestones or not self._ahead.idle:
            return False
        if self._data is None and (train_step := train_step_of(model)) is not None:
            self._data = train_step.data  # None before it is called
        return self._data is not None

    def advance(self, model: keras.Model) -> None:
        """Begins with the next program, if `ready`; the model's state is in sync."""
        step, widths, last = self._milestones.pop(0)
        if any(ffn.state.probe is not None for ffn, _ in widths):
            return  # another method's step, of which the next has nothing
        self._begun.add(step)
        try:
            program = narrow_step(model, widths, self._data, pruning=not last)
        except Exception as error:  # it may be of a width that is not there yet
            warnings.warn(
                f"The train step of '{model.name}' after step {step} cannot be traced "
                f"before that: {error} It will be when it is due; compile_ahead=False "
                "says so from the start.",
                stacklevel=2,
            )
            return
        self._ahead.compile(program)

    def take_over(self, model: keras.Model) -> None:
        """Gives a model that became narrower what was compiled for it."""
        if not self._begun:
            return
        if train_step_of(model) is None:
            make_train_function(model, known=True)
        if (train_step := train_step_of(model)) is not None:
            train_step.look_up(self._ahead.find)

    def end(self) -> None:
        """Begins with nothing more."""
        self._milestones.clear()
