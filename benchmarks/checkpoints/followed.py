"""What a narrow model follows in its recovery: the wide model, by Keras's Distiller."""

import keras
import numpy as np

NATS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def distiller(teacher, model, sample=None):
    """A Distiller, not compiled: half of the loss is of the labels, half of the logits.

    With a `sample` of inputs it follows the output of each block too: the mean over the
    blocks of the error's mean square, beside that of the wide block's output there.
    """
    logits = keras.distillation.LogitsDistillation(
        temperature=1.0, loss=keras.losses.KLDivergence()
    )
    losses, weights = [logits], [1.0]
    if sample is not None:
        kinds = ("transformer_layer", "decoder_block")
        teacher, model = map(_flat, (teacher, model))
        names = [layer.name for layer in model.layers]
        blocks = [name for name in names if name.startswith(kinds)]
        for name, size in zip(blocks, _squares(teacher, blocks, sample), strict=True):
            losses.append(keras.distillation.FeatureDistillation("mse", name, name))
            weights.append(1.0 / len(blocks) / size)
    return keras.distillation.Distiller(
        teacher, model, losses, weights, student_loss_weight=0.5
    )


def _flat(task):
    """A task whose blocks are layers of its own; its backbone is one layer of it."""
    backbone = task.backbone
    logits = backbone.token_embedding(backbone.output, reverse=True)
    return keras.Model(backbone.input, logits)


def _squares(model, blocks, sample):
    outputs = [model.get_layer(name).output for name in blocks]
    seen = keras.Model(model.inputs, outputs).predict(sample, verbose=0)
    return [float(np.square(each).mean()) for each in keras.tree.flatten(seen)]
