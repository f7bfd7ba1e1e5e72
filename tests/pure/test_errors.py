"""Every error that this package raises by itself is a `KerasIdeaError`."""

import ast
import builtins

from tests.support import ROOT

PACKAGE = ROOT / "keras_idea"
# What a caller in the same file, or Keras, or Python itself waits for.
OTHERS = {
    "_callbacks/checkpoint.py": {"OSError"},
    "__init__.py": {"AttributeError", "ImportError"},
    "_graph/experiment.py": {"TypeError"},
    "_keras/symbolic.py": {"ValueError"},
    "hub/importer.py": {"KeyError"},
    "methods/method.py": {"NotImplementedError"},
    "_schedules.py": {"NotImplementedError"},
}


def raised(path):
    """Names of what a file raises anew, of Python's own exceptions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and node.exc is not None:
            made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(made, ast.Name) and hasattr(builtins, made.id):
                yield made.id


def test_none_beside_the_root():
    found = {
        path.relative_to(PACKAGE).as_posix(): names
        for path in sorted(PACKAGE.rglob("*.py"))
        if (names := set(raised(path)))
    }
    assert found == OTHERS
