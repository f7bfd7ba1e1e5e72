"""Promises about imports: layers of the package, no side effects, small core."""

import ast
import functools
import subprocess
import sys

import keras
import pytest

from tests.support import ROOT

PACKAGE = ROOT / "keras_idea"
# From the ground up; a file imports only from floors below its own, or its own
# folder. Below the line stands the library, above it the application `_lm`.
FLOORS = [
    {"errors", "_typing", "_signals"},
    {"_validation", "_files"},
    {"_keras"},
    {"_processes", "functional"},
    {"_groups", "_schedules"},
    {"_layers"},
    {"methods", "hub"},
    {"_graph"},
    {"_finding"},
    {"_settings", "_step"},
    {"_surgery"},
    {"_callbacks", "_shapes"},
    {"_distillation"},
    {"_elastic"},
    {"__init__"},
    # The line.
    {"_lm", "_lm.data"},
    {"_lm.evaluation", "_lm.distribution"},
    {"_lm.export"},
    {"_lm.report"},
    {"_lm.runs"},
    {"__main__"},
]
#: Modules of the public that show what lies above the line, loaded on first use.
FACES = ("data", "evaluation", "export")
FILES = sorted(PACKAGE.rglob("*.py"))

# All code that may not know how Keras works inside.
GUARDED = [
    path
    for folder in (PACKAGE, ROOT / "benchmarks", ROOT / "examples")
    for path in sorted(folder.rglob("*.py"))
    if {"_keras", "tests"}.isdisjoint(path.relative_to(ROOT).parts)
]


def room(module):
    """The floor's name of a module: of "keras_idea._lm.data.text", "_lm.data"."""
    parts = module.split(".")[1:]
    return ".".join(parts[: 2 if parts[0] == "_lm" else 1])


def floor(room):
    return next(i for i, names in enumerate(FLOORS) if room in names)


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


def module_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and parts[1:-1] else parts)


def allowed(own, module):
    """Whether a room may import a module."""
    if module.partition(".")[0] == "keras_idea_cli":
        return own == "__main__"
    if not module.startswith("keras_idea."):
        return True
    other = room(module)
    if own in FACES:
        return other in ("errors", "_callbacks", f"_lm.{own}")
    return other == own or floor(other) < floor(own)


def test_imports_go_downward():
    assert [
        f"{path.relative_to(PACKAGE)}: {module}"
        for path in FILES
        for module in imported_modules(path)
        if not allowed(room(module_of(path)), module)
    ] == []


def test_the_line():
    """`import keras_idea` loads nothing of the application, and reads no arguments."""
    code = (
        "import sys; del sys.argv, sys.orig_argv\n"
        "import keras_idea as ki\n"
        "above = ('keras_idea._lm', 'keras_idea_cli', *(f'keras_idea.{n}' for n in "
        f"{FACES}))\n"
        "assert not [m for m in sys.modules if m.startswith(above)]\n"
        f"assert set({FACES}) <= set(dir(ki))\n"
        "assert ki.data.open_text and ki.export.export_hf\n"
        "assert ki.evaluation.perplexity and ki.hub.load\n"
        "try: ki.dta\n"
        "except AttributeError as error: print(error)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "module 'keras_idea' has no attribute 'dta'\n"


# Keras, what it stands on and what stands on it.
THEIRS = {"keras", "keras_hub", "jax", "jaxlib", "torch", "tensorflow"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


@functools.cache
def names_of_keras():
    """The private attributes of Keras's layers, models, optimizers and variables."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(momentum=0.9), "mse")
    model.optimizer.build(model.trainable_variables)
    kinds = [getattr(keras.optimizers, name) for name in dir(keras.optimizers)]
    kinds = [kind for kind in kinds if isinstance(kind, type)]
    found = [model, model.layers[0], model.optimizer, model.variables[0], *kinds]
    return {name for thing in found for name in dir(thing) if is_private(name)}


@functools.cache
def own_names(path):
    """The private names that a file gives: attributes, functions, classes, fields."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


@functools.cache
def names_of_this_code():
    return set().union(*map(own_names, GUARDED)) - names_of_keras()


def secrets(path):
    """What a file uses of the insides of others, as (line, what)."""
    everywhere = names_of_this_code()
    tree = ast.parse(path.read_text())
    prose = {id(part) for node in ast.walk(tree) for part in _prose(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            own = everywhere
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                own = everywhere | own_names(path)
            if node.attr == "__class__" and isinstance(node.ctx, ast.Store):
                yield node.lineno, "a change of `__class__`"
            elif is_private(node.attr) and node.attr not in own:
                yield node.lineno, f"`.{node.attr}`"
            elif node.attr in ("get_objects", "currentframe", "_getframe"):
                yield node.lineno, f"`.{node.attr}`"
        elif isinstance(node, ast.Constant) and id(node) not in prose:
            if node.value in names_of_keras() or _is_private_module(node.value):
                yield node.lineno, repr(node.value)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_private_module(alias.name):
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if _is_private_module(f"{node.module}.{alias.name}"):
                    yield node.lineno, f"{node.module}.{alias.name}"


def _prose(node):
    """Strings that name nothing: docstrings, and the parts of an f-string."""
    if isinstance(node, ast.JoinedStr):
        return node.values
    return [node.value] if isinstance(node, ast.Expr) else []


def _is_private_module(name):
    if not isinstance(name, str) or not name.isascii():
        return False
    top, *below = name.split(".")
    return top in THEIRS and any(p == "src" or is_private(p) for p in below)


def test_secrets_of_keras_are_in_one_room():
    found = [
        f"{path.relative_to(ROOT)}, line {line}: {what}"
        for path in GUARDED
        for line, what in secrets(path)
    ]
    assert not found, (
        "Keras does not promise these. Give each a function in "
        "keras_idea/_keras, and a test in tests/laws/keras_private."
    )


def test_the_guard_sees_secrets(tmp_path):
    guilty = {
        "variable._initialize(1)": "`._initialize`",
        "layer._anything_at_all": "`._anything_at_all`",
        "getattr(optimizer, '_iterations')": "'_iterations'",
        "layer.__class__ = int": "a change of `__class__`",
        "sys.modules['jax._src.core']": "'jax._src.core'",
        "from keras.src import backend": "keras.src.backend",
        "import keras_hub.src.models": "keras_hub.src.models",
        "class A:\n    def f(self):\n        return self._kernel": "`._kernel`",
    }
    path = tmp_path / "guilty.py"
    path.write_text("\n".join(guilty))
    assert sorted(what for _, what in secrets(path)) == sorted(guilty.values())
    path = tmp_path / "innocent.py"
    path.write_text("class A:\n    def f(self):\n        self._kernel = self._kernel")
    assert not list(secrets(path))


def run(code):
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.mark.daily()
def test_importing_has_no_side_effects_and_stays_small():
    """Nothing of the command line's (matplotlib, rich) and no other backend."""
    code = """
import os, sys, logging, warnings, keras
def settings():
    return logging.root.level, list(warnings.filters), dict(os.environ)
before = set(sys.modules), settings()
import keras_idea
assert settings() == before[1]
print(*{m.split(".")[0] for m in set(sys.modules) - before[0]})
"""
    heavy = {"matplotlib", "rich", "tomli_w", "keras_hub", "jax", "torch", "tensorflow"}
    assert not set(run(code)) & (heavy - {keras.backend.backend()})
