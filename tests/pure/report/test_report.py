"""The picture is drawn and says what it should; the tables' numbers are right."""

import csv
import dataclasses
import io
import json
import sys

import numpy as np
import pytest
import rich.console
from matplotlib.figure import Figure
from matplotlib.image import imread

from keras_idea.callbacks.monitor.neuron_lives import rank_levels
from keras_idea.lm.report.curves import metrics_csv
from keras_idea.lm.report.picture import _draw_loss, draw_run
from keras_idea.lm.report.table import print_table, to_json, to_markdown
from keras_idea.plot import COLORS
from keras_idea.report import NeuronLives, ResultRow, TrainingCurve

STEPS = 120
STAGES = [("wide", 0, 60), ("pruning", 60, 90), ("recovery", 90, 120)]
RATE = np.array([0x5F, 0x3D, 0xC4]) / 255
ROWS = [
    ResultRow("narrow from scratch", 1_234_567, 3.0, 12.345, 1234.5, 33.9),
    ResultRow("narrow", 999, 2.5),
]


def curve(name, floor):
    steps = np.arange(1, STEPS + 1)
    return TrainingCurve(
        name,
        steps,
        loss=floor + 4.0 * np.exp(-steps / 20),
        learning_rate=np.linspace(1e-3, 0.0, STEPS),
        width=np.where(steps < 75, 64, 24),
        validation={60: floor + 0.5, 120: floor + 0.1},
        perplexity={60: 33.9, 120: 22.5},
    )


def lives(name, hidden_dim=64, kept=24):
    """Neurons that die one after another, the lowest index first."""
    steps = np.arange(5, 91, 5)
    importance = np.tile(np.arange(hidden_dim, dtype="float64"), (len(steps), 1))
    dead = np.linspace(0, hidden_dim - kept, len(steps)).astype(int)
    importance[np.arange(hidden_dim) < dead[:, None]] = np.nan
    return NeuronLives(name, steps, rank_levels(importance))


def draw(path, curves=None, neurons=None, **kwargs):
    curves = curves or [curve("pruned", 2.0), curve("from scratch", 2.2)]
    neurons = neurons or [lives("block_0/ffn"), lives("block_1/ffn")]
    draw_run(path, curves, neurons, STAGES, **kwargs)
    return imread(path)


