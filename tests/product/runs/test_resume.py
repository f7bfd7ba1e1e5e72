"""`keras-idea train`, killed again and again, ends where it would have ended."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from keras_idea.lm.cli import main
from keras_idea.lm.runs import run_folder
from keras_idea.lm.runs.config import load_config
from keras_idea.schedules import CosineDecay
from tests import ENDURANCE
from tests.support import ROOT
from tests.support.text_files import jsonl, zst
from tests.support.tiny_run import ALONE, CONFIG, curve, write_inputs

RUN = CONFIG.replace("steps = 4\nprune_steps = 3", "steps = 8\nprune_steps = 8")
RUN = RUN.replace("recover_steps = 5", "recover_steps = 84")
RUN = RUN.replace("validate_every = 4", "validate_every = 2")
# The same from documents: 129 windows of 16 tokens, so some three epochs of them.
CORPUS_RUN = RUN.replace(
    '[data]\ntext = "text.txt"\n', '[corpus]\npaths = "documents"\n\n[data]\n'
)
DOCUMENTS = [f"{i * 87_178_291_199 % 10**11:011} is it. " * 2 for i in range(64)]
STEPS, BATCH_SIZE = 100, 4
BEFORE_COMPACTION = "*-step-00000014-*"  # pruning ends with step 16
ON_JAX = keras.backend.backend() == "jax"
KILLS = (20 if ON_JAX else 4) if ENDURANCE else (3 if ON_JAX else 2)


class Process:
    """The command, as a user starts it, in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder
        self._output = open(folder / "log.txt", "a")
        settings = {
            "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            # The package under test, whatever is installed.
            "PYTHONPATH": str(ROOT),
        }
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.logged_train",
                "train",
                "tiny.toml",
            ],
            cwd=folder,
            env={**os.environ, **settings},
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def wait_until(self, happened):
        """Watches it closely; False if it ended before."""
        while self.process.poll() is None:
            if happened():
                return True
            time.sleep(0.001)
        return False

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._output.close()

    def end(self):
        status = self.process.wait()
        self._output.close()
        return status

    def checkpoints(self):
        return {
            path for path in self.folder.glob("runs/tiny/checkpoints/*/checkpoint-*")
        }


def kill_at(moment, process, rng):
    """Kills at one kind of moment; False if the run had ended before."""
    before = process.checkpoints()
    if moment == "about the compaction":
        folder = process.folder / "runs/tiny/checkpoints/pruned"
        reached = process.wait_until(lambda: [*folder.glob(BEFORE_COMPACTION)])
        window = 0.3
    elif moment == "about a checkpoint":
        reached = process.wait_until(lambda: process.checkpoints() - before)
        window = 0.1
    else:
        reached, window = True, 4.0
    time.sleep(rng.uniform(0.0, window))
    process.kill()
    return reached


SOME = ["about a checkpoint", "about a checkpoint", "at any time"]
FEW = ["about a checkpoint", "about the compaction", "at any time", SOME[0]]
MANY = [*SOME * 2, *["about the compaction"] * 2, *SOME * 4]
MOMENTS = (MANY if ENDURANCE else FEW)[:KILLS]


def batches_of(folder):
    """For each training and step, the rows it was given by each process."""
    batches = {}
    for line in (folder / "batches.jsonl").read_text().splitlines():
        training, step, rows = json.loads(line)
        batches.setdefault((training, step), []).append(rows)
    return batches


