"""Tiny models of KerasHub with a tokenizer of their own."""

from keras_idea._lm.data.make_tokenizer import make_tokenizer

TEXT = (
    "def f(x):\n    while x > 10:\n        x = x - 2024\n\n    return x\n"
    "the quick brown fox jumps over the lazy dog, and 'again'\n"
) * 4


VOCABULARY = 320


def with_tokenizer(lm, family, kind="bytes", vocabulary_size=None):
    """`lm` with the preprocessor of its own family."""
    import keras_hub

    prefix = type(lm).__name__.removesuffix("CausalLM")
    preprocessor = getattr(keras_hub.models, f"{prefix}CausalLMPreprocessor")
    tokenizer = make_tokenizer(family, kind, TEXT, vocabulary_size)
    lm.preprocessor = preprocessor(tokenizer, sequence_length=16)
    return lm
