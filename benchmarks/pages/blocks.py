"""Parts of a page that are written from records.

They stand between the comments `<!-- records: NAME -->` and `<!-- end of records -->`,
on lines of their own or in a line of text. `python -m benchmarks.pages` writes them.
"""

import re
import textwrap
from collections.abc import Callable, Mapping

BLOCK = re.compile(r"<!-- records: ([\w-]+) -->(.*?)<!-- end of records -->", re.DOTALL)
#: Columns of a line of prose.
WIDTH = 98


def fill(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    r"""A page with its blocks written again.

    Args:
        text: str, the page.
        blocks: dict of a block's name to function that returns its Markdown.

    Returns:
        str.

    Raises:
        KeyError: if the page has a block of another name.

    Example:
    >>> fill("It is <!-- records: b -->3<!-- end of records -->.", {"b": lambda: "4"})
    'It is <!-- records: b -->4<!-- end of records -->.'
    """

    def written(match):
        name, old = match.groups()
        new = blocks[name]().strip()
        if old.startswith("\n"):
            new = "\n\n" + "\n".join(map(_wrapped, new.splitlines())) + "\n\n"
        return f"<!-- records: {name} -->{new}<!-- end of records -->"

    return BLOCK.sub(written, text)


def _wrapped(line):
    """A line of prose as lines of the page's width; a table's stays as it is."""
    if line.startswith("|"):
        return line
    indent = "  " if line.startswith("- ") else ""
    whole = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, **whole)


def names(text: str) -> list[str]:
    """The names of a page's blocks, in its order."""
    return [name for name, _ in BLOCK.findall(text)]


def by_hand(text: str) -> str:
    """What of a page is not in a block."""
    return BLOCK.sub("", text)
