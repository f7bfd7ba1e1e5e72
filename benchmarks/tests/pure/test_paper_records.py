"""What earlier versions recorded stays valid: names of cells, operations, tables."""

import dataclasses
import hashlib
import json

import keras
import pytest

from benchmarks.paper.cell import Cell
from benchmarks.paper.flops import stage_flops
from benchmarks.paper.paper_table import SeededRow, to_json, to_markdown
from benchmarks.paper.plan import plan
from benchmarks.paper.scale import SCALES
from benchmarks.paper.store import Store
from benchmarks.paper.tables import TABLES
from benchmarks.paper.write import write_table
from tests.support import ROOT
from tests.support.paper_micro import KEYS, MICRO, corpus

TINY = SCALES["tiny"]
RECORDED = ROOT / "benchmarks" / "results" / "paper"
# Computed by commit b8a7baf, which knew no other: by backend a digest of the file names
# of all 101 rows' cells at tiny and at micro, and the digest of one cell.
NAMES = {
    "jax": ("b4a691613233ee24", "994e085ffb8ece4d", "acfda304efae9b2c"),
    "tensorflow": ("85df44de9b700fd3", "2b0ac52eef49d5aa", "63f7306e6356f2a4"),
    "torch": ("0c2fa61f8023ea8e", "3b0213c21390e756", "4724fca34964af16"),
}


def file_of(store, cell, seed=0):
    """The file of a cell, by its writing."""
    before = set(store.folder.glob("cells/*"))
    store.save_result(cell, seed, {})
    [path] = set(store.folder.glob("cells/*")) - before
    path.unlink()
    return path.name


def test_cells_are_called_as_they_were(tmp_path):
    *digests, one = NAMES[keras.backend.backend()]
    for scale, expected in zip((TINY, MICRO), digests, strict=True):
        store = Store(tmp_path, scale, corpus())
        rows = [row for table in TABLES.values() for row in table.rows]
        names = "\n".join(file_of(store, row.cell) for row in rows)
        assert len(rows) == 101
        digest = hashlib.blake2b(names.encode(), digest_size=8).hexdigest()
        assert digest == expected
    name = file_of(Store(tmp_path, TINY, corpus()), Cell(), seed=3)
    assert name == f"integrated-sensitivity-{one}-s3.json"


def recorded(number):
    scale = "tiny" if number <= 3 else "mini"
    path = RECORDED / f"{scale}-table-{number}.json"
    return json.loads(path.read_text()), path.with_suffix(".md").read_text()


def rows_of(table):
    names = {field.name for field in dataclasses.fields(SeededRow)}
    return [
        SeededRow(
            **{name: row[name] for name in names - {"values"}},
            values={int(seed): bits for seed, bits in row["values"].items()},
        )
        for row in table["rows"]
    ]


@pytest.mark.parametrize("number", TABLES)
def test_recorded_tables_are_read_and_written_again(number):
    table, text = recorded(number)
    title, _, notes = text.partition("\n\nThe paper: ")
    rows = rows_of(table)
    assert to_markdown(table["title"], rows).rstrip() == title
    facts = {name: table[name] for name in ("paper", "scale", "notes")}
    assert json.loads(to_json(table["title"], rows, facts)) == table
    assert table["paper"] == TABLES[number].paper and notes.startswith(table["paper"])
    scale = TINY if number <= 3 else SCALES["mini"]
    assert table["scale"] == scale.identity()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_recorded_operations_are_those_of_the_plan(number):
    """Counted step by step in runs of an earlier version."""
    for row, known in zip(
        TABLES[number].rows, recorded(number)[0]["rows"], strict=True
    ):
        stages = plan(row.cell, TINY)
        assert known["name"] == row.name and known["reference"] == row.reference
        assert known["flops"] == sum(stage_flops(stage, TINY) for stage in stages)
        steps = sum(stage.steps for stage in stages)
        assert known["tokens"] == steps * TINY.tokens_a_step


def test_a_table_of_earlier_cells_is_the_recorded_one(tmp_path):
    """Cells as they were written then, of which the recorded Table 3 was made."""
    table, text = recorded(3)
    store = Store(tmp_path, TINY, corpus())
    versions = text.rpartition("Computed with ")[2].partition(".\n\n")[0]
    data = text.rpartition("Text: ")[2].partition(". Computed")[0]
    for row, known in zip(TABLES[3].rows, rows_of(table), strict=True):
        stages = plan(row.cell, TINY)
        points = {"step": [1, 1500], "loss": [4.0, 2.0]}
        result = {
            "cell": dataclasses.asdict(row.cell),
            "scale": dataclasses.asdict(TINY),
            "width": known.width,
            "steps": 1500,
            "tokens": known.tokens,
            "flops": known.flops,
            "flops_predicted": known.flops,
            "flops_masked": sum(stage_flops(stage, TINY, "off") for stage in stages),
            "flops_cubic": sum(stage_flops(stage, TINY, "cubic") for stage in stages),
            "seconds": known.seconds,
            "cpu_seconds": known.seconds,
            "curve": {**points, "learning_rate": [1e-3, 1e-5], "width": [512, 192]},
            "stages": [{"name": "enlarge", "last": 750}, {"name": "x", "last": 1500}],
            "data": data,
            "backend": "jax",
            "versions": dict(pair.split(" ") for pair in versions.split(", ")),
        }
        for seed, bits in known.values.items():
            store.save_result(
                row.cell, seed, {**result, "seed": seed, "bits_per_byte": bits}
            )
        assert set(store.result(row.cell, 0)) == KEYS
    path = write_table(3, TINY, store)
    assert path.read_text() == text
    assert json.loads(path.with_suffix(".json").read_text()) == table
