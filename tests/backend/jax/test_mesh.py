"""Runs over a mesh: in one process and in several, killed, and gone on with elsewhere.

What a run was is read from its last checkpoint: the loss of every step, and the
neurons that are left.
"""

import json
import os
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_idea.callbacks.checkpoint.files import CheckpointFiles
from keras_idea.lm.cli import main
from tests.support import ROOT
from tests.support.tiny_run import CONFIG, TEXT

pytestmark = pytest.mark.daily()
RUN = (
    CONFIG.replace('text = "text.txt"', "")
    .replace("seed = 1", "seed = 1\ncompare_from_scratch = false\nkeep_checkpoints = 9")
    .replace("num_heads = 2", "num_heads = 4")
    .replace("validate_every = 4", "validate_every = 2\noutput = 'run'")
    + "\n[corpus]\npaths = ['documents.jsonl']\ncache = 'cache'\n"
)


def write_run(folder, mesh=None, extra="", run=RUN):
    """A run on documents, of a mesh `(data, model)` or of none."""
    folder.mkdir(exist_ok=True)
    texts = [f"{TEXT[7 * i % 400 :][:300]} {i}." for i in range(60)]
    lines = [json.dumps({"text": text}) + "\n" for text in texts]
    (folder / "documents.jsonl").write_text("".join(lines))
    text = run + extra
    if mesh:
        text += f"[distribution]\nmesh = {{ data = {mesh[0]}, model = {mesh[1]} }}\n"
    (folder / "run.toml").write_text(text)


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def start(folder, count=1, devices=1, arguments=(), **variables):
    """Starts the processes of a run, each with so many devices."""
    port, started = free_port(), []
    for index in range(count):
        told = {}
        if count > 1:
            told = {
                "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"localhost:{port}",
                "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count),
                "KERAS_DISTRIBUTION_PROCESS_ID": str(index),
            }
        flags = os.environ.get("XLA_FLAGS", "")
        flags += f" --xla_force_host_platform_device_count={devices}"
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "XLA_FLAGS": flags,
            **told,
            **variables,
        }
        started.append(
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.support.mesh_train",
                    "run.toml",
                    *arguments,
                ],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return started


def end(started, seconds=300):
    """Pairs of (exit status, output) of processes that come to their end."""
    outputs = [process.communicate(timeout=seconds)[0] for process in started]
    return [(p.returncode, out) for p, out in zip(started, outputs, strict=True)]


def carry_out(folder, mesh=None, count=1, devices=1, extra="", run=RUN):
    write_run(folder, mesh, extra, run)
    ended = end(start(folder, count, devices))
    assert [status for status, _ in ended] == [0] * count, ended[0][1] + ended[-1][1]
    return what_was(folder, [8, 8] if run is RUN else [8, 8, 2, 2])


def what_was(folder, sizes):
    """(losses of all steps in bits, validations, units left), of a run's folder."""
    saved = CheckpointFiles(folder / "run" / "checkpoints" / "pruned").newest()
    left = [
        saved.array(name) for name in saved.names if name.endswith("/original_index")
    ]
    assert saved.step == 12 and [len(units) for units in left] == sizes
    recorded = (saved.array(f"stateful/recorder/{n}") for n in ("loss", "validation"))
    return *recorded, left


def assert_the_same(found, straight):
    for values, expected in zip(found[:2], straight[:2], strict=True):
        np.testing.assert_allclose(values, expected, rtol=2e-6)
    for neurons, expected in zip(found[2], straight[2], strict=True):
        np.testing.assert_array_equal(neurons, expected)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """What a run of one process without a mesh was."""
    return carry_out(tmp_path_factory.mktemp("straight") / "run")


PROGRESSIVE = "[pruning]\ncompact = 'progressive'\n"


def test_equals_one_process(tmp_path, straight):
    folder = tmp_path / "run"
    found = carry_out(folder, (2, 1), 2, 1)
    assert_the_same(found, straight)
    # What is left is whole, and no mesh's.
    model = keras.models.load_model(folder / "run" / "narrow.keras")
    assert np.isfinite(
        keras.ops.convert_to_numpy(model(np.ones((1, 4), "int32")))
    ).all()
    assert (folder / "run" / "table.md").is_file()


def test_killed_and_gone_on_with_by_one(tmp_path, straight):
    """Four processes, 2 x 2, die after the compaction; one goes on, without a mesh."""
    folder = tmp_path / "run"
    write_run(folder, (2, 2))
    ended = end(start(folder, 4, 1, ["8"]))
    assert 9 in [status for status, _ in ended]
    assert not (folder / "run" / "sample.txt").exists()
    assert_the_same(carry_out(folder), straight)


def test_heads_are_cut_along_the_model_axis(tmp_path, extra=PROGRESSIVE):
    """Four key/value heads become two, of two devices each has one."""
    heads = RUN.replace("target_dim = 8", "targets = { neurons = 8, kv_groups = 2 }")
    straight = carry_out(tmp_path / "straight", extra=extra, run=heads)
    assert_the_same(carry_out(tmp_path / "run", (1, 2), 1, 2, extra, heads), straight)


KINDS = {
    "activation": "[pruning]\nmethod = 'activation'\n",
    "in parts": "[optimizer]\ngradient_accumulation_steps = 2\nglobal_clipnorm = 0.5\n",
    "hub": "[model]\nhub = 'llama3'\n",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run(tmp_path, kind):
    """Two processes of two devices each, against one process of one."""
    table, lines = KINDS[kind].split("\n", 1)
    run = RUN.replace(table, f"{table}\n{lines}") if table in RUN else RUN + KINDS[kind]
    runs = []
    for name, mesh, count, devices in (("one", None, 1, 1), ("mesh", (2, 2), 2, 2)):
        write_run(tmp_path / name, mesh, run=run)
        ended = end(start(tmp_path / name, count, devices))
        assert [status for status, _ in ended] == [0] * count, ended[0][1]
        runs.append(what_was(tmp_path / name, [8, 8]))
    assert_the_same(runs[1], runs[0])


def test_a_mesh_of_other_devices_is_refused(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "run", (4, 1))
    monkeypatch.chdir(tmp_path / "run")
    assert main(["train", "run.toml"]) == 2
    error = capsys.readouterr().err
    assert "needs 4 × 1 = 4 devices, and the run has 1 in 1 process" in error


def test_processes_without_a_mesh_are_refused(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "2")
    assert main(["train", "run.toml"]) == 2
    assert "`distribution.mesh` is missing" in capsys.readouterr().err
