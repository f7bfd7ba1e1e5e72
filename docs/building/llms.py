"""llms.txt, for assistants: `python -m docs.building.llms` writes it.

It lists exactly the public names, each with its arguments and the first sentence of its
docstring, so that nothing has to be invented.
"""

import importlib
import inspect
import pathlib
import re

from docs.building.reference import MODULES

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "llms.txt"
_HEAD = """# keras-idea

> Prunes Keras 3 models while they train: one callback in one `model.fit`, on JAX,
> TensorFlow or PyTorch. The package is `keras_idea`, imported as `ki`.

This file lists every public name. A name that is not here does not exist: the package
has no wrapper class, no `prune_low_magnitude` and no `strip_pruning`. It is not
released yet: install it from a clone.
"""
_ROWS = re.compile(r"^\| \[([^]]+)\]\(([^)]+)\) \| (.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")


def llms_text() -> str:
    """The file's text; its pages are those of the README's table."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [_HEAD, "## Pages", "", "- [README](README.md): the shortest example"]
    lines += [f"- [{name}]({to}): {says}" for name, to, says in _ROWS.findall(readme)]
    guides = next(row for row in readme.splitlines() if row.startswith("| guides |"))
    lines += [f"- [guide: {name}]({to})" for name, to in _LINK.findall(guides)]
    for module in MODULES:
        public = importlib.import_module(module)
        names = sorted(public.__all__, key=str.lower)
        lines += ["", f"## {module}", ""]
        lines += [_line(name, getattr(public, name)) for name in names]
    return "\n".join(lines) + "\n"


def _line(name, thing):
    """A name, its arguments without types and defaults, and what it does."""
    if inspect.ismodule(thing):
        return f"- `{name}`: a module, see `{thing.__name__}`"
    if not callable(thing):
        return f"- `{name}`: a value"
    says = inspect.getdoc(thing) or ""
    sentence = re.split(r"(?<=[.:])\s", " ".join(says.split("\n\n")[0].split()))[0]
    return f"- `{name}({_arguments(thing)})`: {sentence.rstrip(':.')}."


def _arguments(thing):
    if isinstance(thing, type) and issubclass(thing, Exception):
        return ""
    taken = inspect.signature(thing).parameters.values()
    return ", ".join(str(p).partition(":")[0].partition("=")[0].strip() for p in taken)


if __name__ == "__main__":
    PAGE.write_text(llms_text(), encoding="utf-8")
