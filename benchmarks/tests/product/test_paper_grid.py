"""Whole tables at a micro scale: resumed, never run again, written."""

import dataclasses
import functools
import io
import json

import keras
import pytest
import rich.console
from matplotlib.image import imread

from benchmarks.paper import carry_out as module
from benchmarks.paper import run_stage
from benchmarks.paper.__main__ import main
from benchmarks.paper.cell import Cell
from benchmarks.paper.grid import bench_paper
from benchmarks.paper.scale import SCALES
from benchmarks.paper.store import Store
from benchmarks.paper.tables import TABLES
from benchmarks.paper.text import find_text
from keras_idea.errors import TextError
from tests.support.paper_micro import KEYS, MICRO, corpus

# Four steps: enlarged two, pruned one, recovered one.

SCALE = dataclasses.replace(MICRO, total_steps=4, warmup_steps=1)


@pytest.fixture(scope="module", autouse=True)
def eagerly():
    """Nothing is compiled: a few steps do not repay it."""
    with pytest.MonkeyPatch.context() as patch:
        eager = functools.partialmethod(keras.Model.compile, run_eagerly=True)
        patch.setattr(keras.Model, "compile", eager)
        # Models this small need no tidying, which takes a quarter of the time.
        patch.setattr(run_stage.gc, "collect", lambda: 0)
        yield


