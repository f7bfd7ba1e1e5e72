"""The texts of the study, as tokens of a checkpoint."""

import dataclasses
import json
import pathlib
from collections.abc import Callable

import numpy as np

import keras_idea as ki
from keras_idea.hub.families import needs_start

#: Tokens of a window that a checkpoint is judged on; each is predicted once.
WINDOW = 256
#: Tokens of each held-out text that are judged.
JUDGED = 8192
#: The held-out texts: the domain of the recovery, and another.
HELD_OUT = ("openwebtext", "wikitext2")


@dataclasses.dataclass(frozen=True)
class Texts:
    """Token ids: `train` to recover on, `held_out` by name to judge by.

    `start_id`: what every row and window begins with, in place of its first token, as
    Gemma needs it; None: nothing.
    """

    train: np.ndarray
    held_out: dict[str, np.ndarray]
    start_id: int | None = None

    def rows(self, count: int, length: int, seed: int) -> np.ndarray:
        """Rows of `length + 1` tokens of the training text, drawn without order."""
        rng = np.random.default_rng(seed)
        starts = rng.integers(0, len(self.train) - length, count)
        rows = np.stack([self.train[start : start + length + 1] for start in starts])
        if self.start_id is not None:
            rows[:, 0] = self.start_id
        return rows

    def judged(self, name: str) -> np.ndarray:
        """The tokens of a held-out text that are judged, and the one before them."""
        return self.held_out[name][: JUDGED + 1]


def read_texts(folder: pathlib.Path, model) -> Texts:
    """Reads `folder`, as `../shared/data/text`, in the tokens of a KerasHub task."""
    tokenizer = model.preprocessor.tokenizer
    start = tokenizer.start_token_id if needs_start(type(model.backbone)) else None
    return read_with(folder, ki.data.tokenizer_vocabulary(tokenizer).encode, start)


def read_with(
    folder: pathlib.Path, encode: Callable, start_id: int | None = None
) -> Texts:
    """As `read_texts`, by a function of a text that returns token ids."""

    def of_jsonl(name):
        lines = (folder / "openwebtext" / name).read_text("utf-8").splitlines()
        texts = [json.loads(line)["text"] for line in lines]
        found = [np.asarray(encode(f"{text}\n\n"), "int32") for text in texts]
        return np.concatenate(found)

    wiki = (folder / "wikitext2" / "test.txt").read_text("utf-8")[:200_000]
    held_out = (of_jsonl("valid.jsonl"), np.asarray(encode(wiki), "int32"))
    judged = dict(zip(HELD_OUT, held_out, strict=True))
    return Texts(of_jsonl("train.jsonl"), judged, start_id)