def check_samples(straight, killed):
    """Each window once an epoch, and after a kill the same ones at each step."""
    expected, found = batches_of(straight), batches_of(killed)
    assert all(len(given) == 1 for given in expected.values())
    first, second = (
        [row for step in range(STEPS) for row in expected[training, step][0]]
        for training in (0, 1)
    )
    assert first == second and len(first) == STEPS * BATCH_SIZE
    windows = len(set(first))
    for epoch in range(STEPS * BATCH_SIZE // windows):
        seen = first[epoch * windows : (epoch + 1) * windows]
        assert len(set(seen)) == windows
    for key in itertools.product((0, 1), range(STEPS)):
        assert found[key] == expected[key] * len(found[key]), key
    # What was lost with a kill was given again.
    assert any(len(given) > 1 for given in found.values())


def narrow_weights(folder):
    model = keras.models.load_model(folder / "runs" / "tiny" / "narrow.keras")
    return model.get_weights()


def test_killed_at_random_moments(tmp_path):
    rng = random.Random(0)
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    for folder in (straight, killed):
        (folder / "documents").mkdir(parents=True)
        (folder / "documents" / "a.jsonl.zst").write_bytes(zst(jsonl(DOCUMENTS)))
        (folder / "tiny.toml").write_text(CORPUS_RUN)
    assert Process(straight).end() == 0, (straight / "log.txt").read_text()
    for moment in MOMENTS:
        assert kill_at(moment, Process(killed), rng), f"ended before: {moment}"
    assert Process(killed).end() == 0, (killed / "log.txt").read_text()

    check_samples(straight, killed)
    texts = [
        (f / "runs" / "tiny" / "metrics.csv").read_text() for f in (straight, killed)
    ]
    pairs = zip(*map(narrow_weights, (straight, killed)), strict=True)
    if ON_JAX:
        assert texts[0] == texts[1]
        for expected, found in pairs:
            np.testing.assert_array_equal(found, expected)
    else:
        for expected, found in pairs:
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert not (killed / "runs" / "tiny" / "checkpoints").exists()


class Stopped(BaseException):
    """What ends a process, in its place."""


def train_until(epoch, *options):
    """The command in a process that is killed right before an epoch's checkpoint."""

    def stop(callback, number, logs=None):
        if number == epoch:
            raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_idea.lm.runs.train.recorder.ShortBar.on_epoch_end", stop)
        with pytest.raises(Stopped):
            main(["train", "tiny.toml", *options])


@pytest.fixture
def unfinished(tmp_path, monkeypatch):
    """The folder of a run whose process stopped in the middle of pruning."""
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path, RUN)
    train_until(2)
    return tmp_path


def saved_steps(folder):
    """Of the checkpoints of the pruned model, in the order of writing."""
    places = sorted((folder / "runs/tiny/checkpoints/pruned").glob("checkpoint-*"))
    return [int(path.name.split("-")[3]) for path in places]


class TestOverwrite:
    """The same command resumes a run, whatever it is, also one that is queued again."""

    def test_the_same_run_resumes(self, unfinished, capsys):
        assert saved_steps(unfinished) == [2, 4]
        for epoch in (3, 4):
            train_until(epoch, "--overwrite")
            out = capsys.readouterr().out
            assert f"Resuming at step {2 * epoch - 2} of 100" in out
            assert "The run in runs/tiny is unfinished, so it resumes: --over" in out
        assert saved_steps(unfinished) == [6, 8]

    @pytest.mark.parametrize("changed", ["the config", "the text", "the config's text"])
    def test_another_run_is_replaced(self, unfinished, capsys, changed):
        run = unfinished / "runs/tiny"
        if changed == "the config":
            config = RUN.replace("warmup_steps = 2", "warmup_steps = 3")
            (unfinished / "tiny.toml").write_text(config)
        elif changed == "the text":
            text = (unfinished / "text.txt").read_text()
            (unfinished / "text.txt").write_text(text.replace("quick", "quiet"))
        else:
            (run / "config.toml").write_text("[run")
        train_until(0, "--overwrite")
        out = capsys.readouterr().out
        assert "Resuming" not in out and "No checkpoint" not in out
        assert saved_steps(unfinished) == [] and load_config(run / "config.toml")
        train_until(1, "--overwrite")
        assert "No checkpoint yet in runs/tiny" in capsys.readouterr().out
        assert saved_steps(unfinished) == [2]

    def test_its_deletion_may_be_killed(self, unfinished, monkeypatch, capsys):
        """At any moment of it: the same command then does as it was told."""
        changed = RUN.replace("warmup_steps = 2", "warmup_steps = 3")
        (unfinished / "tiny.toml").write_text(changed)
        run = unfinished / "runs/tiny"
        for name in ("sample.txt", "table.md"):  # as of a finished run
            (run / name).write_text(name)
        remove, left = run_folder._remove, 0

        def kill(entry):
            if len(list(run.glob("[!.]*"))) == left:
                raise Stopped
            remove(entry)

        for left in (5, 4, 3, 2):
            with monkeypatch.context() as patch:
                patch.setattr(run_folder, "_remove", kill)
                with pytest.raises(Stopped):
                    main(["train", "tiny.toml", "--overwrite"])
            assert (run / "sample.txt").exists() == (left == 5)
            assert "warmup_steps = 2" in (run / "config.toml").read_text()
            capsys.readouterr()
        train_until(1, "--overwrite")
        assert saved_steps(unfinished) == [2]
        assert "Resuming" not in capsys.readouterr().out
        assert "warmup_steps = 3" in (run / "config.toml").read_text()


