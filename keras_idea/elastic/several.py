"""The loss of a step that computes several widths, or has the widest for a teacher."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_idea.distillation.losses import FloatLogits
from keras_idea.elastic.reading import FirstNeurons
from keras_idea.elastic.widths import FULL
from keras_idea.keras_private.layers import takes_training
from keras_idea.keras_private.read_instead import losses_of_this_pass
from keras_idea.typing import Tensor


def loss_of_widths(
    model: keras.Model,
    reading: FirstNeurons,
    counts: Mapping[str, Sequence[int]],
    names: Sequence[str],
    teacher_weight: float,
) -> Callable[..., Tensor]:
    """A `compute_loss` in place of a model's, for a step at some of its widths.

    It is the mean over the widths of

        (1 - w) * loss + w * KL(softmax(full) || softmax(logits))

    where `w` is `teacher_weight`, but 0 at full width, and `full` are the logits of all
    neurons, without a gradient. The step has computed the first of `names`; the others
    are computed here. Where "full" is not among them, it is computed too, as in
    evaluation.
    """
    original = model.compute_loss
    divergence = FloatLogits(temperature=1.0)

    def call(x: Any, training: bool) -> Any:
        return model(x, training=training) if takes_training(model) else model(x)

    def compute_loss(
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        **more: Any,
    ) -> Tensor:
        def loss_of(outputs: Any) -> Tensor:
            given = {"x": x, "y": y, "sample_weight": sample_weight}
            return original(**given, y_pred=outputs, **more)

        losses, predictions = [loss_of(y_pred)], [y_pred]
        for name in names[1:]:
            with reading.at(counts[name]), losses_of_this_pass(model):
                predictions.append(call(x, training=True))
                losses.append(loss_of(predictions[-1]))
        if not teacher_weight:
            return sum(losses) / len(losses)
        if FULL in names:
            full = predictions[names.index(FULL)]
        else:
            with reading.at(counts[FULL]):
                full = call(x, training=False)
        full, total = ops.stop_gradient(full), 0.0
        for name, loss, outputs in zip(names, losses, predictions, strict=True):
            if name != FULL:
                follows = divergence.compute_loss(full, outputs, sample_weight)
                loss = (1.0 - teacher_weight) * loss + teacher_weight * follows
            total = total + loss
        return total / len(losses)

    return compute_loss
