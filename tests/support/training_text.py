"""Tiny models with a tokenizer that was trained on a text."""

from keras_idea._lm.data.make_tokenizer import make_tokenizer
from tests.support.hub_models import tiny_lm

TEXT = "def f(x):\n    return x - 2024  # again and again, 'again'\n" * 4


def with_tokenizer(name, kind, length=32):
    import keras_hub

    tokenizer = make_tokenizer(name, kind, TEXT, None if kind == "bytes" else 290)
    lm = tiny_lm(name, num_layers=1, vocabulary_size=300)
    prefix = type(lm).__name__.removesuffix("CausalLM")
    preprocessor = getattr(keras_hub.models, f"{prefix}CausalLMPreprocessor")
    lm.preprocessor = preprocessor(tokenizer, sequence_length=length)
    return lm
