"""The train step of a narrower model, as a program, while the model is still wide.

On jax a train step is a function of shapes: traced while the variables say that they
are narrower, it is the program that will be there when they are. Nothing is computed
and no value is touched.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import keras

from keras_idea.keras_private.train_step import lower
from keras_idea.keras_private.variables import shaped
from keras_idea.layers.cut import Cut
from keras_idea.surgery.find import FFN
from keras_idea.surgery.optimizer_state import with_slots
from keras_idea.surgery.pruner import pruner_of


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
