"""The table of keras.io's examples is what its records say."""

import json
import re

import pytest

from benchmarks import record
from benchmarks.examples import table
from tests.support.recorded import RESULTS, read, rows_of


@pytest.fixture(scope="module")
def records():
    return json.loads((RESULTS / "examples.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page():
    return read("benchmarks/results/examples.md")


def test_the_page_is_written_from_the_records(records, page, tmp_path):
    backends = records["backends"]
    facts = {name: records[name] for name in ("date", "command", "commit")}
    facts |= {name: records[name] for name in ("versions", "hardware")}
    made = table.tables(backends)
    record.write(tmp_path, "examples", facts, {"backends": backends}, made)
    assert (tmp_path / "examples.md").read_text(encoding="utf-8") == page
    assert json.loads((tmp_path / "examples.json").read_text()) == records


def test_each_row_is_its_record(records, page):
    """Read again: widths, counts, and the same bits where nothing differs."""
    rows = {row[0]: row[1:] for row in rows_of(page, "example | backend | Dense pairs")}
    found = {}
    for backend in records["backends"].values():
        found = {**backend["examples"], **found}
    assert rows.keys() == found.keys() and len(rows) >= 46
    for name, (_, pairs, known, pruned, loaded, compacted, _) in rows.items():
        one = found[name]
        assert pairs == str(one["pairs"])
        assert known == (str(len(one["found"])) if "found" in one else "no")
        widths = [width for pair in one.get("pruned", {}).values() for width in pair]
        told = [int(width) for width in re.findall(r"\d+", pruned)]
        assert set(told) == set(widths)
        if "pruned" not in one:
            assert loaded == compacted == "-"
            continue
        for cell, values in (
            (loaded, one["loaded"].get("narrow", {})),
            (compacted, one.get("compacted", {})),
        ):
            same = bool(values) and set(values.values()) == {0.0}
            assert (cell == "same bits") == same or cell.startswith(("no", "Keras"))


def test_the_sentence_counts_the_rows(page):
    rows = rows_of(page, "example | backend | Dense pairs")
    pairs = [row for row in rows if row[2] != "0"]  # row[1] is the backend
    pruned = [row for row in pairs if "→" in row[4]]
    can = [row for row in pruned if row[5] != "Keras cannot"]
    small = [row for row in pruned if not row[6].startswith("no")]
    whole = [row for row in pairs if row[3] != "no" and int(row[3]) >= int(row[2])]
    examples = {row[0].partition(": ")[0] for row in rows}
    said = (
        f"{len(rows)} models of {len(examples)} examples, {len(pairs)} with Dense "
        f"pairs. All pairs are found in {len(whole)}; {len(pruned)} are pruned;"
    )
    assert said in page
    loads = sum(not row[5].startswith("no") for row in can)
    assert f"{loads} load when narrow; {len(small)} of {len(pruned)} are" in page


def of(narrow, wide=0.0, **errors):
    """A record of one pair, pruned."""
    return {
        "pairs": 1,
        "others": "",
        "written": "",
        "found": {"dense": 32},
        "pruned": {"dense": [32, 16]},
        "loaded": {"wide": {"model": wide}, "narrow": {"model": narrow}},
        "compacted": {"model": 1e-8},
        "errors": errors,
    }


@pytest.mark.parametrize(
    ("found", "cell", "is_good"),
    [
        (of(0.0), "same bits", True),
        (of(3e-8), "3e-08", True),
        (of(0.5), "no: off by 5e-01", False),
        (of("ValueError: shapes"), "no", False),
        (of("ValueError: shapes", wide="ValueError: it"), "Keras cannot", True),
        (
            of("FileNotFoundError", **{"wide file": "TypeError: it"}),
            "Keras cannot",
            True,
        ),
    ],
)
def test_what_is_said_of_a_file(found, cell, is_good):
    assert table.loaded(found) == cell
    assert table.good(found) == is_good