class TestPicture:
    def test_is_drawn(self, tmp_path):
        pixels = draw(tmp_path / "run.png", compaction_steps=(90,), title="A run")
        height, width = pixels.shape[:2]
        assert width == 1200 and 1000 <= height <= 2000
        # Every quarter (roughly a panel) has ink of several colours.
        for part in np.array_split(pixels[..., :3], 4):
            colors = np.unique(part.reshape(-1, 3).round(1), axis=0)
            assert len(colors) > 5

    def test_without_readings(self, tmp_path):
        """Of a method that decides before the first step nobody ranks anything."""
        assert draw(tmp_path / "run.png", neurons=[]).shape[1] == 1200

    def test_shows_the_neurons(self, tmp_path):
        few = draw(tmp_path / "few.png", neurons=[lives("ffn", kept=8)])
        many = draw(tmp_path / "many.png", neurons=[lives("ffn", kept=56)])

        def dead_share(pixels):
            grey = np.abs(pixels[..., :3] - np.array([236, 238, 240]) / 255) < 0.01
            return grey.all(axis=-1).mean()

        assert dead_share(few) > 2 * dead_share(many) > 0

    def test_every_run_has_a_curve_of_its_color(self, tmp_path):
        """Three: one without pruning and one from scratch beside the pruned."""
        purple = np.array([0x9C, 0x36, 0xB5]) / 255

        def drawn(*names):
            curves = [curve(name, 2.0 + 0.2 * i) for i, name in enumerate(names)]
            pixels = draw(tmp_path / "run.png", curves)[..., :3]
            return (np.abs(pixels - purple) < 0.01).all(axis=-1).sum()

        assert drawn("pruned", "wide") == 0
        assert drawn("pruned", "wide", "from scratch") > 100

    def test_marks_the_compaction(self, tmp_path):
        without = draw(tmp_path / "without.png")
        marked = draw(tmp_path / "with.png", compaction_steps=(90,))
        assert without.shape == marked.shape and (without != marked).any()
        several = draw(tmp_path / "several.png", compaction_steps=(63, 66, 90))
        assert several.shape == marked.shape

        def dark(pixels):
            return (pixels[..., :3] < 0.3).all(axis=-1).sum()

        assert dark(several) > dark(marked) > dark(without)

    def test_another_learning_rate_is_drawn_too(self, tmp_path):
        one, other = curve("pruned", 2.0), curve("from scratch", 2.2)
        half = dataclasses.replace(other, learning_rate=other.learning_rate / 2)
        same = draw(tmp_path / "same.png", curves=[one, other])
        both = draw(tmp_path / "both.png", curves=[one, half])

        def violet(pixels):
            return (np.abs(pixels[..., :3] - RATE) < 0.05).all(axis=-1).sum()

        assert violet(both) > 1.2 * violet(same) > 0

    def test_teacher_and_wide_model_are_named(self, tmp_path, monkeypatch):
        """The steps of the wide model are not those of a pruned one."""
        figures, save = [], Figure.savefig

        def keep(figure, *args, **kwargs):
            figures.append(figure)
            save(figure, *args, **kwargs)

        monkeypatch.setattr(Figure, "savefig", keep)
        names = ("pruned", "pruned, no teacher", "narrow from scratch")
        draw(tmp_path / "run.png", [curve(n, 2.0) for n in names], teacher=1.5)
        loss = figures[-1].axes[2]
        lines = {line.get_label(): line for line in loss.get_lines()}
        assert "pruned: train" not in lines and "teacher: 1.500" in lines
        for name in ("wide, then pruned", "wide, then pruned, no teacher", names[2]):
            assert f"{name}: train" in lines
        assert [1.5, 1.5] in [list(line.get_ydata()) for line in loss.get_lines()]
        low, high = loss.get_ylim()
        assert low < 1.5 < high

    def test_many_wide_layers(self, tmp_path):
        neurons = [lives(f"ffn_{i}", hidden_dim=1000, kept=400) for i in range(24)]
        assert draw(tmp_path / "run.png", neurons=neurons).shape[1] == 1200

    def test_shortest_run(self, tmp_path):
        one = TrainingCurve(
            "pruned",
            np.array([1, 2]),
            np.array([8.0, 7.9]),
            np.zeros(2),
            np.array([4, 2]),
            {},
        )
        alive = np.array([[1.0, 2.0, 3.0, 4.0], [np.nan, np.nan, 3.0, 4.0]])
        neurons = [NeuronLives("ffn", np.array([1, 2]), rank_levels(alive))]
        stages = [("wide", 0, 1), ("pruning", 1, 2)]
        draw_run(tmp_path / "run.png", [one], neurons, stages)
        assert imread(tmp_path / "run.png").std() > 0.01

    def test_leaves_pyplot_alone(self, tmp_path):
        pyplot = pytest.importorskip("matplotlib.pyplot")
        before = pyplot.get_fignums()
        draw(tmp_path / "run.png")
        assert pyplot.get_fignums() == before


