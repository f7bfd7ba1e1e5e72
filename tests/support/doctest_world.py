"""What the examples in docstrings take for granted: names, and files beside them."""

import functools
import shutil

import keras
import numpy as np

import keras_idea as ki
from tests.support import malformed
from tests.support.text_files import jsonl
from tests.support.tiny_decoder import DecoderConfig, decoder

RUN = malformed.CONFIG


class World(dict):
    """The names of an example; those of `MAKERS` are made when they are asked for."""

    def __missing__(self, name):
        if name not in MAKERS:
            raise KeyError(name)
        self[name] = MAKERS[name](self)
        return self[name]


def _model(world):
    """A compiled decoder of bytes with two prunable FFNs of 8 neurons."""
    config = DecoderConfig(
        vocabulary_size=256,
        model_dim=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        sequence_length=16,
    )
    model = decoder(config, ffn=ki.PrunableGatedFFN)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.AdamW(0.01), loss=loss)
    return model


def _lm(world):
    """A KerasHub Llama 3 of two layers and 24 neurons an FFN, compiled."""
    from tests.support.hub_models import tiny_lm
    from tests.support.with_tokenizer import with_tokenizer

    return with_tokenizer(tiny_lm("llama3", vocabulary_size=261), "llama3")


MAKERS = {
    "ki": lambda world: ki,
    "keras": lambda world: keras,
    "np": lambda world: np,
    "model": _model,
    "lm": _lm,
    "x": lambda world: np.arange(4 * 16, dtype="int32").reshape(4, 16),
    "y": lambda world: np.arange(1, 4 * 16 + 1, dtype="int32").reshape(4, 16),
    "data": lambda world: _batches(world["x"], world["y"]),
    "text": lambda world: "def f(x):\n    return x\n" * 100,
    "prune": lambda world: ki.IdeaPruneCallback(4, begin_step=1, prune_steps=2),
}


def _batches(x, y):
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return x, y

    return Batches()


@functools.cache
def _documents():
    return jsonl(["one", "two", "three"])


def make_files(sound, folder):
    """The files that examples name: a run's description, runs, a preset, documents.

    Args:
        sound: Path of what `malformed.make_all` made.
        folder: Path of an empty folder.
    """
    for name in ("run", "preset"):
        shutil.copytree(sound / name, folder / name)
    shutil.copy(sound / "text.txt", folder / "text.txt")
    (folder / "run.toml").write_text(RUN)
    (folder / "corpus").mkdir()
    (folder / "corpus" / "a.jsonl").write_bytes(_documents())
