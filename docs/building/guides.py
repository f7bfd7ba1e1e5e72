"""A guide, a `.py` file as keras.io has them, as a notebook and as a page."""

import dataclasses
import re
from collections.abc import Mapping

import jupytext
import nbformat

_FENCE = '"""'


@dataclasses.dataclass(frozen=True)
class Guide:
    """A guide's parts.

    Attributes:
        header: dict of str, what stands at its top: "Title", "Description", ...
        cells: list of (kind, text), kind "markdown" or "code".
    """

    header: dict[str, str]
    cells: list[tuple[str, str]]


def read_guide(text: str) -> Guide:
    """Cuts a guide at the lines that are three quotation marks and nothing else.

    Raises:
        ValueError: if its header is missing, or one of them.
    """
    parts = re.split(rf"^{_FENCE}$", text, flags=re.MULTILINE)
    if parts[0].strip() or len(parts) < 3 or len(parts) % 2 == 0:
        raise ValueError("A guide begins with its header, and closes what it opens.")
    _, header, *rest = parts
    kinds = ("code", "markdown")
    cells = [(kinds[i % 2], part.strip("\n")) for i, part in enumerate(rest)]
    lines = (line.partition(": ") for line in header.strip().splitlines())
    return Guide(
        {name: value for name, _, value in lines},
        [(kind, part) for kind, part in cells if part.strip()],
    )


def to_notebook(guide: Guide) -> str:
    """The guide as an `.ipynb`, made by jupytext."""
    title = f"# {guide.header['Title']}\n\n{guide.header['Description']}"
    percent = "\n\n".join(
        f"# %% [markdown]\n{_FENCE}\n{part}\n{_FENCE}"
        if kind == "markdown"
        else f"# %%\n{part}"
        for kind, part in [("markdown", title), *guide.cells]
    )
    notebook = jupytext.reads(percent, fmt="py:percent")
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    for i, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{i}"
    nbformat.validate(notebook)
    return jupytext.writes(notebook, fmt="ipynb")


def to_page(guide: Guide, name: str, printed: Mapping[str, str] | None = None) -> str:
    """The guide as a page in Markdown, with links to its file and its notebook.

    `printed`: what a cell's code prints, by the code.
    """
    header = guide.header
    parts = [
        f"# {header['Title']}",
        f"*{header['Description']}*",
        f"By {header['Author']}, {header['Last modified']}. Download "
        f"[the script]({name}.py) or [the notebook]({name}.ipynb).",
    ]
    for kind, part in guide.cells:
        parts.append(part if kind == "markdown" else f"```python\n{part}\n```")
        if kind == "code" and (output := (printed or {}).get(part)):
            parts.append(f"Output:\n\n```text\n{output}\n```")
    return "\n\n".join(parts) + "\n"
