"""The paper's tables: `python -m benchmarks.paper --table 3 --scale tiny`."""

import argparse
import sys

from benchmarks.paper.grid import bench_paper
from benchmarks.paper.scale import SCALES
from benchmarks.paper.text import find_text
from keras_idea.lm.cli import carry_out
from keras_idea.validation import check_choice

_DESCRIPTION = (
    "Carries out tables of the paper (1 to 6) and of what its readers missed (7 "
    "pruning frequency, 8 token split, 9 warm-up-stable-decay, 10 optimizers, 11 "
    "target ratios, 12 length of the training), in kind, at a size that fits the "
    "machine. A finished cell is never run again: the same command goes on after a "
    "stop, and with more seeds only adds."
)
# Option: metavar, type, default, help.
_OPTIONS = {
    "--scale": (
        None,
        str,
        "tiny",
        "tiny (default): minutes a seed on 2 cores; small: a night; gpu: one large "
        "GPU; mini: minutes a seed on one core; map: the map's",
    ),
    "--seeds": ("K", int, 3, "how many (default 3)"),
    "--first-seed": (
        "S",
        int,
        0,
        "the first of them (default 0); runs with other seeds may share the output "
        "folder",
    ),
    "--output": (
        "DIR",
        str,
        "runs/paper",
        "where cells, checkpoints and tables go (default runs/paper)",
    ),
    "--data": (
        "DIR",
        str,
        None,
        "folder with train.txt and valid.txt, or with ptb/ that has them; default: "
        "the variable KERAS_IDEA_TEXT, ../shared/data/text beside the repository, or "
        "the source text of Python's standard library",
    ),
}


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper", description=_DESCRIPTION
    )
    parser.add_argument(
        "--table",
        type=int,
        action="append",
        required=True,
        metavar="N",
        help="1 to 12; may be given several times (tables share cells)",
    )
    for name, (metavar, kind, default, text) in _OPTIONS.items():
        parser.add_argument(
            name, metavar=metavar, type=kind, default=default, help=text
        )
    return parser


def main(arguments=None) -> int:
    """Runs the command line; returns the exit status."""
    return carry_out(_bench_paper, make_parser().parse_args(arguments))


def _bench_paper(options):
    check_choice("scale", options.scale, tuple(SCALES))
    corpus = find_text(options.data)
    print(f"Text: {corpus.description}", flush=True)
    written = bench_paper(
        options.table,
        SCALES[options.scale],
        options.seeds,
        options.output,
        corpus,
        options.first_seed,
    )
    print(*written, sep="\n")


if __name__ == "__main__":
    sys.exit(main())