class TestNeuronLives:
    def test_death_step(self):
        importance = np.array([[1.0, 2.0, 3.0], [np.nan, 2.0, 3.0], [np.nan] * 2 + [3]])
        lives = NeuronLives("ffn", np.array([10, 20, 30]), rank_levels(importance))
        np.testing.assert_array_equal(lives.death_step, [20, 30, np.inf])

    def test_sorted_by_death_and_then_by_rank(self):
        levels = np.array([[9, 200, 100, 50], [0, 255, 1, 0], [0, 255, 1, 0]], "uint8")
        lives = NeuronLives("ffn", np.array([1, 2, 3]), levels)
        np.testing.assert_array_equal(lives.sorted_levels(4)[:, 0], [9, 50, 100, 200])
        np.testing.assert_array_equal(lives.sorted_levels(2)[:, 0], [9, 200])
        assert lives.sorted_levels(8).shape == (8, 3)

    def test_levels_are_ranks_among_the_living(self):
        importance = np.array([[3.0, np.nan, np.inf, -1.0], [np.nan, 0.0, 0.0, np.nan]])
        expected = [[128, 0, 255, 1], [0, 1, 255, 0]]
        np.testing.assert_array_equal(rank_levels(importance), expected)
        assert rank_levels(np.array([5.0])).tolist() == [1]


class TestMetrics:
    def test_lines(self):
        curves = [curve("pruned", 2.0), curve("from scratch", 2.2)]
        lines = list(csv.DictReader(io.StringIO(metrics_csv(curves))))
        assert len(lines) == 2 * STEPS
        line = lines[STEPS + 59]
        assert line["run"] == "from scratch" and line["step"] == "60"
        assert float(line["learning_rate"]) == pytest.approx(
            curves[1].learning_rate[59], rel=1e-5
        )
        assert int(line["width"]) == 64 and float(line["validation"]) == 2.7
        assert float(line["bits_per_byte"]) == pytest.approx(
            curves[1].loss[59], abs=1e-5
        )
        assert lines[58]["validation"] == ""
        assert line["validation_perplexity_per_token"] == "33.9"
        assert lines[58]["validation_perplexity_per_token"] == ""


class TestTable:
    def test_markdown(self):
        *lines, blank, legend = to_markdown(ROWS).splitlines()
        assert blank == "" and legend.startswith(
            "Bits per byte and perplexity per token"
        )
        assert len({len(line) for line in lines}) == 1
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
        assert cells[0][0] == "model" and set(cells[1][1]) == {"-", ":"}
        assert cells[2] == [
            "narrow from scratch",
            "1,234,567",
            "3.000",
            "33.90",
            "12.3",
            "1,234",
        ]
        assert cells[3] == ["narrow", "999", "2.500", "-", "-", "-"]

    def test_json(self):
        record = json.loads(to_json(ROWS, {"backend": "jax"}))
        assert record["backend"] == "jax"
        assert record["rows"][0] == {
            "name": "narrow from scratch",
            "parameters": 1234567,
            "bits_per_byte": 3.0,
            "step_ms": 12.345,
            "generation_speed": 1234.5,
            "perplexity_per_token": 33.9,
        }
        assert record["rows"][1]["step_ms"] is None

    def test_terminal(self):
        text = io.StringIO()
        # The width of a log file: whole words in every cell.
        print_table(ROWS, rich.console.Console(file=text, width=80))
        for cell in ("parameters", "perplexity", "1,234,567", "12.3", "narrow"):
            assert cell in text.getvalue()
        assert "held-out text" in text.getvalue()
        assert "…" not in text.getvalue()


def test_a_table_without_rich_names_the_extra(monkeypatch):
    for name in ("rich", *(name for name in sys.modules if name.startswith("rich."))):
        monkeypatch.setitem(sys.modules, name, None)
    match = r"needs the package 'rich', .*\"keras-idea\[cli\]\""
    with pytest.raises(ImportError, match=match):
        print_table(ROWS)


def test_held_out_losses_below_all_others_are_shown():
    """Held-out text may be easier than the training text: a checkpoint's, say."""
    steps = np.arange(1, 41)
    validation = {20: 1.23, 40: 1.21}
    loss = 1.3 + np.exp(-steps / 5)
    flat = np.ones(40)
    run = TrainingCurve("pruned", steps, loss, flat, flat, validation)
    axis = Figure().add_subplot()
    _draw_loss(axis, [run], COLORS)
    low, high = axis.get_ylim()
    assert low < min(validation.values()) and high > 1.3
    assert [list(line.get_ydata()) for line in axis.lines][-1] == [1.23, 1.21]
