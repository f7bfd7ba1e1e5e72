"""What the commands of the studies at the map's scale share."""

import argparse
import dataclasses
import pathlib
import tempfile

from benchmarks.record import REPOSITORY
from keras_idea.data import Corpus, load_text

#: The files and folders of the text.
TEXTS = ("ptb", "wikitext2", "tinyshakespeare.txt")
#: What the pages of all studies say of their text.
TEXT_NOTE = (
    "The models train on 9.99 MB: Penn Treebank (train and valid), "
    "WikiText-2 (1 MB of train, valid and test) and Tiny Shakespeare. They are "
    "evaluated on Penn Treebank's test part alone (0.45 MB)."
)


def study_parser(description: str, name: str) -> argparse.ArgumentParser:
    """A parser with the options of every study.

    Args:
        description: str.
        name: str, of its folder among the results.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, default=5, help="how many (default 5)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--text", default=str(REPOSITORY.parent / "shared/data/text"))
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=REPOSITORY / "benchmarks/results/paper" / name,
    )
    parser.add_argument(
        "--runs",
        type=pathlib.Path,
        default=REPOSITORY / "runs/map",
        help="where compiled programs are kept (default runs/map)",
    )
    return parser


def seeds_of(given) -> range:
    """The seeds that are asked for."""
    return range(given.first_seed, given.first_seed + given.seeds)


def text_of(given) -> Corpus:
    """The text of the studies, described without the machine's path.

    Of a folder that holds more than `TEXTS`, these alone: further files would change
    what is trained on, and which files are held out.
    """
    root = pathlib.Path(given.text)
    if not all((root / name).exists() for name in TEXTS):
        corpus = load_text(root)
    else:
        with tempfile.TemporaryDirectory() as folder:
            for name in TEXTS:
                _link(root / name, pathlib.Path(folder) / name)
            corpus = load_text(folder)
    return dataclasses.replace(corpus, description="shared/data/text")


def _link(source: pathlib.Path, target: pathlib.Path) -> None:
    """Links a file, or the files of a folder: a linked folder would not be read."""
    if source.is_file():
        target.symlink_to(source.resolve())
        return
    target.mkdir()
    for path in source.iterdir():
        _link(path, target / path.name)
