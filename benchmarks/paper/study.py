"""What the commands of the studies at the map's scale share."""

import argparse
import dataclasses
import pathlib

from benchmarks.record import REPOSITORY
from keras_idea.data import Corpus, load_text

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
    """The text of the studies, described without the machine's path."""
    return dataclasses.replace(load_text(given.text), description="shared/data/text")
