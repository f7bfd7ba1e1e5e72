"""The steps of one `fit` at several widths: a train function for each."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import keras

from keras_idea.elastic.checks import (
    check_counts,
    check_model,
    check_passes,
    warn_if_unsorted,
)
from keras_idea.elastic.draw import Sample, draw, draws
from keras_idea.elastic.reading import FirstNeurons
from keras_idea.elastic.several import loss_of_widths
from keras_idea.elastic.sorting import sort_neurons
from keras_idea.elastic.width_losses import WidthLosses
from keras_idea.elastic.widths import FULL, Width
from keras_idea.errors import ArgumentError
from keras_idea.finding.work_count import matrix_weights, matrix_weights_at
from keras_idea.keras_private.callbacks import warn_user
from keras_idea.keras_private.fit_figures import evaluate_again, why_not_again
from keras_idea.keras_private.models import compilation, instead, make_train_function
from keras_idea.keras_private.optimizer_variables import as_int, innermost
from keras_idea.keras_private.read_instead import changed
from keras_idea.keras_private.train_step import owner_of_train_function
from keras_idea.step.pruner import NeuronPruner
from keras_idea.step.track import only_scored


class Run:
    """Trains a model at the widths that are drawn, from a step on.

    Until then the importance of the neurons is measured, then they are sorted.

    Args:
        model: keras.Model, compiled, in sync.
        widths: dict, name -> width.
        begin_step: int, the last step at full width alone.
        sample: how a step's width is drawn.
        teacher: "self" or None.
        teacher_weight: float in [0, 1].
        seed: int.
        before: the `Run` of the last `fit`, or None: of the same model, it is compiled.
    """

    def __init__(
        self,
        model: keras.Model,
        widths: dict[str, Width],
        begin_step: int,
        sample: Sample,
        teacher: str | None,
        teacher_weight: float,
        seed: int,
        before: "Run | None" = None,
    ) -> None:
        self._model, self._compilation = model, compilation(model)
        #: counts: dict, the neurons of each at each width, "full" among them.
        self._ffns, self.counts = check_model(model, widths)
        self._reading = FirstNeurons(model, self._ffns)
        check_counts(model, self._ffns, self._reading, self.counts)
        check_passes(model, sample, teacher)
        names = [name for name in self.counts if name != FULL]
        self._names = sorted(names, key=lambda name: sum(self.counts[name]))
        self._begin_step, self._sample, self._seed = begin_step, sample, seed
        self._teacher_weight = teacher_weight if teacher else 0.0
        self.losses = WidthLosses(model)
        self._functions: dict[tuple[str, ...], Callable] = {}
        self._checked: set[tuple[str, ...]] = set()
        self._tests: dict[str, Callable] = {}
        if before is not None and before._compiled == self._compiled:
            self._functions, self._tests = before._functions, before._tests
            self._checked = before._checked
        self._plain: Callable | None = None
        self._next: tuple[str, ...] | None = None
        #: tuple of str, the widths of the step that was prepared last.
        self.drawn: tuple[str, ...] = (FULL,)
        self._told = False
        self._taken: tuple[str, ...] = ()  # the widths of the last step
        self._left_out: dict[str, int] = {}  # name -> weights that it does not use
        start = as_int(innermost(model.optimizer).iterations)
        self._scorer: NeuronPruner | None = None
        self._sorts = 0 < begin_step and start <= begin_step
        warn_if_unsorted(self._ffns, begin_step, start)
        if start < begin_step:
            self._scorer = NeuronPruner([only_scored(ffn) for ffn in self._ffns])
            self._scorer.attach(model)

    @property
    def _compiled(self) -> tuple:
        """What the functions of the widths depend on."""
        return id(self._model), self._compilation, self.counts, self._teacher_weight

    @property
    def begun(self) -> bool:
        """bool, whether steps are at the widths that are drawn."""
        return self._plain is not None

    def begin(self, model: keras.Model) -> None:
        """Sorts the neurons, and takes the model's train function over."""
        self._rest(model)
        if self._sorts:
            sort_neurons(model, self._ffns)
        whole = matrix_weights(model)
        for name, counts in self.counts.items():
            used = matrix_weights_at(model, zip(self._ffns, counts, strict=True))
            self._left_out[name] = whole - used
        self.losses.begin_epoch()
        if model.train_function is None:  # in a loop by `train_on_batch`
            make_train_function(model)
        self._plain = model.train_function
        # Now: on a mesh of jax, a step under way has taken the variables' values.
        for names in draws(self._sample, self._names):
            if names != (FULL,) and names not in self._functions:
                make_train_function(model)
                self._functions[names] = model.train_function
        model.train_function = self.step

    def end(self, model: keras.Model) -> None:
        """Leaves the model as it was, if it was changed."""
        self._rest(model)
        if self._plain is not None:
            if run_of(model) is self:
                model.train_function = self._plain
            self._plain = None

    def prepare(self, step: int, stride: int) -> None:
        """Draws the widths of the train function's next call, at an optimizer step."""
        if self._next is not None:
            raise ArgumentError(
                "The model's train function was not called since the last "
                "`on_train_batch_begin`, so that step was at full width. Train by "
                "`fit` or `model.train_on_batch`: a step of your own knows no width."
            )
        drawn = draw(self._sample, self._names, self._seed, step, stride)
        self._next = self.drawn = drawn

    def step(self, *args: Any) -> Any:
        """The train function of the widths that are drawn, in place of the model's.

        Called where no callback has prepared it, in the `fit` after one that an
        exception has ended, it is the model's again.
        """
        names, self._next = self._next, None
        self._taken = names or ()
        plain: Any = self._plain
        if names is None:
            self.end(self._model)
            return plain(*args)
        if names == (FULL,):
            returned = plain(*args)
        else:
            returned = self._at(names, args)
        self.losses.note(names[0] if len(names) == 1 else "", returned)
        return returned

    def work_of_step(self, full: float) -> float:
        """Multiply-adds of the last step per token, where full width has `full`.

        In units of a forward pass and its backward pass: the pass of a teacher that
        the step computes beside its widths is a third.
        """
        if not self._taken:
            return full
        work = sum(full - self._left_out[name] for name in self._taken)
        alone = self._teacher_weight and FULL not in self._taken
        return work + full / 3 if alone else work

    def _at(self, names: tuple[str, ...], args: Any) -> Any:
        model = self._model
        with contextlib.ExitStack() as scopes:
            # Traced in here, the first time and for a batch of another shape.
            scopes.enter_context(self._reading.at(self.counts[names[0]]))
            if len(names) > 1 or self._teacher_weight:
                weight = self._teacher_weight
                given = model, self._reading, self.counts, names, weight
                change = (vars(model), "compute_loss", loss_of_widths(*given))
                scopes.enter_context(changed([change]))
            returned = self._functions[names](*args)
        if names not in self._checked:
            self._reading.check_read()
            self._checked.add(names)
        return returned

    def validate(self, model: keras.Model) -> dict[str, float]:
        """The figures of each width but the full on the held-out data of `fit`."""
        why_not = why_not_again(model)
        if why_not is not None:
            if not self._told:
                warn_user(
                    "The validation data cannot be used again for each width, so the "
                    f"logs have none but of full width: {why_not}. Give arrays or a "
                    "dataset."
                )
            self._told = True
            return {}
        logs: dict[str, float] = {}
        for name in self._names:
            with instead(model, "test_function", self._tests.get(name)):
                with self._reading.at(self.counts[name]):
                    if name not in self._tests:
                        self._tests[name] = self._test_function(model)
                    found = evaluate_again(model)
            logs |= {f"val_{name}_{key}": value for key, value in found.items()}
        return logs

    def _test_function(self, model: keras.Model) -> Callable:
        """A test function that shares no trace: jax takes equal methods for one."""
        with instead(model, "test_step", functools.partial(model.test_step)):
            model.make_test_function(force=True)
        made: Callable = model.test_function
        return made

    def _rest(self, model: keras.Model) -> None:
        if self._scorer is not None:
            self._scorer.detach(model)
            self._scorer = None


def run_of(model: keras.Model) -> Run | None:
    """The `Run` that has a model's train function, or None."""
    owner = owner_of_train_function(model)
    return owner if isinstance(owner, Run) else None
