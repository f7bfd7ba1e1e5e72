"""Models to export, and what hides a package or breaks what is loaded back."""

import dataclasses
import importlib.util

import keras_idea as ki
from keras_idea.lm.export import compare
from keras_idea.models import DecoderConfig, decoder
from tests.support.hub_models import randomize
from tests.support.with_tokenizer import VOCABULARY

NARROW = 10


def logits(model, ids):
    return compare.model_subject(model).logits(ids)


def listing(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def own_decoder(
    tie_embeddings=False, ffn=ki.GatedFFN, num_heads=2, num_key_value_heads=1
):
    """This package's decoder, built narrow."""
    config = DecoderConfig(
        vocabulary_size=VOCABULARY,
        model_dim=16,
        num_layers=2,
        num_heads=num_heads,
        num_key_value_heads=num_key_value_heads,
        hidden_dim=NARROW,
        sequence_length=16,
        rope_max_wavelength=5000.0,
        tie_embeddings=tie_embeddings,
    )
    return randomize(decoder(config, ffn=ffn), 0.3)


def broken(monkeypatch, module):
    """What is loaded back computes something else."""

    def subject(model):
        right = compare.model_subject(model)
        return dataclasses.replace(right, logits=lambda ids: right.logits(ids) + 0.5)

    monkeypatch.setattr(module, "model_subject", subject)


def hide(monkeypatch, *modules):
    """Makes packages look as if they were not installed."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name in modules else find_spec(name, *rest),
    )
