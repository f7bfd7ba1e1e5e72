"""The train steps of the widths to come, compiled while the present one runs.

Timing never changes which program runs. If a program is not ready at its step, the run
waits for it. A program is used only if its text equals that of the needed one, and
never if it calls Python, because its text does not show that code.

A train step is a function of shapes: traced while the variables say that they are
narrower, it is the program that will be there when they are. Nothing is computed and no
value is touched.
"""

import contextlib
import warnings
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

import keras

from keras_idea.finding.find import FFN
from keras_idea.groups.cut import Cut
from keras_idea.keras_private.models import make_train_function
from keras_idea.keras_private.train_step import lower, train_step_of
from keras_idea.keras_private.variables import shaped
from keras_idea.signals import held_back
from keras_idea.step.pruner import pruner_of
from keras_idea.surgery.optimizer_state import with_slots

# `pure_callback`, `io_callback` and `debug.print`, on CPUs, GPUs and TPUs.
_CALLS_PYTHON = ("callback", "stablehlo.send", "stablehlo.recv")

#: A narrowing: the step after which it is due, how wide each FFN is then, whether it
#: is the last.
Milestone: TypeAlias = tuple[int, list[tuple[FFN, int]], bool]


def should_compile_ahead(wanted: bool | None) -> bool:
    """Whether to compile ahead. If `wanted` is None: on jax, unless it runs on CPUs.

    On two CPU cores, compiling beside the steps of a run with five milestones cost more
    time than the pauses did (benchmarks/results/run_price-jax.md).
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
        self._programs = _Programs()
        self._data = None

    def begin(self, milestones: list[Milestone]) -> None:
        """Begins with a `fit`, of the milestones to come, ascending."""
        if keras.backend.backend() == "jax":
            self._milestones = [m for m in milestones if m[0] not in self._begun]

    def ready(self, model: keras.Model, step: int) -> bool:
        """bool, whether there is something for `advance` to do after so many steps."""
        while self._milestones and self._milestones[0][0] <= step:
            self._milestones.pop(0)
        if not self._milestones or not self._programs.idle:
            return False
        if self._data is None and (train_step := train_step_of(model)) is not None:
            self._data = train_step.data  # None before it is called
        return self._data is not None

    @held_back()  # for the model says meanwhile that it is narrower
    def advance(self, model: keras.Model) -> None:
        """Begins with the next program, if `ready`; the model's state is in sync."""
        step, widths, last = self._milestones.pop(0)
        pruner = pruner_of(model.optimizer)
        if pruner is not None and pruner.learner is not None:
            return  # this step learns masks, and the next one will not
        self._begun.add(step)
        try:
            program = _narrow_step(model, widths, self._data, pruning=not last)
        except Exception as error:  # it may be of a width that is not there yet
            warnings.warn(
                f"The train step of '{model.name}' after step {step} cannot be traced "
                f"before that: {error} It will be traced when it is due. Set "
                "compile_ahead=False to trace every step only then.",
                stacklevel=2,
            )
            return
        self._programs.compile(program)

    def use_compiled_step(self, model: keras.Model) -> None:
        """Gives a model that became narrower what was compiled for it."""
        if not self._begun:
            return
        if train_step_of(model) is None:
            make_train_function(model, known=True)
        if (train_step := train_step_of(model)) is not None:
            train_step.look_up(self._programs.find)

    def end(self) -> None:
        """Begins with nothing more."""
        self._milestones.clear()


class _Programs:
    """Compiles programs one after the other, beside the run."""

    def __init__(self) -> None:
        self._programs: dict[str, Future] = {}
        self._newest: Future | None = None

    @property
    def idle(self) -> bool:
        """bool, whether nothing is being compiled."""
        return self._newest is None or self._newest.done()

    def compile(self, lowered: Any) -> None:
        """Has a program, a `jax.stages.Lowered`, compiled in the background."""
        text = lowered.as_text()
        if any(word in text for word in _CALLS_PYTHON):
            return
        thread = ThreadPoolExecutor(1, thread_name_prefix="keras_idea-compile")
        self._newest = thread.submit(lowered.compile)
        thread.shutdown(wait=False)  # it ends with the program
        self._programs[text] = self._newest

    def find(self, lowered: Any) -> Any:
        """The compiled program that is just this one, or None.

        It waits for one that is being compiled.
        """
        program = self._programs.pop(lowered.as_text(), None)
        # One that failed fails once more where it is needed, and says why.
        return None if program is None or program.exception() else program.result()


def _narrow_step(
    model: keras.Model, widths: Sequence[tuple[FFN, int]], data: Any, pruning: bool
) -> Any:
    """The train step of a model on jax as it will be when its FFNs are narrower.

    The model is in sync. `data` is a batch, as `TrainStep.data`; `pruning` says whether
    the pruner at work will go on. Gives a `jax.stages.Lowered`.
    """
    optimizer = model.optimizer
    cuts = [(cut, n) for ffn, n in widths for cut in _of_neurons(ffn, optimizer)]
    pruner = pruner_of(model.optimizer)
    with contextlib.ExitStack() as scopes:
        for ffn, width in widths:
            scopes.callback(ffn.weights.set_hidden_dim, ffn.hidden_dim)
            ffn.weights.set_hidden_dim(width)
        # A kernel between two FFNs is narrowed along both axes.
        for cut, width in cuts:
            scopes.enter_context(shaped(cut.variable, cut.shape(width)))
        if pruner is not None and not pruning:
            scopes.enter_context(pruner.aside())
        return lower(model, data)


def _of_neurons(ffn: FFN, optimizer: keras.Optimizer) -> list[Cut]:
    """How an FFN's neurons lie in all variables of a training run that have them."""
    cuts = [each for cut in ffn.held_cuts() for each in with_slots(optimizer, cut)]
    state, track = ffn.state, ffn.state.active_track
    newest = []
    if track is not None:
        newest = [state.scores_cut(track.scores), state.mask_cut(track.mask)]
    return [*cuts, *state.cuts(), *newest]
