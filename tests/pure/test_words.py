"""Words that a reader stumbles over stay out of what a user reads.

Pages, examples, the sentences that are printed or raised, and the docstrings of public
names.
"""

import ast
import importlib
import inspect
import re

from tests.pure.test_face import PACKAGES
from tests.support import ROOT

WORDS = (
    *("anew", "as ever", "asks for", "by itself", "fell", "for ever", "goes? on"),
    *("mends?", "mended", "of what", "passed over", "refuses", "shall", "told apart"),
    "that is there",
)
RATES = "bits|bytes|nats|seconds|sequences|steps|tokens|FLOPs|ms"
STUMBLE = re.compile(
    rf"\b(?:{'|'.join(WORDS)})\b"
    rf"|\b(?:{RATES}) an? (?:byte|parameter|second|sequence|step|token)\b",
    re.IGNORECASE,
)
PAGES = [
    *ROOT.glob("*.md"),
    *(path for path in ROOT.glob("docs/*.md") if path.name != "decisions.md"),
    *ROOT.glob("docs/guides/*.py"),
    *(ROOT / "examples").rglob("*.py"),
    *(ROOT / "examples").rglob("*.toml"),
    *(ROOT / "examples").rglob("*.md"),
    ROOT / "keras_idea" / "_lm" / "runs" / "demo.toml",
]
CODE = sorted([*ROOT.glob("keras_idea/**/*.py"), *ROOT.glob("keras_idea_cli/*.py")])


def stumbles(text):
    """What of the list a text has."""
    return [found.group(0) for found in STUMBLE.finditer(" ".join(text.split()))]


def docstrings_of(tree):
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, holders) and ast.get_docstring(node) is not None:
            yield id(node.body[0].value)


def sentences(path):
    """The texts of a file that are printed or raised: its strings but docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {*docstrings_of(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in docstrings:
                yield node.value


def public_docstrings():
    for package in PACKAGES:
        module = importlib.import_module(".".join(["keras_idea", package]).strip("."))
        for name in module.__all__:
            thing = getattr(module, name)
            yield f"{module.__name__}.{name}", inspect.getdoc(thing) or ""
            for member, value in vars(thing).items() if inspect.isclass(thing) else ():
                if not member.startswith("_"):
                    yield f"{name}.{member}", inspect.getdoc(value) or ""


def test_pages():
    found = {}
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        merge = re.findall("^(?:<{7}|>{7}).*", text, re.MULTILINE)
        found[path.relative_to(ROOT).as_posix()] = stumbles(text) + merge
    assert only_full(found) == {}


def test_what_is_printed_or_raised():
    assert only_full({path: list(said(path)) for path in CODE}) == {}


def test_public_docstrings():
    assert only_full({name: stumbles(text) for name, text in public_docstrings()}) == {}


def only_full(found):
    """The entries that found something: what an assertion shows."""
    return {str(name): words for name, words in found.items() if words}


def said(path):
    for text in sentences(path):
        yield from stumbles(text)
