"""What a narrow model follows while it recovers: the wide one, by Keras's Distiller."""

import keras
import numpy as np


def follower(teacher, student, features: bool, sample):
    """A `Distiller`, not compiled: half the labels, half the teacher.

    The teacher's logits, and with `features` the output of each block, its error
    divided by the mean square that the teacher's has on `sample`.
    """
    logits = keras.distillation.LogitsDistillation(
        temperature=1.0, loss=keras.losses.KLDivergence()
    )
    if not features:
        return keras.distillation.Distiller(
            teacher, student, logits, student_loss_weight=0.5
        )
    wide, narrow = map(_flat, (teacher, student))
    names = [layer.name for layer in narrow.layers if _is_block(layer)]
    outputs = [wide.get_layer(name).output for name in names]
    seen = keras.Model(wide.inputs, outputs).predict_on_batch(sample)
    sizes = [float(np.square(values).mean()) for values in seen]
    losses = [keras.distillation.FeatureDistillation("mse", n, n) for n in names]
    return keras.distillation.Distiller(
        wide,
        narrow,
        [logits, *losses],
        [1.0, *(1.0 / (size * len(sizes)) for size in sizes)],
        student_loss_weight=0.5,
    )


def _is_block(layer) -> bool:
    return layer.name.startswith(("transformer_layer", "decoder_block"))


def _flat(task):
    """The task as one graph, so that its blocks are layers of it."""
    backbone = task.backbone
    return keras.Model(
        backbone.input, backbone.token_embedding(backbone.output, reverse=True)
    )