def bench(folder, numbers=(2,), seeds=1, **kwargs):
    text = io.StringIO()
    console = rich.console.Console(file=text, width=200)
    paths = bench_paper(numbers, SCALE, seeds, folder, corpus(), console=console,
                        **kwargs)  # fmt: skip
    return paths, text.getvalue()


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All tables, one seed, in one folder."""
    folder = tmp_path_factory.mktemp("all")
    bench(folder, tuple(TABLES))
    return folder


@pytest.mark.parametrize("number", TABLES)
def test_every_table_end_to_end(everything, number):
    path = everything / "tables" / f"micro-table-{number}.json"
    table = json.loads(path.read_text())
    assert [row["name"] for row in table["rows"]] == [
        row.name for row in TABLES[number].rows
    ]
    for row in table["rows"]:
        (bits,) = row["values"].values()
        assert 4 < bits < 12 and row["flops"] > 0
        assert (row["difference"] is None) == (row["reference"] is None)
    text = path.with_suffix(".md").read_text()
    assert text.startswith(f"# Table {number}: ") and "The paper: " in text
    for picture in path.parent.glob(f"micro-table-{number}-*.png"):
        assert imread(picture)[..., :3].std() > 0.01
        assert f"({picture.name})" in text
    assert (path.parent / f"micro-table-{number}-differences.png").exists()


def test_results_say_all_that_matters(everything):
    store = Store(everything, SCALE, corpus())
    for table in TABLES.values():
        for row in table.rows:
            result = store.result(row.cell, 0)
            assert set(result) == KEYS
            assert result["cell"] == dataclasses.asdict(row.cell)
            assert result["width"] == SCALE.width(row.cell.target)
            assert result["flops"] <= 1.05 * result["flops_predicted"]
            assert result["steps"] == result["stages"][-1]["last"]
            assert set(result["versions"]) >= {"keras", "numpy", "python"}
            assert {len(column) for column in result["curve"].values()} == {
                result["steps"]
            }
    # Cells of several tables are one file.
    cells = {row.cell for table in TABLES.values() for row in table.rows}
    assert len(list((everything / "cells").iterdir())) == len(cells)


@pytest.fixture
def stages(monkeypatch):
    """The stages that are trained, as they come; raises before number `limit`."""
    trained, run = [], module.run_stage

    def counted(stage, *args):
        if len(trained) == counted.limit:
            raise KeyboardInterrupt
        trained.append(stage)
        return run(stage, *args)

    counted.limit = None
    monkeypatch.setattr(module, "run_stage", counted)
    trained_stages = trained
    return counted, trained_stages


def test_a_killed_grid_goes_on_and_finished_cells_never_run_again(tmp_path, stages):
    counted, trained = stages
    counted.limit = 3
    with pytest.raises(KeyboardInterrupt):
        bench(tmp_path)
    finished = {path.name for path in (tmp_path / "cells").iterdir()}
    assert len(trained) == 3 and 1 <= len(finished) < 6

    counted.limit = None
    (path,), shown = bench(tmp_path)
    # Two enlarged runs and a second stage for each of four pruned models.
    assert len(trained) == 6
    assert shown.count(" bits (") == 6 - len(finished)
    written = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "cells").iterdir()}
    assert len(written) == 6 and finished < set(written)

    trained.clear()
    _, shown = bench(tmp_path)
    assert not trained and " bits (" not in shown
    assert written == {
        p.name: p.stat().st_mtime_ns for p in (tmp_path / "cells").iterdir()
    }

    # More seeds only add.
    _, shown = bench(tmp_path, seeds=2)
    assert len(trained) == 6 and shown.count("seed 1:") == 6
    rows = json.loads(path.with_suffix(".json").read_text())["rows"]
    assert all(list(row["values"]) == ["0", "1"] for row in rows)
    assert rows[2]["difference"]["count"] == 2

    # The other seeds of a folder may come from another process.
    trained.clear()
    bench(tmp_path, seeds=1, first_seed=2)
    rows = json.loads(path.with_suffix(".json").read_text())["rows"]
    assert len(trained) == 6 and list(rows[0]["values"]) == ["0", "1", "2"]
    assert not list(tmp_path.rglob(".*")) and not list(tmp_path.rglob("*.tmp*"))


def test_the_key_holds_everything_a_result_depends_on(tmp_path):
    text = corpus()
    store = Store(tmp_path, SCALE, text)
    store.save_result(Cell(), 0, {"a": 1})
    assert store.result(Cell(), 0) == {"a": 1}
    assert store.result(Cell(), 1) is None
    assert store.result(Cell(ema_decay=0.5), 0) is None
    other = dataclasses.replace(text, train=text.train[1:])
    assert Store(tmp_path, SCALE, other).result(Cell(), 0) is None
    longer = dataclasses.replace(SCALE, total_steps=5)
    assert Store(tmp_path, longer, text).result(Cell(), 0) is None
    renamed = dataclasses.replace(SCALE, note="faster", name="other")
    assert Store(tmp_path, renamed, text).result(Cell(), 0) == {"a": 1}


def test_the_command_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "train.txt").write_bytes(corpus().train.tobytes())
    (tmp_path / "valid.txt").write_bytes(corpus().validation.tobytes())
    scales = {**SCALES, "micro": SCALE}
    monkeypatch.setattr("benchmarks.paper.__main__.SCALES", scales)
    arguments = ["--table", "7", "--scale", "micro", "--seeds", "1"]
    arguments += ["--data", str(tmp_path), "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert "micro-table-7.md" in capsys.readouterr().out
    assert (tmp_path / "out" / "tables" / "micro-table-7.md").exists()
    for change, message in (
        (("--table", "13"), "`table` must be one of 1, 2"),
        (("--scale", "huge"), "`scale` must be one of 'tiny', 'small', 'gpu'"),
        (("--seeds", "0"), "`seeds` must be an integer >= 1"),
        (("--data", str(tmp_path / "out")), "holds no train.txt and valid.txt"),
    ):
        assert main([*arguments, *change]) == 2
        assert message in capsys.readouterr().err


def test_where_the_text_is_found(tmp_path, monkeypatch):
    for name, text in (("train", b"abc" * 50), ("valid", b"xyz" * 50)):
        (tmp_path / "ptb").mkdir(exist_ok=True)
        (tmp_path / "ptb" / f"{name}.txt").write_bytes(text)
    assert bytes(find_text(tmp_path).train[:3]) == b"abc"
    monkeypatch.setenv("KERAS_IDEA_TEXT", str(tmp_path))
    assert bytes(find_text().validation[:3]) == b"xyz"
    with pytest.raises(TextError, match="Name another with --data"):
        find_text(tmp_path / "nowhere")
