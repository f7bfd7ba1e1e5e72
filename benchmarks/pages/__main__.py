"""Writes every page with measured figures again: `python -m benchmarks.pages`.

From records alone: nothing is trained or timed. `--check` writes nothing and fails if a
page is not what its records say.
"""

import argparse
import pathlib
import sys
import tempfile

from benchmarks.pages import (
    of_channels,
    of_chat,
    of_checkpoints,
    of_elastic,
    of_family,
    of_gpu,
    of_map,
    of_optimizers,
    of_paper,
    of_recover,
    of_settings,
    of_speed,
    of_tables,
)
from benchmarks.pages.blocks import fill
from benchmarks.pages.studies import write_studies
from benchmarks.paper.records import RESULTS
from benchmarks.record import REPOSITORY
from keras_idea.files import write_atomically

#: Pages with blocks.
PAGES = (
    "README.md",
    "docs/when_does_it_pay.md",
    "docs/speed.md",
    "benchmarks/results/paper/README.md",
)
#: Pages with a block among figures that other tests of benchmarks/tests/pure check.
PARTLY = (
    "docs/recommended_settings.md",
    "docs/command_line.md",
    "docs/released_checkpoints.md",
)


def in_short() -> str:
    """When it pays, in three bullets."""
    return "\n".join((of_map.lost(), of_map.unseen(), of_family.won()))


BLOCKS = {
    "in-short": in_short,
    **of_map.BLOCKS,
    **of_tables.BLOCKS,
    **of_paper.BLOCKS,
    **of_family.BLOCKS,
    **of_elastic.BLOCKS,
    **of_recover.BLOCKS,
    **of_speed.BLOCKS,
    **of_gpu.BLOCKS,
    **of_channels.BLOCKS,
    **of_chat.BLOCKS,
    **of_checkpoints.BLOCKS,
    **of_optimizers.BLOCKS,
    **of_settings.BLOCKS,
}


def filled() -> dict[pathlib.Path, str]:
    """The pages with blocks, as their records say."""
    paths = [REPOSITORY / name for name in (*PAGES, *PARTLY)]
    return {path: fill(path.read_text(encoding="utf-8"), BLOCKS) for path in paths}


def stale(folder: pathlib.Path) -> list[str]:
    """The pages and numbers that differ from their records.

    Args:
        folder: path of an empty folder, to write them in.
    """
    write_studies(folder)
    made = [p for p in sorted(folder.rglob("*")) if p.suffix in (".md", ".json")]
    pairs = [(RESULTS / path.relative_to(folder), path.read_text()) for path in made]
    pairs += filled().items()
    return [
        path.relative_to(REPOSITORY).as_posix()
        for path, text in pairs
        if path.read_text(encoding="utf-8") != text
    ]


def main(arguments=None) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    if parser.parse_args(arguments).check:
        with tempfile.TemporaryDirectory() as folder:
            found = stale(pathlib.Path(folder))
        for name in found:
            print(f"{name} is not what its records say: run python -m benchmarks.pages")
        return bool(found)
    write_studies(RESULTS)
    for path, text in filled().items():
        write_atomically(path, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
