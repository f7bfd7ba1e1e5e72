"""Every public name and how it is called: a change of it must be meant."""

import importlib
import inspect

from tests.support import SUPPORT

FACE = SUPPORT / "face.txt"
PACKAGES = (
    "",
    "data",
    "evaluation",
    "export",
    "functional",
    "hub",
    "methods",
)


def signature(thing):
    """How it is called, without types: they may be told better at any time."""
    if isinstance(thing, type) and issubclass(thing, Exception):
        return "(*words)"  # which not every Python tells
    called = inspect.signature(thing)
    bare = [p.replace(annotation=p.empty) for p in called.parameters.values()]
    return str(called.replace(parameters=bare, return_annotation=called.empty))


def described(name, thing):
    if inspect.ismodule(thing):
        return f"{name}: a module"
    return f"{name}{signature(thing)}" if callable(thing) else f"{name}: a value"


def face():
    """The lines of the file, as they are to be today."""
    for package in PACKAGES:
        module = importlib.import_module(".".join(["keras_idea", package]).strip("."))
        yield f"[{module.__name__}]"
        for name in sorted(module.__all__):
            yield described(name, getattr(module, name))
        yield ""


def test_every_public_name():
    """After a change that is meant: python -m tests.pure.test_face > the file."""
    assert "\n".join(face()) + "\n" == FACE.read_text()


if __name__ == "__main__":
    print("\n".join(face()))
