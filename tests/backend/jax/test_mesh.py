"""Runs on several devices: in one process and in several, killed, and resumed.

What a run was is read from its metrics and from the units that its last checkpoint has.
"""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from keras_idea._callbacks.checkpoint import newest
from keras_idea_cli import main
from tests.support import ROOT
from tests.support.tiny_run import ALONE, TEXT, metrics, with_hub, with_keys

pytestmark = pytest.mark.daily()
RUN = (
    with_hub(
        ALONE,
        # Which the devices divide.
        'tokenizer = "bpe"',
        "vocabulary_size = 264",
    )
    .replace('["text.txt"]', '["documents.jsonl"]\ncache = "cache"')
    .replace("num_heads = 2", "num_heads = 4")
    .replace("validate_every = 4", 'validate_every = 2\noutput = "run"')
)


PROGRAM = ("-m", "tests.support.mesh_train", "run.toml")


def write_run(folder, mesh=(1, 1)):
    """A run on documents, on `(data, model)` devices."""
    folder.mkdir(exist_ok=True)
    texts = [f"{TEXT[7 * i % 400 :][:300]} {i}." for i in range(60)]
    lines = [json.dumps({"text": text}) + "\n" for text in texts]
    (folder / "documents.jsonl").write_text("".join(lines))
    keys = (f"data = {mesh[0]}", f"model = {mesh[1]}")
    (folder / "run.toml").write_text(with_keys(RUN, "distribution", *keys))


def start(folder, count=1, devices=1, arguments=(), program=PROGRAM):
    """Starts the processes of a run, each with so many devices."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    started = []
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
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": flags}
        started.append(
            subprocess.Popen(
                [sys.executable, *program, *arguments],
                cwd=folder,
                env=environment | told,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return started


def end(started):
    """Pairs of (exit status, output) of processes that come to their end."""
    outputs = [process.communicate(timeout=400)[0] for process in started]
    return [(p.returncode, out) for p, out in zip(started, outputs, strict=True)]


def carry_out(folder, mesh=(1, 1), count=1, devices=1):
    write_run(folder, mesh)
    ended = end(start(folder, count, devices))
    assert [status for status, _ in ended] == [0] * count, ended[0][1] + ended[-1][1]
    return what_was(folder)


def what_was(folder):
    """The losses of a run's folder, and the neurons that are left."""
    saved = newest(folder / "run" / "checkpoints" / "pruned")
    left = [
        saved.array(name) for name in saved.shapes if name.endswith("/original_index")
    ]
    assert saved.facts["step"] == 12 and [len(units) for units in left] == [8, 8]
    losses = [
        [float(line[name]) for name in ("bits_per_byte", "validation")]
        for line in metrics(folder / "run")
    ]
    return losses, left


def assert_the_same(found, straight):
    np.testing.assert_allclose(found[0], straight[0], rtol=2e-6)
    for neurons, expected in zip(found[1], straight[1], strict=True):
        np.testing.assert_array_equal(neurons, expected)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """What a run of one process and one device was."""
    return carry_out(tmp_path_factory.mktemp("straight") / "run")


@pytest.mark.parametrize(
    "mesh, count, devices",
    [
        ((1, 2), 1, 2),  # KerasHub's own layout
    ],
)
def test_equals_one_process(tmp_path, straight, mesh, count, devices):
    folder = tmp_path / "run"
    assert_the_same(carry_out(folder, mesh, count, devices), straight)
    import keras_hub  # what is left is whole, and of no mesh

    lm = keras_hub.models.CausalLM.from_preset(str(folder / "run" / "preset"))
    assert lm.backbone.intermediate_dim == 8


def test_two_processes_are_killed_and_one_resumes(tmp_path, straight):
    """They share the rows of a batch, and die after the narrowing."""
    folder = tmp_path / "run"
    write_run(folder, (2, 1))
    ended = end(start(folder, 2, 1, ["8"]))
    assert 9 in [status for status, _ in ended], ended[0][1]
    assert not (folder / "run" / "sample.txt").exists()
    assert_the_same(carry_out(folder), straight)


def test_other_devices_are_refused(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "run", (4, 1))
    monkeypatch.chdir(tmp_path / "run")
    assert main(["train", "run.toml"]) == 2
    assert "4 × 1 devices" in capsys.readouterr().err


def test_several_processes_need_devices(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "2")
    assert main(["train", "run.toml"]) == 2
    assert "distribution.data" in capsys.readouterr().err
