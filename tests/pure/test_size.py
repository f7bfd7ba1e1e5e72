"""How large a folder may be: whoever adds lines makes room for them.

To raise a limit, change it in a commit of its own, which says why.
"""

import csv

import pytest

from tests.support import ROOT
from tests.support.seconds import BACKENDS, TABLE

CPU_MINUTES = 13
DOCS_BYTES = 250_000

LIMITS = {
    "keras_idea/_callbacks": 1_410,
    "keras_idea/_elastic": 680,
    "keras_idea/_finding": 600,
    "keras_idea/functional": 870,
    "keras_idea/_graph": 2_800,
    "keras_idea/_groups": 600,
    "keras_idea/hub": 3_040,
    "keras_idea/_keras": 2_050,
    "keras_idea/_layers": 400,
    "keras_idea/_lm/data": 1_230,
    "keras_idea/_lm/evaluation": 240,
    "keras_idea/_lm/export": 950,
    "keras_idea/_lm/report": 390,
    "keras_idea/_lm/runs": 2_350,
    "keras_idea/methods": 1_270,
    "keras_idea/_shapes": 810,
    "keras_idea/_step": 650,
    "keras_idea/_surgery": 1_720,
    "tests/backend": 760,
    "tests/laws": 8_260,
    "tests/product": 3_990,
    "tests/pure": 1_760,
    "tests/support": 4_740,
    "keras_idea_cli": 330,
    "browser_tests": 430,
    "benchmarks": 5_500,
}


def lines_of(folder):
    return sum(
        path.read_bytes().count(b"\n")
        for path in (ROOT / folder).rglob("*.py")
        if "__pycache__" not in path.parts
    )


@pytest.mark.parametrize("folder", LIMITS)
def test_no_folder_has_more_lines_than_its_limit(folder):
    assert 0 < lines_of(folder) <= LIMITS[folder]


def test_the_suite_keeps_to_its_minutes_of_cpu():
    """tests/times.csv, of the last `make test` after which it was written."""
    with TABLE.open(newline="") as lines:
        table = list(csv.DictReader(lines))
    seconds = sum(float(row[backend]) for row in table for backend in BACKENDS)
    assert 0 < seconds <= CPU_MINUTES * 60


def test_the_pages_keep_to_their_bytes():
    paths = (path for path in (ROOT / "docs").rglob("*") if path.is_file())
    kept = (path for path in paths if "__pycache__" not in path.parts)
    assert 0 < sum(path.stat().st_size for path in kept) <= DOCS_BYTES


def test_every_folder_has_a_limit():
    packages = ("keras_idea", "keras_idea/_lm", "tests")
    inside = {
        path.parent.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).glob("*/__init__.py")
    }
    assert inside - {"keras_idea/_lm"} <= set(LIMITS)
