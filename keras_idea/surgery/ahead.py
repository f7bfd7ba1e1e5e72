"""Programs that will be needed, compiled in the background; on jax.

Which program runs never depends on time: one that is not ready when its step comes is
waited for, and one that turns out not to be the very program that is needed, character
by character, is never used. Nor is one that calls Python, which its text does not show.

A train step is a function of shapes: traced while the variables say that they are
narrower, it is the program that will be there when they are. Nothing is computed and no
value is touched.
"""

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import keras

from keras_idea.keras_private.train_step import lower
from keras_idea.keras_private.variables import shaped
from keras_idea.layers.cut import Cut
from keras_idea.surgery.find import FFN
from keras_idea.surgery.optimizer_state import with_slots
from keras_idea.surgery.pruner import pruner_of

# `pure_callback`, `io_callback` and `debug.print`, on CPUs, GPUs and TPUs.
_CALLS_PYTHON = ("callback", "stablehlo.send", "stablehlo.recv")


class Ahead:
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


def narrow_step(
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
    found = [each for cut in ffn.cuts() for each in with_slots(optimizer, cut)]
    state, track = ffn.state, ffn.state.live
    newest = []
    if track is not None:
        newest = [state.scores_cut(track.scores), state.mask_cut(track.mask)]
    return [*found, *state.cuts(), *newest]
