"""Paths at which nothing can be written: refused at once, in words, by whoever asks."""

import os

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.data import open_text
from keras_idea.errors import DiskError, KerasIdeaError
from keras_idea.files import check_place
from keras_idea.lm.cli import main
from tests.support.tiny_run import write_inputs

LONG = "a" * 300
PATHS = {
    "under a file": ("text.txt/below", "'.*text.txt' is a file"),
    "with a NUL": ("x\0y", "it holds a NUL character"),
    "with a long name": (LONG, "File name too long"),
    "with a long name below": (f"new/{LONG}", "a name in it is longer than 255 bytes"),
    "long as a whole": ("/".join(["b" * 200] * 25), "File name too long"),
    "not encodable": ("a\ud800", "it cannot be encoded as a path"),
}


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


each = pytest.mark.parametrize("path, why", PATHS.values(), ids=PATHS.keys())


@each
def test_an_argument(path, why):
    for make in (
        lambda: ki.Monitor(path),
        lambda: ki.IdeaPruneCallback(4, 2, 3, log_dir=path),
        lambda: open_text(paths="text.txt", cache=path),
    ):
        with pytest.raises(ki.KerasIdeaError, match=f"path of a folder: {why}"):
            make()


@each
@pytest.mark.parametrize(
    "words",
    [
        ["train", "tiny.toml", "--output"],
        ["report", "runs/none", "--output"],
        ["export", "runs/none", "--hf"],
        ["export", "runs/none", "--preset"],
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_an_option_of_the_command_line(in_folder, capsys, words, path, why):
    """Before anything is read: the other path does not exist either."""
    before = sorted(in_folder.iterdir())
    assert main([*words, path]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be" in line or "NUL" in line
    assert sorted(in_folder.iterdir()) == before


@pytest.mark.parametrize("path", ["x\0y", LONG], ids=["with a NUL", "too long"])
def test_what_is_read(capsys, path):
    for words in (
        ["plan", path],
        ["export", path, "--hf", "hf"],
        ["evaluate", path, "--text", "text.txt"],
        ["report", path],
        ["status", path],
    ):
        assert main(words) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_folder_that_cannot_be_made_after_all(data):
    """As the system's own: it is refused when `fit` begins."""
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    monitor = ki.Monitor("/proc/nothing")
    with pytest.raises(DiskError, match="The TensorBoard log cannot .*/proc/nothing"):
        model.fit(np.ones((4, 8)), np.ones((4, 1)), callbacks=[monitor], verbose=0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to(in_folder):
    in_folder.chmod(0o500)
    with pytest.raises(KerasIdeaError, match="is not writable"):
        ki.Monitor("logs")


@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize("path", ["/", ".", "new/deep"])
def test_what_can_be_written_is_not_refused(in_folder, folder, path):
    check_place(in_folder / path, KerasIdeaError, "no", folder=folder)


def test_a_file_may_stand_where_one_is_written(in_folder):
    check_place(in_folder / "text.txt", KerasIdeaError, "no")
    with pytest.raises(KerasIdeaError, match="is a file"):
        check_place(in_folder / "text.txt", KerasIdeaError, "no", folder=True)
