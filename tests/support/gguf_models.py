"""Tiny models of the families that GGUF files are written of."""

import keras_idea as ki
from keras_idea.lm.data.make_tokenizer import make_tokenizer
from keras_idea.models import DecoderConfig, decoder
from tests.support.hub_models import randomize, tiny_lm

VOCABULARY, WINDOW = 40, 40


LAYERS = {
    "num_layers": 4,
    "layer_types": ["full_attention"] * 4,
    "rope_layer_enabled_list": [True, True, True, False],
}


KEPT, ROUTED = {"norm_top_k_prob": False}, {"mlp_only_layers": []}


# What a tiny model must have besides.
FAMILIES = {
    "llama": {},
    "llama tied": {},
    "llama3": {},
    "mistral": {"sliding_window": WINDOW},
    "qwen": {},
    "qwen3": {},
    "phi3": {},
    "gemma2": {},
    "gemma3": {},
    "gpt2": {"max_sequence_length": 64},
    "bloom": {"intermediate_dim": 64},
    "qwen moe": {**KEPT, "shared_expert_intermediate_dim": 20},
    "qwen3 moe": ROUTED,
}


UNREAD = {
    "gemma": {},
    "gpt neox": {},
    "smollm3": LAYERS,
    "mixtral": {"sliding_window": WINDOW},
    "gpt oss": {"sliding_window": 4},
}


ALL = {**FAMILIES, **UNREAD}


def tiny(name, **more):
    return tiny_lm(name, **{"vocabulary_size": VOCABULARY, **ALL[name], **more})


def with_tokenizer(name, kind, length=32):
    import keras_hub

    tokenizer = make_tokenizer(name, kind, TEXT, None if kind == "bytes" else 290)
    lm = tiny_lm(name, num_layers=1, vocabulary_size=300)
    prefix = type(lm).__name__.removesuffix("CausalLM")
    preprocessor = getattr(keras_hub.models, f"{prefix}CausalLMPreprocessor")
    lm.preprocessor = preprocessor(tokenizer, sequence_length=length)
    return lm


def own_decoder(vocabulary_size):
    config = DecoderConfig(
        vocabulary_size=vocabulary_size,
        model_dim=16,
        num_layers=1,
        num_heads=2,
        hidden_dim=10,
        sequence_length=16,
    )
    return randomize(decoder(config, ffn=ki.GatedFFN), 0.3)


TEXT = "def f(x):\n    return x - 2024  # again and again, 'again'\n" * 4
