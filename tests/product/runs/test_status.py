"""`keras-idea status`: where a run is, told from its folder alone."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from keras_idea.callbacks.checkpoint.files import CheckpointFiles
from keras_idea.lm.cli import main
from keras_idea.lm.runs.config import load_config
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.config.timeline import make_timeline
from keras_idea.lm.runs.run_folder import RunFolder
from tests.support import ROOT
from tests.support.tiny_run import CONFIG, write_inputs

RUN = CONFIG.replace("num_layers = 2", "num_layers = 1")
RUN = RUN.replace("tokens = 20", "tokens = 4")


def told(capsys, *words):
    """What the command prints, as a dict of label to text."""
    assert main(["status", *map(str, words)]) == 0
    found, columns = {}, set()
    for line in capsys.readouterr().out.splitlines():
        label, space, text = re.fullmatch(r"([^:]+):( +)(.*)", line).groups()
        found[label] = text
        columns.add(len(label) + len(space))
    assert len(columns) == 1  # aligned
    return found


def unaged(found):
    """What the command told, without how long ago that was."""
    return {label: re.sub(r"\d+ \w+ ago ", "", text) for label, text in found.items()}


def refused(capsys, *words):
    assert main(["status", *map(str, words)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of a run that was killed after its first checkpoint.

    What the command says of it while it lives, in `running.json`.
    """
    folder = tmp_path_factory.mktemp("killed")
    write_inputs(folder, RUN)
    process = subprocess.Popen(
        [sys.executable, "-m", "keras_idea_cli", "train", "tiny.toml"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    checkpoints = folder / "runs/tiny/checkpoints/pruned"
    while not list(checkpoints.glob("[!.]*")):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.005)
    process.send_signal(signal.SIGSTOP)
    said = subprocess.run(
        [sys.executable, "-m", "keras_idea_cli", "status", "runs/tiny"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    (folder / "running.txt").write_text(said.stdout)
    process.kill()
    process.communicate()
    assert not (folder / "runs/tiny/sample.txt").exists()
    return folder


@pytest.fixture
def stopped(killed, tmp_path, monkeypatch):
    """A copy of it, in which a test works."""
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs/tiny"


def newest(folder):
    files = CheckpointFiles(folder / "checkpoints/pruned")
    return files.folder / files.names()[-1]


def test_a_run_at_work(killed):
    said = (killed / "running.txt").read_text()
    assert re.search(r"^State: +running$", said, re.MULTILINE)


def test_a_killed_run(stopped, capsys):
    step = json.loads((newest(stopped) / "manifest.json").read_text())["step"]
    found = told(capsys, "runs/tiny")
    assert found["State"] == "stopped: no process is working on it"
    assert found["Part"] == "pruned model (1 of 2)"
    at = int(found["Step"].partition(" ")[0])
    assert at >= step >= 4
    config = load_config("tiny.toml")
    stages = make_timeline(config, Sizes(32), Sizes(8)).stages
    stage = next(name for name, _, end in stages if at < end)
    assert found["Step"] == f"{at} of 12, {stage} stage"
    lines = (stopped / "metrics.csv").read_text().splitlines()
    columns = dict(zip(lines[0].split(","), lines[at].split(","), strict=True))
    assert found["FFN width"] == f"{columns['width']} neurons at step {at}"
    assert f"{float(columns['bits_per_byte']):.4f} bits per byte" in found["Loss"]
    assert f"{float(columns['validation']):.4f} bits per byte" in found["Validation"]
    assert re.fullmatch(
        rf"step {step}, written \d+ (second|minute)s? ago \(.*\)", found["Checkpoint"]
    )
    assert found["Resume with"] == "keras-idea train runs/tiny/config.toml"


@pytest.mark.parametrize("words", [["runs/tiny"], ["tiny.toml"]], ids=str)
def test_the_command_that_is_told_resumes_the_run(stopped, capsys, words):
    command = told(capsys, *words)["Resume with"].split()
    assert command[:2] == ["keras-idea", "train"]
    assert main(command[1:]) == 0
    assert "Resuming at step" in capsys.readouterr().out
    found = told(capsys, *words)
    assert found["State"].startswith("finished ") and found["Step"] == "12 of 12"
    assert pathlib.Path(found["Narrow model"]).exists()
    assert pathlib.Path(found["Results"]).exists() and "Resume with" not in found


def test_from_another_folder(stopped, monkeypatch, capsys):
    """Its config names the run folder as it was seen from the first one."""
    monkeypatch.chdir(stopped.parent)
    command = told(capsys, "tiny")["Resume with"]
    assert command == "keras-idea train tiny/config.toml --output tiny"


def test_the_parts_of_a_run(stopped, capsys):
    """Each has its checkpoints, and the first that is not done is told."""
    config = stopped / "config.toml"
    text = config.read_text().replace(
        "compare_without = false", "compare_without = true"
    )
    config.write_text(text)
    done = stopped / "checkpoints/pruned"
    for steps, folder, part in (
        ((12,), done, "pruned model without the teacher (2 of 3)"),
        ((4, 8, 12), done.with_name("pruned,-no-teacher"), "scratch baseline (3 of 3)"),
    ):
        files = CheckpointFiles(folder)
        for step in steps:
            files.write(step, [], {})
        assert told(capsys, "runs/tiny")["Part"] == part
    files = CheckpointFiles(done.with_name("narrow-from-scratch"))
    files.write(8, [], {})
    assert told(capsys, "runs/tiny")["Step"] == "8 of 12"  # which has no stages
    files.write(12, [], {})
    found = told(capsys, "runs/tiny")
    assert found["Step"] == "12 of 12: trained, the results are not written yet"


def test_the_newest_checkpoint_is_the_last_one_written(stopped, capsys):
    """Whatever its step; another run may have been there."""
    shutil.rmtree(stopped / "checkpoints")
    (stopped / "metrics.csv").unlink()
    files = CheckpointFiles(stopped / "checkpoints/pruned")
    files.write(8, [], {})
    files.write(4, [], {})
    found = told(capsys, "runs/tiny")
    assert found["Checkpoint"].startswith("step 4, ")
    assert found["Step"] == "4 of 12, pruning stage" and "Loss" not in found


@pytest.mark.parametrize(
    "damage, why",
    [
        (lambda text: text[:40], "cannot be used"),
        (lambda text: text.replace('"step": ', '"step": 1'), "it has been changed"),
        (lambda text: "[" * 100_000, "cannot be used"),
        (lambda text: "[]", "cannot be used"),
        (lambda text: "null", "cannot be used"),
    ],
    ids=["cut off", "changed", "deep", "a list", "nothing"],
)
def test_a_damaged_manifest(stopped, capsys, damage, why):
    files = CheckpointFiles(stopped / "checkpoints/pruned")
    name = files.write(12, [], {})
    path = files.folder / name / "manifest.json"
    path.write_text(damage(path.read_text()))
    found = told(capsys, "runs/tiny")
    assert name in found["Damaged"] and why in found["Damaged"]
    assert found["Damaged"].endswith("It is skipped.")
    assert found["Checkpoint"].startswith("step ")
    with pytest.warns(UserWarning, match="damaged"):
        resumed = files.newest().step
    assert found["Checkpoint"].startswith(f"step {resumed}, ")


def test_all_checkpoints_are_damaged(stopped, capsys):
    for path in (stopped / "checkpoints/pruned").glob("[!.]*/manifest.json"):
        path.unlink()
    found = told(capsys, "runs/tiny")
    assert found["Checkpoint"].startswith("none that can be read. Restore one")


def test_what_no_run_has_written(stopped, capsys):
    """Another's folder is no checkpoint, as for `train`; a line without an end."""
    sound = unaged(told(capsys, "runs/tiny"))
    (stopped / "checkpoints/pruned/my-step-5").mkdir()
    assert unaged(told(capsys, "runs/tiny")) == sound
    (stopped / "metrics.csv").write_text("run,step\n" + 200_000 * "x")
    found = unaged(told(capsys, "runs/tiny"))
    assert "Loss" not in found and found["Checkpoint"] == sound["Checkpoint"]


def test_what_has_not_begun(tmp_path, monkeypatch, capsys):
    write_inputs(tmp_path, RUN)
    monkeypatch.chdir(tmp_path)
    expected = {"State": "not begun", "Begin with": "keras-idea train tiny.toml"}
    assert told(capsys, "tiny.toml") == {"Run folder": "runs/tiny", **expected}
    (tmp_path / "runs/tiny").mkdir(parents=True)
    assert told(capsys, "tiny.toml") == {"Run folder": "runs/tiny", **expected}
    assert told(capsys)["Begin with"] == "keras-idea train"  # the demo
    begin = "keras-idea train FILE.toml --output runs/tiny"
    assert told(capsys, "runs/tiny")["Begin with"] == begin
    with RunFolder("runs/tiny").locked():
        assert told(capsys, "runs/tiny")["State"].startswith("starting: ")


def test_the_output_of_a_description(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbf[run]\noutput = 'elsewhere'\n")
    assert told(capsys, "a.toml")["Run folder"] == "elsewhere"


def test_what_is_no_run(tmp_path, monkeypatch, capsys):
    write_inputs(tmp_path, RUN)
    monkeypatch.chdir(tmp_path)
    assert "There is no file or folder 'nowhere'. Give" in refused(capsys, "nowhere")
    said = refused(capsys, ".")
    assert "'.' is no run folder: it has no config.toml, but " in said
    assert "'text.txt' cannot be read: " in refused(capsys, "text.txt")


@pytest.mark.parametrize(
    "content", ["", "[run]", "= 3", "[budget]\nenlarge_steps = 'x'"], ids=str
)
def test_a_damaged_description(stopped, capsys, content):
    (stopped / "config.toml").write_text(content)
    said = refused(capsys, "runs/tiny")
    assert "config.toml' is damaged: " in said or "cannot be read" in said


def test_a_damaged_extension(stopped, capsys):
    file = stopped / "config.toml"
    said = file.read_text().replace("extend_steps = 0", "extend_steps = 'x'")
    file.write_text(said)
    assert "is damaged: budget.extend_steps is 'x'" in refused(capsys, "runs/tiny")


def test_no_backend_is_imported(stopped):
    """Nor Keras: only the standard library and the command line's own package."""
    code = (
        "import sys; sys.argv[1:] = ['status', 'runs/tiny']\n"
        "before = set(sys.modules)\n"
        "import keras_idea_cli\n"
        "try: keras_idea_cli.main()\n"
        "except SystemExit as end: assert not end.code\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new - set(sys.stdlib_module_names)), file=sys.stderr)\n"
    )
    for words in (["-c", code], ["-m", "keras_idea_cli", "status", "runs/tiny"]):
        ended = subprocess.run(
            [sys.executable, *words],
            cwd=stopped.parent.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "none"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert "Checkpoint: " in ended.stdout
        assert ended.stderr.split() in (["keras_idea_cli"], [])
