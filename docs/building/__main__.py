"""The site's sources: `python -m docs.building build/docs`, as `make docs` does."""

import pathlib
import shutil
import sys

from docs.building import llms
from docs.building.reference import write_reference
from docs.building.tree import make_tree


def main(out: str) -> None:
    """Writes them into a folder, which is emptied before."""
    folder = pathlib.Path(out)
    llms.PAGE.write_text(llms.llms_text(), encoding="utf-8")
    make_tree(folder)
    write_reference(folder)
    shutil.copy(pathlib.Path(__file__).with_name("site.css"), folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
