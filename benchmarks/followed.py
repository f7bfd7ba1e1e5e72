"""What a narrow model follows in its recovery: the wide model, by Keras's Distiller."""

import keras
import numpy as np

NATS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def distiller(teacher, model, follows, sample, block_weight=1.0):
    """A Distiller, not compiled, and its loss of the labels.

    `follows`: "teacher" (labels and logits), "features" (the output of each block, no
    labels) or "teacher and features". `sample`: inputs to measure the blocks' outputs
    on, whose mean squares the losses are divided by if there are logits too; their sum
    is multiplied by `block_weight`.
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
    weights = [1.0, *(block_weight / size for size in _mean_squares(wide, sample))]
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
    kinds = ("transformer_layer", "decoder_block")
    return [layer.name for layer in model.layers if layer.name.startswith(kinds)]


def _flat(task):
    """A task whose blocks are layers of its own; its backbone is one layer of it."""
    backbone = task.backbone
    logits = backbone.token_embedding(backbone.output, reverse=True)
    return keras.Model(backbone.input, logits)


def _mean_squares(model, sample):
    outputs = [model.get_layer(name).output for name in _blocks(model)]
    seen = keras.Model(model.inputs, outputs).predict(sample, verbose=0)
    return [float(np.square(each).mean()) for each in keras.tree.flatten(seen)]
