"""What a narrow model follows in its recovery: the wide model, by Keras's Distiller."""

import keras
import numpy as np
from recover_checkpoint import NATS


def distiller(teacher, model, follows, sample):
    """A Distiller, not compiled, and its loss of the labels.

    `follows`: "teacher" (labels and logits), "features" (the output of each block, no
    labels) or "teacher and features". `sample`: inputs to measure the blocks' outputs
    on, whose mean squares the losses are divided by if there are logits too.
    """
    if follows == "features":
        wide, narrow = teacher.backbone, model.backbone
        pair = keras.distillation.Distiller(
            wide, narrow, _features(narrow), student_loss_weight=0.0
        )
        return pair, "mse"  # which has the weight 0
    logits = keras.distillation.LogitsDistillation(
        temperature=1.0, loss=keras.losses.KLDivergence()
    )
    if follows == "teacher":
        return keras.distillation.Distiller(
            teacher, model, logits, student_loss_weight=0.5
        ), NATS
    wide, narrow = map(_flat, (teacher, model))
    weights = [1.0, *(1.0 / size for size in _mean_squares(wide, sample))]
    losses = [logits, *_features(narrow)]
    return keras.distillation.Distiller(
        wide, narrow, losses, weights, student_loss_weight=0.5
    ), NATS


def _features(model):
    return [
        keras.distillation.FeatureDistillation("mse", name, name)
        for name in _blocks(model)
    ]


def _blocks(model):
    return [layer.name for layer in model.layers if "transformer_layer" in layer.name]


def _flat(task):
    """A task whose blocks are layers of its own; its backbone is one layer of it."""
    backbone = task.backbone
    logits = backbone.token_embedding(backbone.output, reverse=True)
    return keras.Model(backbone.input, logits)


def _mean_squares(model, sample):
    outputs = [model.get_layer(name).output for name in _blocks(model)]
    seen = keras.Model(model.inputs, outputs).predict(sample, verbose=0)
    return [float(np.square(values).mean()) for values in seen]
