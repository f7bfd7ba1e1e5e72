"""What follows the training of a run: bounded, told, and left out if that is asked."""

import json
import time

import keras
import numpy as np
import pytest

from keras_idea.lm.cli import main
from keras_idea.lm.report.run_record import read_run
from keras_idea.lm.runs.config import parse_config
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.run_folder import RunFolder
from keras_idea.lm.runs.train import measuring, time_limit, timing
from keras_idea.lm.runs.train.fitting import recorder_of
from keras_idea.lm.runs.train.prepare import prepare
from keras_idea.lm.runs.train.recorder import LossUnits, Recorder
from keras_idea.lm.runs.train.run import NARROW, SCRATCH, WIDE
from keras_idea.lm.runs.train.time_limit import TimeLimit
from tests.support.tiny_run import ALONE, ONE_LAYER, curve, write_inputs

PROMPT = np.array([1, 2, 3])


@pytest.fixture
def clock(monkeypatch):
    """A time that only sleeping takes: no other program on the machine does."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))


class Slow:
    """A model of which each pass takes as long as it is told."""

    def __init__(self, seconds):
        self.seconds, self.passes = seconds, 0

    def predict_on_batch(self, ids):
        time.sleep(self.seconds)
        self.passes += 1
        return np.zeros((*ids.shape, 7))


@pytest.mark.usefixtures("clock")
class TestGenerationSpeeds:
    def measured(self, seconds, limit):
        models = {WIDE: Slow(seconds), NARROW: Slow(seconds)}
        start = time.perf_counter()
        found = timing.generation_speeds(models, PROMPT, 8, TimeLimit(limit))
        return found, time.perf_counter() - start, models[WIDE].passes

    def test_a_short_try_tells_that_no_more_is_in_time(self):
        # A first round of 4 tokens takes 0.4 s, and the same again; 24 would take 2.4.
        found, took, passes = self.measured(0.05, 1.5)
        assert took < 1.5 and passes == 8
        assert found.brief == "1 round of 1 text of 4 tokens"
        assert found.values[WIDE] == pytest.approx(1 / 0.05)
        # And if not even that can be had twice, there is no figure.
        found, took, passes = self.measured(0.05, 0.6)
        assert took < 0.6 and passes == 4 and found.values == {}

    def test_one_model_tells_that_there_is_no_time_for_the_other(self):
        found, took, passes = self.measured(0.1, 0.6)
        assert took < 0.6 and passes == 4 and found.values == {}

    def test_as_much_as_is_in_time(self):
        found, took, _ = self.measured(0.01, 3.0)
        assert took < 3.0 and found.brief == "1 round of 1 text of 24 tokens"
        found, _, passes = self.measured(1e-3, 30.0)
        assert found.brief == "" and passes == 2 * 4 + 4 * 24 + 4 * 24
        assert set(found.values) == {WIDE, NARROW}


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """A run of 4 wide steps, 3 of pruning and 5 narrow ones, before its first."""
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    return prepare(parse_config(ONE_LAYER, "tiny"), RunFolder("runs/tiny"))


def test_step_times_are_those_of_the_run(prepared, monkeypatch):
    """With its method and its teacher; the wide model's steps are those that prune."""
    monkeypatch.setattr(time_limit, "LEAST", 1e-9)  # nothing is generated
    times = {NARROW: [9.0] * 4 + [3, 5, 4] + [2, 1, 1, 1, 7], SCRATCH: [6.0] * 12}
    for name, seconds in times.items():
        recorder = recorder_of(prepared, name, prepared.timeline.wide)
        # As after a kill: what was recorded before it counts.
        state = recorder.get_state()
        recorder.set_state({**state, "step_seconds": np.array(seconds, float)})
    narrow = prepared.models.plain(prepared.models.at_end)
    rows = measuring.measure(prepared, narrow, "the ").rows
    found = {name: row.step_ms for name, row in rows.items()}
    assert found == {WIDE: 4000, NARROW: 1000, SCRATCH: 6000}


class Sleeping(keras.layers.Layer):
    """Each pass takes a second."""

    def call(self, x):
        time.sleep(1.0)
        return x


