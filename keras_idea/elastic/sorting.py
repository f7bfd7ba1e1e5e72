"""The neurons of FFNs in the order of importance: the same function, nested widths."""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN
from keras_idea.signals import held_back
from keras_idea.surgery.optimizer_state import built_optimizer, with_slots


@held_back()
def sort_neurons(model: keras.Model, ffns: Sequence[FFN]) -> None:
    """Puts the neurons of each FFN in the order of importance, the first the greatest.

    In place: weights, the optimizer's slots, scores, masks and first numbers. The model
    computes what it did, up to the order of sums. No pruner is at work; on jax the
    model is in sync. Sorted neurons stay where they are.
    """
    importances = [ops.convert_to_numpy(ffn.importance()) for ffn in ffns]
    for ffn, importance in zip(ffns, importances, strict=True):
        if not importance.any() or not np.isfinite(importance).all():
            raise ArgumentError(
                f"Nothing is known of the neurons of {ffn.name}, so they cannot be "
                "sorted. A run that resumes at `begin_step` needs the scores of a "
                "`keras_idea.Checkpoint`. Restore one, or set a later begin_step."
            )
    optimizer = built_optimizer(model)
    for ffn, importance in zip(ffns, importances, strict=True):
        order = np.argsort(-importance, axis=-1, kind="stable")
        for cut in [*ffn.held_cuts(), *ffn.state.cuts()]:
            for each in with_slots(optimizer, cut):
                each.variable.assign(each.take(order))
