"""The pages of the API: one for each module of `MODULES`, for mkdocstrings."""

import importlib
import pathlib
import re
import shutil

import keras_idea

#: Module: its page's title.
MODULES = {
    "keras_idea": "keras_idea",
    "keras_idea.methods": "Methods",
    "keras_idea.functional": "The algorithm as functions",
    "keras_idea.hub": "Released checkpoints",
    "keras_idea.data": "Data",
    "keras_idea.evaluation": "Evaluation",
    "keras_idea.export": "Export",
}

#: Keras writes "Example:" and what follows in the same column.
_EXAMPLE = re.compile(r'^( *)Example:\n((?:\1[^ "\n].*\n(?:\1 .*\n)*)+)', re.MULTILINE)


def write_reference(out: pathlib.Path) -> None:
    """Writes the pages, which say what is public; mkdocstrings reads the docstrings.

    Args:
        out: path of the folder of the site's sources; beside it a copy of the package
            is made, in "api", for mkdocstrings to read.
    """
    package = pathlib.Path(keras_idea.__file__).parent
    shutil.rmtree(out.parent / "api", ignore_errors=True)
    for source in package.rglob("*.py"):
        copy = out.parent / "api" / source.relative_to(package.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(_EXAMPLE.sub(_examples, source.read_text()))
    folder = out / "docs/reference"
    folder.mkdir(parents=True)
    for module, title in MODULES.items():
        public = importlib.import_module(module)
        doc = (public.__doc__ or "").strip().splitlines()[0]
        parts = [f"# {title}", doc]
        for name in sorted(public.__all__, key=str.lower):
            if not _is_module(getattr(public, name)):
                parts.append(f"::: {module}.{name}")
        (folder / f"{module}.md").write_text("\n\n".join(parts) + "\n")


def _examples(match):
    """As mkdocstrings knows it: in the plural, and further to the right."""
    indent, lines = match.groups()
    return (
        f"{indent}Examples:\n"
        + re.sub(r"^", "    ", lines.rstrip("\n"), flags=re.M)
        + "\n"
    )


def _is_module(value):
    return type(value).__name__ == "module"
