"""The examples in the docstrings of the package do what they show."""

import doctest
import importlib
import pathlib

import pytest

import keras_idea
from tests.support.doctest_world import World, make_files

ROOT = pathlib.Path(keras_idea.__file__).parent
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

#: Each trains or exports for seconds: before a release.
LONG = (
    "Checkpoint",
    "IdeaPruneCallback",
    "compact",
    "export_gguf",
    "export_hf",
    "export_preset",
    "shrink",
    "target_width",
    "train",
)


def examples():
    """Every docstring with an example."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    for path in sorted(ROOT.rglob("*.py")):
        if ">>>" not in path.read_text() or path.name == "__main__.py":
            continue
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        module = importlib.import_module(".".join(parts))
        for found in finder.find(module):
            name = found.name.removeprefix("keras_idea.")
            if found.examples:
                long = name.rpartition(".")[2] in LONG
                marks = pytest.mark.daily() if long else ()
                yield pytest.param(found, id=name, marks=marks)


@pytest.mark.parametrize("example", list(examples()))
def test_example(example, sound, tmp_path, monkeypatch):
    make_files(sound, tmp_path)
    monkeypatch.chdir(tmp_path)
    example.globs = World(example.globs)
    said = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(example, out=said.append, clear_globs=False)
    assert not said, "".join(said)
