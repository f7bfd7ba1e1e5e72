"""Two `keras-idea train` on one folder: the second ends at once."""

import os
import signal
import subprocess
import sys
import time

import pytest

from keras_idea.errors import RunFolderError
from keras_idea.lm.cli import main
from keras_idea.lm.runs.run_folder import RunFolder
from tests.support import ROOT
from tests.support.tiny_run import CONFIG, write_inputs

RUN = CONFIG + "compare_from_scratch = false\n"


def start(folder):
    """The command in a process of its own, which holds the run folder by now."""
    root = str(ROOT)
    process = subprocess.Popen(
        [sys.executable, "-m", "keras_idea_cli", "train", "tiny.toml"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while not RunFolder(folder / "runs/tiny").is_running():
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("option", [[], ["--overwrite"]])
def test_the_second_ends_at_once(tmp_path, monkeypatch, capsys, option):
    write_inputs(tmp_path, RUN)
    monkeypatch.chdir(tmp_path)
    first = start(tmp_path)
    assert main(["train", "tiny.toml", *option]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert "Another process carries out a run in this folder" in captured.err
    assert f"'runs/tiny', held by process {first.pid} on " in captured.err
    output = first.communicate()[0]
    assert first.returncode == 0, output
    assert not RunFolder("runs/tiny").is_running()
    assert sorted(path.name for path in (tmp_path / "runs/tiny").glob(".*")) == []
    assert main(["train", "tiny.toml"]) == 2
    assert "holds a run already" in capsys.readouterr().err


def test_a_killed_run_holds_nothing(tmp_path, monkeypatch, capsys):
    write_inputs(tmp_path, RUN)
    monkeypatch.chdir(tmp_path)
    first, folder = start(tmp_path), RunFolder("runs/tiny")
    while not (folder.path / "config.toml").exists():
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not folder.is_running() and folder.unfinished()
    assert main(["train", "tiny.toml"]) == 0
    assert "starting at step 0" in capsys.readouterr().out


class TestLocked:
    def test_one_at_a_time(self, tmp_path):
        folder = RunFolder(tmp_path / "a/b")
        assert not folder.is_running()
        with folder.locked():
            assert folder.is_running()
            folder.check()  # the lock is no part of a run
            with pytest.raises(RunFolderError, match=f"process {os.getpid()} on"):
                with RunFolder(tmp_path / "a/b").locked():
                    pass
            folder.claim("")
            assert folder.is_running()
        assert not folder.is_running()

    def test_what_was_made_for_it_and_stayed_empty_goes(self, tmp_path):
        with RunFolder(tmp_path / "a/b/c").locked():
            pass
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "mine").mkdir()
        with pytest.raises(KeyError), RunFolder(tmp_path / "mine/b").locked():
            raise KeyError
        assert [path.name for path in tmp_path.iterdir()] == ["mine"]
        folder = RunFolder(tmp_path / "mine/b")
        with folder.locked():
            folder.write("table.md", "text")
        assert [path.name for path in folder.path.iterdir()] == ["table.md"]

    def test_a_folder_of_others_is_not_touched(self, tmp_path, monkeypatch, capsys):
        write_inputs(tmp_path, RUN)
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine").mkdir(mode=0o700)
        (tmp_path / "mine" / "thesis.tex").write_text("mine")
        before = (tmp_path / "mine").stat().st_mtime_ns
        assert main(["train", "tiny.toml", "--output", "mine"]) == 2
        assert "is no run folder" in capsys.readouterr().err
        assert (tmp_path / "mine").stat().st_mtime_ns == before

    def test_a_path_that_cannot_be(self, tmp_path):
        for path in ("a" * 300, tmp_path / "new" / ("a" * 300) / "run"):
            with pytest.raises(RunFolderError, match="cannot be made: .*(too|r than)"):
                RunFolder(path).check()
