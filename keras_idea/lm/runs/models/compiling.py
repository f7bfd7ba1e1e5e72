"""How the models of a run are compiled: optimizer, learning rate and loss."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import keras

from keras_idea.errors import ConfigError
from keras_idea.keras_private.layers import rematerialize, walk
from keras_idea.lm.runs.config import RunConfig
from keras_idea.lm.runs.models.learning_rate import learning_rate
from keras_idea.models import DecoderBlock
from keras_idea.schedules.learning_rate import Accumulated
from keras_idea.surgery import find_ffns

# Muon leaves embeddings to AdamW by itself, tied logits with them; these too.
_LOGITS = "logits"


def compiled(config: RunConfig, model: keras.Model, pruned: bool = True) -> keras.Model:
    """`model` itself, compiled as the run says; `pruned`: see `learning_rate`."""
    model.compile(
        optimizer=make_optimizer(config, pruned),
        loss=cross_entropy(),
        # Else KerasHub's models would also measure their accuracy.
        weighted_metrics=None,
        **jit_argument(config.run.jit_compile),
    )
    return model


def make_optimizer(config: RunConfig, pruned: bool = True) -> keras.Optimizer:
    """The run's optimizer, its state not made yet; `pruned`: see `learning_rate`.

    In "mixed_float16" the loss is scaled, as Keras does it: a step whose gradients
    overflow is left out.

    Raises:
        ConfigError: for clipping or accumulation on tensorflow.
    """
    settings = config.optimizer
    rate = learning_rate(settings, config.budget, pruned)
    _check_backend(config)
    arguments = {}
    if config.micro_batches > 1:
        rate = Accumulated(rate, config.micro_batches)
        arguments["gradient_accumulation_steps"] = config.micro_batches
    optimizer = _OPTIMIZERS[settings.name](
        rate,
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


def jit_argument(jit: bool | None) -> dict[str, bool]:
    """The argument `jit_compile` of `compile`, if the run says anything of it."""
    return {} if jit is None else {"jit_compile": jit}


def _check_backend(config: RunConfig) -> None:
    """Refuses what Keras 3.15 does wrongly on tensorflow.

    The gradient of an embedding is a list of rows there, one a token. Keras's norm adds
    up the squares of the rows, so that tokens which come twice make it another; and
    steps of accumulated rows are others than those of the batch (measured: weights
    differ by 5e-2 after 8 steps, elsewhere by 6e-8).
    """
    if keras.backend.backend() != "tensorflow":
        return
    for name, value, off in (
        ("global_clipnorm", config.optimizer.global_clipnorm, None),
        ("gradient_accumulation_steps", config.micro_batches, 1),
    ):
        if value != off:
            raise ConfigError(
                f"`optimizer.{name}` cannot be used on tensorflow, where Keras takes "
                "the wrong gradient of an embedding for it. Received: "
                f"{name}={value}. Set the environment variable KERAS_BACKEND=jax or "
                f"torch, or delete `{name}`."
            )


def _muon(
    learning_rate: keras.optimizers.schedules.LearningRateSchedule, **arguments: float
) -> keras.Optimizer:
    return keras.optimizers.Muon(
        learning_rate,
        adam_weight_decay=arguments["weight_decay"],
        exclude_layers=[_LOGITS],
        **arguments,
    )


_OPTIMIZERS: Mapping[str, Callable[..., keras.Optimizer]] = MappingProxyType(
    {
        "adamw": keras.optimizers.AdamW,
        "lion": keras.optimizers.Lion,
        "muon": _muon,
        "adafactor": keras.optimizers.Adafactor,
    }
)


def rematerialize_blocks(model: keras.Model) -> None:
    """Computes the model's blocks again in the backward pass, instead of keeping them.

    Raises:
        ConfigError: if the blocks drop at random: Keras 3.15 drops others in the
            second pass.
    """
    for block in transformer_blocks(model):
        for layer in walk(block):
            if isinstance(layer, keras.layers.Dropout) and layer.rate:
                raise ConfigError(
                    f"`run.rematerialize` does not support the dropout of "
                    f"{layer.path!r}: the second computation would drop other numbers. "
                    f"Received: dropout={layer.rate}. Set `run.rematerialize` to false."
                )
        rematerialize(block)


def transformer_blocks(model: keras.Model) -> list[keras.layers.Layer]:
    """The layers of a model, each of which holds one FFN and what goes with it.

    It is this package's decoder, or a KerasHub `CausalLM`; they are in its order.
    """
    backbone = getattr(model, "backbone", None)
    if backbone is None:
        return [layer for layer in model.layers if isinstance(layer, DecoderBlock)]
    owners = {id(layer) for ffn in find_ffns(model) for layer in ffn.layers}
    return [
        layer
        for layer in backbone.layers
        if any(id(part) in owners for part in walk(layer))
    ]
