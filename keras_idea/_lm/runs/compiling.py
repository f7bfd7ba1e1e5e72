"""How the models of a run are compiled: optimizer, learning rate and loss."""

from typing import Any

import keras

from keras_idea._keras.layers import rematerialize, walk
from keras_idea._lm.runs.config import RunConfig
from keras_idea._schedules import Accumulated, CosineDecay
from keras_idea._surgery import find_ffns
from keras_idea.errors import ConfigError


def learning_rate(config: RunConfig) -> CosineDecay:
    """The learning rate by optimizer step: a warm-up, one cosine over the budget."""
    settings = config.optimizer
    return CosineDecay(
        settings.peak_learning_rate,
        settings.end_learning_rate,
        config.budget.total_steps,
        settings.warmup_steps,
    )


def compiled(config: RunConfig, model: keras.Model) -> keras.Model:
    """`model` itself, compiled as the run says."""
    if config.run.rematerialize:
        rematerialize_blocks(model)
    # Without weighted_metrics=None, KerasHub's models also measure their accuracy.
    model.compile(make_optimizer(config), cross_entropy(), weighted_metrics=None)
    return model


def make_optimizer(config: RunConfig) -> keras.Optimizer:
    """The run's optimizer, its state not made yet.

    In "mixed_float16" the loss is scaled: steps whose gradients overflow are skipped.
    """
    settings, rate = config.optimizer, learning_rate(config)
    _check_backend(config)
    arguments: dict = {}
    if settings.name == "muon":
        # Muon leaves embeddings to AdamW, and tied logits with them; others are named.
        arguments["adam_weight_decay"] = settings.weight_decay
        arguments["exclude_layers"] = ["logits"]
    if config.parts > 1:
        arguments["gradient_accumulation_steps"] = config.parts
    kinds = {"adamw": "AdamW", "lion": "Lion", "muon": "Muon"}
    optimizer = getattr(keras.optimizers, kinds[settings.name])(
        Accumulated(rate, config.parts) if config.parts > 1 else rate,
        weight_decay=settings.weight_decay,
        global_clipnorm=settings.global_clipnorm,
        **arguments,
    )
    if config.run.dtype == "mixed_float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def cross_entropy() -> keras.losses.Loss:
    """The loss of the text, in nats per token; computed in float32."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float32")


def _check_backend(config: RunConfig) -> None:
    """Rejects what Keras 3.15 computes wrongly on tensorflow.

    The gradient of an embedding is a list of rows there, one per token: its norm, and
    accumulated rows, are wrong for tokens that come twice.
    """
    if keras.backend.backend() != "tensorflow":
        return
    for name, value, off in (
        ("global_clipnorm", config.optimizer.global_clipnorm, None),
        ("gradient_accumulation_steps", config.parts, 1),
    ):
        if value != off:
            raise ConfigError(
                f"`optimizer.{name}` is wrong on tensorflow: Keras takes the wrong "
                f"gradient of an embedding. Received: {value}. Set KERAS_BACKEND=jax or"
                f" torch, or delete `{name}`."
            )


def rematerialize_blocks(model: keras.Model) -> None:
    """Computes the model's blocks again in the backward pass: less memory."""
    for block in transformer_blocks(model):
        for layer in walk(block):
            if isinstance(layer, keras.layers.Dropout) and layer.rate:
                raise ConfigError(
                    f"`run.rematerialize` does not support the dropout of "
                    f"{layer.path!r}, which would drop other numbers the second time. "
                    "Set it to false."
                )
        rematerialize(block)


def transformer_blocks(model: Any) -> list[keras.layers.Layer]:
    """Returns the blocks of a KerasHub `CausalLM`, in order."""
    owners = {id(layer) for ffn in find_ffns(model) for layer in ffn.layers}
    return [
        layer
        for layer in model.backbone.layers
        if any(id(part) in owners for part in walk(layer))
    ]
