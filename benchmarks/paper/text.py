"""The text of the tables: Penn Treebank where there is one."""

import os
import pathlib

import numpy as np

from keras_idea.data import Corpus, load_text
from keras_idea.errors import TextError

#: Names the folder where no option does.
VARIABLE = "KERAS_IDEA_TEXT"


def find_text(folder=None) -> Corpus:
    """The text to train on and the text held out, `train.txt` and `valid.txt`.

    Args:
        folder: path of the folder that holds them, itself or in its folder `ptb`.
            None: the folder that the environment variable KERAS_IDEA_TEXT names, else
            `../shared/data/text` beside the repository, else Python's source text.

    Raises:
        TextError: if a folder that was named holds no such files.
    """
    named = folder or os.environ.get(VARIABLE)
    beside = pathlib.Path(__file__).parents[3] / "shared" / "data" / "text"
    root = pathlib.Path(named or beside)
    for place in (root, root / "ptb"):
        paths = [place / "train.txt", place / "valid.txt"]
        if all(path.is_file() for path in paths):
            train, held_out = (np.frombuffer(p.read_bytes(), "uint8") for p in paths)
            said = f"train.txt of {place.name!r} to train on, its valid.txt held out"
            return Corpus(train, held_out, said)
    if named:
        raise TextError(
            f"The folder {str(root)!r} holds no train.txt and valid.txt, nor does its "
            "folder ptb. Name another with --data, or unset the variable "
            f"{VARIABLE} and leave --data out to use Python's own source text."
        )
    return load_text("stdlib")