PARTS = "gradient_accumulation_steps = 2\n"
# Twelve steps: four wide, three of pruning, five of recovery.
SHORT = ALONE + "measure = false\n"


def trained(folder, monkeypatch, config, *options):
    """The command carried out in a folder; its status."""
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    write_inputs(folder, config)
    return main(["train", "tiny.toml", *options])


def stopped_in(folder, monkeypatch, config, epoch, *options):
    """The same, killed right before an epoch's checkpoint."""
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    write_inputs(folder, config)
    train_until(epoch, *options)


def test_a_step_in_two_parts_is_the_same_step(tmp_path, monkeypatch, capsys):
    """Resumed so in the middle, a run ends as one that was computed whole.

    Rates and widths are equal. The sum over a batch has another order, so losses and
    weights differ by rounding: of three seeds on torch by 1.4e-6 of a loss (of which
    the file keeps six digits) and by 1.2e-7 of weights.
    """
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert trained(whole, monkeypatch, SHORT) == 0
    stopped_in(parts, monkeypatch, SHORT, 1)
    capsys.readouterr()
    split = SHORT.replace("[optimizer]\n", "[optimizer]\n" + PARTS)
    if keras.backend.backend() == "tensorflow":  # which cannot: it says so
        assert trained(parts, monkeypatch, split) == 2
        assert "cannot be used on tensorflow" in capsys.readouterr().err
        return
    assert trained(parts, monkeypatch, split) == 0
    assert "Resuming at step 4 of 12" in capsys.readouterr().out
    assert load_config(parts / "runs/tiny/config.toml").micro_batches == 2
    expected, found = curve(whole / "runs/tiny"), curve(parts / "runs/tiny")
    for name in ("learning_rate", "width"):
        np.testing.assert_array_equal(found[name], expected[name])
    for name in ("bits_per_byte", "validation"):
        np.testing.assert_allclose(found[name], expected[name], rtol=5e-6)
    for one, other in zip(*map(narrow_weights, (parts, whole)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def test_what_no_result_depends_on_may_change(tmp_path, monkeypatch, capsys):
    """A run that resumes so ends with the same bits."""
    straight, changed = tmp_path / "straight", tmp_path / "changed"
    assert trained(straight, monkeypatch, SHORT) == 0
    stopped_in(changed, monkeypatch, SHORT, 1)
    keys = "keep_checkpoints = 5\nrematerialize = true\ntensorboard = true\n"
    assert trained(changed, monkeypatch, SHORT + keys) == 0
    assert "Resuming at step 4 of 12" in capsys.readouterr().out
    assert (changed / "runs/tiny/tensorboard").is_dir()
    for one, other in zip(*map(narrow_weights, (changed, straight)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_other_rows_a_step_are_refused(unfinished, capsys):
    changed = RUN.replace("batch_size = 4", "batch_size = 2")
    changed = changed.replace("[optimizer]\n", "[optimizer]\n" + PARTS)
    (unfinished / "tiny.toml").write_text(changed)
    assert main(["train", "tiny.toml"]) == 2
    message = capsys.readouterr().err
    assert "data.batch_size was 4 there and is 2. It counts the sequences" in message
    assert "raise `optimizer.gradient_accumulation_steps`" in message


class TestExtended:
    """`--extend-steps`: the planned steps are the same, then more of the last rate."""

    def test_the_planned_steps_and_more(self, tmp_path, monkeypatch, capsys):
        planned, whole, longer = (tmp_path / name for name in ("a", "b", "c"))
        assert trained(planned, monkeypatch, SHORT) == 0
        told = SHORT.replace("[budget]\n", "[budget]\nextend_steps = 8\n")
        assert trained(whole, monkeypatch, told) == 0
        stopped_in(longer, monkeypatch, SHORT, 1)
        capsys.readouterr()
        stopped_in(longer, monkeypatch, SHORT, 3, "--extend-steps", "8")
        out = capsys.readouterr().out
        assert "Extended by 8 steps, from 12 to 20" in out
        assert "Resuming at step 4 of 20" in out
        run = longer / "runs/tiny"
        assert load_config(run / "config.toml").budget.extend_steps == 8
        # Fewer than before; then without the option, which the folder tells.
        assert trained(longer, monkeypatch, SHORT, "--extend-steps", "4") == 2
        assert "was extended by 8 steps before" in capsys.readouterr().err
        assert trained(longer, monkeypatch, SHORT) == 0
        assert "Resuming at step 12 of 20" in capsys.readouterr().out
        before, found, straight = map(
            curve, (planned / "runs/tiny", run, whole / "runs/tiny")
        )
        for name, values in before.items():
            np.testing.assert_array_equal(found[name][:12], values)
            np.testing.assert_array_equal(found[name], straight[name])
        assert found["learning_rate"].shape == (20,)
        rate = CosineDecay(3e-3, 3e-5, 12, 2)(12)
        np.testing.assert_allclose(found["learning_rate"][12:], rate, rtol=1e-5)
        assert set(found["width"][7:]) == {8}
        for one, other in zip(*map(narrow_weights, (longer, whole)), strict=True):
            np.testing.assert_array_equal(one, other)
        assert main(["status", "runs/tiny"]) == 0
        assert "20 of 20" in capsys.readouterr().out
        # A finished run has nothing left to go on from.
        assert trained(longer, monkeypatch, SHORT, "--extend-steps", "12") == 2
        assert (
            "holds none: a finished run has no checkpoints" in capsys.readouterr().err
        )

    @pytest.mark.parametrize(
        "options, message",
        [
            (["--extend-steps", "3"], "must be a multiple of run.validate_every=2"),
            (["--extend-steps", "0"], "`--extend-steps` must be an integer >= 1"),
            (["--extend-steps", "2", "--overwrite"], "Leave one of them out"),
            (["--extend-steps", "2", "--output", "other"], "'other' holds none"),
        ],
    )
    def test_refused(self, unfinished, options, message, capsys):
        before = sorted(unfinished.rglob("*"))
        assert main(["train", "tiny.toml", *options]) == 2
        assert message in capsys.readouterr().err
        assert sorted(unfinished.rglob("*")) == before

    def test_longer_by_another_key_is_refused(self, unfinished, capsys):
        changed = RUN.replace("recover_steps = 84", "recover_steps = 94")
        (unfinished / "tiny.toml").write_text(changed)
        assert main(["train", "tiny.toml"]) == 2
        assert "give --extend-steps N" in capsys.readouterr().err


def test_killed_before_the_first_checkpoint(tmp_path, monkeypatch, capsys):
    """That it starts again is said, once; a resumed run says where it resumes."""
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path, CONFIG)

    def stop_at(step):
        def stop(callback, batch, logs=None):
            if int(callback.model.optimizer.iterations) >= step:
                raise Stopped

        with monkeypatch.context() as patch:
            bar = "keras_idea.lm.runs.train.recorder.ShortBar.on_train_batch_end"
            patch.setattr(bar, stop)
            with pytest.raises(Stopped):
                main(["train", "tiny.toml"])
        return capsys.readouterr().out

    told = "No checkpoint yet in runs/tiny: starting at step 0"
    assert told not in stop_at(3)
    out = stop_at(6)  # checkpoints are each fourth step
    assert out.count(told) == 1 and "Resuming" not in out
    out = stop_at(7)
    assert "Resuming at step 4 of 12" in out and "No checkpoint" not in out


def test_another_config_is_refused(unfinished, capsys):
    changed = RUN.replace("warmup_steps = 2", "warmup_steps = 3")
    (unfinished / "tiny.toml").write_text(changed)
    assert main(["train", "tiny.toml"]) == 2
    message = capsys.readouterr().err
    assert "holds an unfinished run of another config" in message
    assert "optimizer.warmup_steps was 2 there and is 3" in message
    assert "--overwrite deletes that run's checkpoints" in message


def test_another_text_is_refused(unfinished, capsys):
    text = unfinished / "text.txt"
    text.write_text(text.read_text().replace("quick", "quiet"))
    assert main(["train", "tiny.toml"]) == 2
    assert "are of another run: text was" in capsys.readouterr().err
