"""Words that a reader stumbles over stay out of what a user reads.

Pages, examples, the sentences that are printed or raised, and the docstrings of public
names. In the code itself, some words are left out of comments, docstrings and names.
"""

import ast
import importlib
import inspect
import re
import tokenize

import pytest

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
    ROOT / "keras_idea" / "lm" / "runs" / "demo.toml",
]
#: In comments and docstrings: each has a plain word in its place.
HEAVY = re.compile(r"\b(?:at rest|goes on|hung|of one's own|shall|whoever)\b")
#: Names that had seven meanings, or none.
NAMES = {"told", "_or_end", "_call_off", "soonest", "awaiting"}
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


def test_the_list_finds_what_it_should():
    assert stumbles("It goes on, 3 bits a byte.") == ["goes on", "bits a byte"]
    assert stumbles("A bit per byte; the run resumes a step later.") == []


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_pages(path):
    text = path.read_text(encoding="utf-8")
    assert stumbles(text) == []
    assert re.findall("^(?:<{7}|>{7}).*", text, re.MULTILINE) == []  # of a merge


@pytest.mark.parametrize("path", CODE, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_is_printed_or_raised(path):
    assert [found for text in sentences(path) for found in stumbles(text)] == []


def test_public_docstrings():
    found = {name: stumbles(text) for name, text in public_docstrings()}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("path", CODE, ids=lambda p: str(p.relative_to(ROOT)))
def test_comments_and_names(path):
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    prose = [t.string for t in tokens if t.type in (tokenize.COMMENT, tokenize.STRING)]
    assert not [found for text in prose for found in HEAVY.findall(text)]
    assert not {t.string for t in tokens if t.type == tokenize.NAME} & NAMES
