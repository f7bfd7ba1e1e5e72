"""Promises about imports: layers of the package, no side effects, small core."""

import ast
import pathlib
import subprocess
import sys

import keras
import pytest

ROOT = pathlib.Path(__file__).parents[1] / "keras_idea"
# From the ground up; a file imports only from floors below its own, or its own
# folder.
FLOORS = [
    {"errors"},
    {"validation", "files", "arguments", "extras"},
    {"keras_private"},
    {"functional", "schedules", "data", "report"},
    {"layers", "methods"},
    {"hub"},
    {"models"},
    {"surgery", "evaluation"},
    {"monitor", "checkpoints", "export"},
    {"callbacks"},
    {"runs"},
    {"cli", "__init__"},
    {"__main__"},
]
FILES = sorted(ROOT.rglob("*.py"))


def floor(folder):
    return next(i for i, names in enumerate(FLOORS) if folder in names)


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                assert alias.name.split(".")[0] != "keras_idea", f"{path}: {alias.name}"
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            if node.module == "keras_idea":
                yield from (f"keras_idea.{alias.name}" for alias in node.names)
            else:
                yield node.module


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_downward(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    own = parts[0]
    for module in imported_modules(path):
        if module.startswith("keras_idea."):
            other = module.split(".")[1]
            assert other == own or floor(other) < floor(own), f"{path}: {module}"


def test_two_files_alone_import_a_backend():
    backends = {"jax", "tensorflow", "torch"}
    naming = {
        str(path.relative_to(ROOT))
        for path in FILES
        if {module.split(".")[0] for module in imported_modules(path)} & backends
    }
    # To free a variable's memory, and to step out of a function that tensorflow
    # traces: keras.ops cannot.
    assert naming == {"surgery/resize.py", "surgery/train_function.py"}


def run(code):
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_importing_has_no_side_effects_and_stays_small():
    """Nothing of the command line's (matplotlib, rich) and no other backend."""
    code = """
import sys, logging, warnings, keras
before = set(sys.modules), logging.root.level, list(warnings.filters)
import keras_idea
assert (logging.root.level, list(warnings.filters)) == before[1:]
print(*{m.split(".")[0] for m in set(sys.modules) - before[0]})
"""
    heavy = {"matplotlib", "rich", "keras_hub", "jax", "torch", "tensorflow"}
    assert not set(run(code)) & (heavy - {keras.backend.backend()})
