"""The models of a run, wide and narrow, ready to train."""

import functools

import keras

import keras_idea as ki
from keras_idea.models import DecoderConfig, decoder


def compiled_decoder(config, width, ffn):
    """A byte-level decoder with AdamW under the run's cosine.

    Args:
        config: `RunConfig`.
        width: int, neurons of each FFN.
        ffn: callable `ffn(hidden_dim, name=...)` that makes an FFN layer.

    Returns:
        A compiled `keras.Model`, int32 bytes to logits.
    """
    shape = config.model
    model = decoder(
        DecoderConfig(
            vocabulary_size=256,
            model_dim=shape.model_dim,
            num_layers=shape.num_layers,
            num_heads=shape.num_heads,
            num_key_value_heads=shape.num_key_value_heads,
            hidden_dim=width,
            sequence_length=shape.sequence_length,
        ),
        ffn=ffn,
    )
    model.compile(
        optimizer=keras.optimizers.AdamW(
            cosine(config), weight_decay=config.optimizer.weight_decay
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def prunable_ffn(config):
    """What makes the wide FFNs: `PrunableGatedFFN` with the run's scores."""
    return functools.partial(
        ki.PrunableGatedFFN,
        ema_decay=config.pruning.ema_decay,
        row_reduce=config.pruning.row_reduce,
        matrix_reduce=config.pruning.matrix_reduce,
    )


def cosine(config):
    """The learning rate: one warm-up and one cosine over the whole budget."""
    return ki.CosineDecay(
        config.optimizer.peak_learning_rate,
        config.optimizer.end_learning_rate,
        config.budget.total_steps,
        config.optimizer.warmup_steps,
    )
