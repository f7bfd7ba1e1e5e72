"""The config of a tiny decoder."""

from keras_idea.models import DecoderConfig

TINY = DecoderConfig(
    vocabulary_size=19,
    model_dim=16,
    num_layers=2,
    num_heads=4,
    num_key_value_heads=2,
    hidden_dim=24,
    sequence_length=12,
)
