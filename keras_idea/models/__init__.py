"""A small decoder to train: configs, blocks, model, text; a Llama as a Mistral."""

from keras_idea.models.attention import CausalSelfAttention, rotary
from keras_idea.models.config import PAPER_CONFIGS, DecoderConfig
from keras_idea.models.decoder import DecoderBlock, decoder
from keras_idea.models.generate import generate, sample

__all__ = [
    "PAPER_CONFIGS",
    "CausalSelfAttention",
    "DecoderBlock",
    "DecoderConfig",
    "decoder",
    "generate",
    "rotary",
    "sample",
]
