"""The pages of the results, from their recorded cells: nothing is trained."""

import json
import pathlib

from benchmarks.paper import (
    elastic,
    elastic_table,
    family,
    nested,
    optimizers,
    regime,
    rewarm,
    searched,
    shares,
)
from benchmarks.paper.family_plan import MAP_FAMILY
from benchmarks.paper.map.arms import MAP
from benchmarks.paper.map.findings import Findings
from benchmarks.paper.map.rates import Rates
from benchmarks.paper.map.write import write_map
from benchmarks.paper.records import RESULTS, Recorded, RecordedTable
from benchmarks.paper.write import page
from keras_idea.files import write_atomically

#: Scale to the tables of the paper's kind that were carried out at it.
TABLES = {"tiny": (1, 2, 3), "mini": (4, 5, 6, 7, 8, 9, 10, 11, 12)}


def map_findings() -> Findings:
    """What the cells of the map say."""
    cells = Recorded(RESULTS / "map/cells")
    facts = json.loads((RESULTS / "map/map.json").read_text(encoding="utf-8"))
    return Findings(MAP, cells, Rates(MAP, cells), facts["text bytes"])


def table(number: int) -> RecordedTable:
    """A recorded table of the paper's kind."""
    [scale] = [scale for scale, numbers in TABLES.items() if number in numbers]
    return RecordedTable(f"{scale}-table-{number}")


def write_studies(folder: pathlib.Path) -> None:
    """Writes the pages of all studies and tables, their numbers and plots.

    Args:
        folder: path of a folder, `RESULTS` or an empty one.
    """
    write_map(folder / "map", map_findings())
    for study in (rewarm, shares):
        name = study.__name__.rpartition(".")[2]
        (folder / name).mkdir(parents=True, exist_ok=True)
        cells = Recorded(RESULTS / name / "cells")
        study.write(folder / name, study.STUDY, cells)
    for study in (regime, optimizers):
        name = study.STUDY.name
        (folder / name).mkdir(parents=True, exist_ok=True)
        cells = Recorded(RESULTS / name / "cells")
        searched.write(folder / name, study.STUDY, cells, study.to_markdown)
    for study in (family, nested):
        name = study.__name__.rpartition(".")[2]
        (folder / name).mkdir(parents=True, exist_ok=True)
        cells = (RESULTS / name / "cells.json").read_text(encoding="utf-8")
        study.write(folder / name, MAP_FAMILY, json.loads(cells))
    path = RESULTS / "elastic/cells.json"
    if path.exists():
        (folder / "elastic").mkdir(parents=True, exist_ok=True)
        cells = json.loads(path.read_text(encoding="utf-8"))
        rates = elastic.chosen(cells, MAP_FAMILY)
        elastic_table.write(folder / "elastic", MAP_FAMILY, cells, rates)
    for number in (number for numbers in TABLES.values() for number in numbers):
        recorded = table(number)
        facts, rows = recorded.facts, list(recorded.rows.values())
        text = page(number, facts["title"], rows, facts["notes"])
        write_atomically(folder / f"{recorded.path.stem}.md", text)