@pytest.mark.usefixtures("clock")
@pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="a traced pass does not sleep"
)
def test_a_step_of_several_parts_is_timed_whole(prepared):
    """And no validation with it."""
    model = keras.Sequential([keras.Input((1,)), Sleeping(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    recorder = Recorder(NARROW, Sizes(1), lambda step: step, LossUnits())
    recorder.micro_batches = 2
    data = np.ones((8, 1)), np.ones((8, 1))
    time_of_all = {"epochs": 2, "batch_size": 2, "validation_data": data}
    model.fit(*data, verbose=0, callbacks=[recorder], **time_of_all)
    assert recorder.step == 4 and recorder.step_ms() == recorder.step_ms(3) == 2000
    assert recorder.step_ms(4) is None


def test_the_limit_is_a_tenth_of_the_training_or_30_seconds():
    class Trained:
        def __init__(self, seconds):
            self.seconds = seconds

    def of(*seconds):
        return time_limit.time_limit([Trained(s) for s in seconds]).seconds

    assert of() == of(0.0) == of(200.0, 99.0) == 30.0
    assert of(300.0, 500.0) == pytest.approx(80.0)


class Stopped(BaseException):
    """What ends a process, in its place."""


WITHOUT = ALONE.replace("num_layers = 2", "num_layers = 1") + "measure = false\n"


def test_a_run_without_measuring(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path, WITHOUT)
    assert main(["train", "tiny.toml"]) == 0
    assert "Measuring" not in capsys.readouterr().out
    told = json.loads((tmp_path / "runs/tiny/table.json").read_text())
    assert "speeds" not in told and len(told["rows"]) == 2
    model = keras.models.load_model(tmp_path / "runs/tiny/narrow.keras")
    wide, pruned = told["rows"]
    assert pruned["parameters"] == model.count_params()
    assert wide["parameters"] - pruned["parameters"] == 3 * 16 * (32 - 8)
    for row in told["rows"]:
        assert row["step_ms"] is row["generation_speed"] is None
        assert row["bits_per_byte"] > 0 and row["perplexity_per_token"] > 1
    table = (tmp_path / "runs/tiny/table.md").read_text()
    assert table.count("|       - |") == 2
    assert main(["report", "runs/tiny"]) == 0
    assert read_run("runs/tiny").rows[1].step_ms is None
    assert "<td>-</td>" in (tmp_path / "report.html").read_text()


def test_what_is_left_out_is_told(tmp_path, monkeypatch, capsys):
    """With no time at all; where the model lies is said before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time_limit, "LEAST", 1e-9)
    monkeypatch.setattr(time_limit, "SHARE", 1e-9)
    write_inputs(tmp_path, ONE_LAYER + "compare_from_scratch = false\n")
    assert main(["train", "tiny.toml"]) == 0
    out = capsys.readouterr().out
    line = "Generation speed: left out, there was no time for it."
    table = (tmp_path / "runs/tiny/table.md").read_text()
    told = json.loads((tmp_path / "runs/tiny/table.json").read_text())
    assert told["speeds"] == line and line in out and line in table
    # The time of a step needs no more time: it is that of the run.
    assert [row["step_ms"] > 0 for row in told["rows"]] == [True, True]
    saved = out.index("The narrow model is saved: runs/tiny/narrow.keras. Load it with")
    assert saved < out.index("Measuring generation speed: at most 0 s")
    # The text ends where the time does, and says so.
    assert "It ends after 0 tokens: there was no time for more." in out
    assert (tmp_path / "runs/tiny/sample.txt").read_text() == "the "


def test_killed_while_it_measures(tmp_path, monkeypatch, capsys):
    """The trained model stays, and the run ends, also if it measures no longer."""
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path, WITHOUT.replace("measure = false\n", ""))

    def stop(*arguments):
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(measuring, "generation_speeds", stop)
        with pytest.raises(Stopped):
            main(["train", "tiny.toml"])
    run = tmp_path / "runs/tiny"
    assert "The narrow model is saved" in capsys.readouterr().out
    before = keras.models.load_model(run / "narrow.keras").get_weights()
    learned = curve(run)["bits_per_byte"]
    fewer = WITHOUT.replace("tokens = 20", "tokens = 2")
    (tmp_path / "tiny.toml").write_text(fewer)
    assert main(["train", "tiny.toml"]) == 0
    out = capsys.readouterr().out
    assert "Resuming at step 12 of 12" in out and "Epoch" not in out
    for one, other in zip(
        before, keras.models.load_model(run / "narrow.keras").get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(curve(run)["bits_per_byte"], learned)
    assert not (run / "checkpoints").exists() and (run / "sample.txt").exists()
