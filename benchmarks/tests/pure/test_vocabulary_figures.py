"""What the pages say of smaller vocabularies is what the cells of the study hold."""

import json
import math

import pytest

from benchmarks.checkpoints import vocabulary
from benchmarks.record import REPOSITORY

RESULTS = REPOSITORY / "benchmarks" / "results"
CELLS = vocabulary.read(vocabulary.FOLDER)
DOMAINS = ("openwebtext", "wikitext2")


def rows(text):
    return [line for line in text.splitlines() if line.startswith(("| the", "| FFNs"))]


def test_the_page_of_all_cells():
    written = (RESULTS / "vocabulary.md").read_text("utf-8")
    assert vocabulary.markdown(CELLS, RESULTS / "checkpoints") == written


def test_the_user_s_page_has_rows_of_it():
    found = rows((REPOSITORY / "docs" / "vocabulary.md").read_text("utf-8"))
    written = (RESULTS / "vocabulary.md").read_text("utf-8")
    assert found and {*found} <= {*rows(written)}


@pytest.mark.parametrize("cell", CELLS, ids=lambda c: f"{c['name']}-{c['size']}")
def test_each_cell(cell):
    """Its parameters are the rows' and the rest; its figures are in the table."""
    [wide] = [c for c in CELLS if c["name"] == cell["name"] and not c["size"]]
    tokens, width = {"smollm2": (49_152, 576), "gemma3": (262_144, 640)}[cell["name"]]
    gone = (tokens - cell["size"]) * width if cell["size"] else 0
    assert cell["parameters"] == wide["parameters"] - gone
    for domain in DOMAINS:  # of the same text
        assert cell[domain]["bytes"] == wide[domain]["bytes"]
    if cell["size"]:
        bits = [cell[d]["bits per byte"] - wide[d]["bits per byte"] for d in DOMAINS]
        told = f"| {bits[0]:+.3f}, {bits[1]:+.3f} |"
        [row] = [
            row
            for row in rows((RESULTS / "vocabulary.md").read_text("utf-8"))
            if f"{cell['size']:,} tokens" in row
            and f"{cell['parameters'] / 1e6:.1f}M" in row
        ]
        assert row.endswith(told)


@pytest.mark.parametrize("name", sorted({cell["name"] for cell in CELLS}))
def test_ffns_of_the_other_study(name):
    """Nats per token of the same tokens, as bits per byte."""
    folder = RESULTS / "checkpoints" / name
    before = json.loads((folder / "1-as_it_is.json").read_text())
    cut = json.loads((folder / "0.67-activation+refit.json").read_text())
    [wide] = [c for c in CELLS if c["name"] == name and not c["size"]]
    per_byte = wide["tokens per byte of the study"]
    bits = [(cut[d] - before[d]) * per_byte[d] / math.log(2) for d in DOMAINS]
    share = f"| FFNs, 67% of the neurons stay | {cut['parameters'] / 1e6:.1f}M "
    written = rows((RESULTS / "vocabulary.md").read_text("utf-8"))
    [row] = [row for row in written if row.startswith(share)]
    assert row.endswith(f"| {bits[0]:+.3f}, {bits[1]:+.3f} |")
