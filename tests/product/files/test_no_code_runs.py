"""What is loaded never runs code of its own: a model, a preset, a checkpoint, a config.

Each file here carries a payload that would leave a mark. What loads it refuses it with
a clear message, and there is no mark.
"""

import io
import json
import os
import pathlib
import pickle
import shutil

import numpy as np
import pytest

import keras_idea
from keras_idea_cli import main
from tests.support import malformed as m

MARK = "mark"


class Payload:
    """Leaves a mark where it is unpickled."""

    def __reduce__(self):
        return os.mkdir, (MARK,)


def command(place):
    """A config that names a function of Python's own, in place of a class."""
    return {
        "module": place,
        "class_name": "mkdir" if place == "os" else "exec",
        "config": {"path": MARK},
        "registered_name": None,
        "args": [MARK],
    }


def module_of_its_own():
    """A config that names a module beside it, which leaves a mark when imported."""
    pathlib.Path("evil.py").write_text(f"import os\nos.mkdir({MARK!r})\n")
    return {
        "module": "evil",
        "class_name": "Evil",
        "config": {},
        "registered_name": "evil>Evil",
    }


CONFIGS = {
    "a function of os": lambda: command("os"),
    "a builtin": lambda: command("builtins"),
    "a module of its own": module_of_its_own,
}


@pytest.fixture
def folder(sound, tmp_path, monkeypatch):
    copy = shutil.copytree(sound, tmp_path / "copy")
    monkeypatch.chdir(copy)
    monkeypatch.syspath_prepend(copy)  # as `python -m` does
    return copy


def assert_refused(arguments, capsys, *words):
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.startswith("keras-idea: ") and "Traceback" not in message
    for word in words:
        assert word in message
    assert not pathlib.Path(MARK).exists()


class TestPresets:
    # KerasHub reads a later one only where those before it are missing.
    @pytest.mark.parametrize("name", CONFIGS)
    @pytest.mark.parametrize(
        "missing, file",
        [
            ([], "config.json"),
            ([], "task.json"),
            (["task.json"], "preprocessor.json"),
            (["task.json", "preprocessor.json"], "tokenizer.json"),
        ],
    )
    def test_configs(self, folder, capsys, missing, file, name):
        for other in missing:
            (folder / "preset" / other).unlink()
        (folder / "preset" / file).write_text(json.dumps(CONFIGS[name]()))
        export = ["export", "preset", "--hf", "out"]
        assert_refused(export, capsys, "'preset' cannot be loaded")

    def test_weights(self, folder, capsys):
        (folder / m.WEIGHTS).write_bytes(pickle.dumps(Payload()))
        evaluate = ["evaluate", "preset", "--text", "text.txt"]
        assert_refused(evaluate, capsys, "'preset' cannot be loaded")

    def test_vocabulary(self, folder, capsys):
        path = folder / "preset/assets/tokenizer/vocabulary.json"
        path.write_bytes(pickle.dumps(Payload()))
        evaluate = ["evaluate", "preset", "--text", "text.txt"]
        assert_refused(evaluate, capsys, "'preset' cannot be loaded")


def objects():
    """Bytes of an .npz of Python objects."""
    file = io.BytesIO()
    np.savez(file, meta=np.array([Payload()], object))
    return file.getvalue()


PICKLES = {"a pickle": lambda: pickle.dumps(Payload()), "an npz of objects": objects}


class TestCheckpoints:
    GO_ON = ["train", "tiny.toml"]

    @pytest.mark.parametrize("name", PICKLES)
    def test_arrays(self, folder, capsys, name):
        m.holds(PICKLES[name]())(folder / m.STEP)
        assert_refused(self.GO_ON, capsys, "not a complete checkpoint")

    def test_the_payload_would_leave_a_mark(self, folder):
        """Else the others would show nothing."""
        pickle.loads(PICKLES["a pickle"]())
        assert pathlib.Path(MARK).exists()


# What would undo all this: not one line of the package says it.
DANGEROUS = (
    "pickle.",
    "import pickle",
    "allow_pickle=True",
    "safe_mode=False",
    "enable_unsafe_deserialization",
    "torch.load",
    "trust_remote_code=True",
    " exec(",
    " eval(",
    "os.system",
    "shell=True",
)


def test_the_package_itself():
    root = pathlib.Path(keras_idea.__file__).parent
    found = [
        f"{path.relative_to(root)}: {word}"
        for path in root.rglob("*.py")
        for word in DANGEROUS
        if word in path.read_text(encoding="utf-8")
    ]
    assert not found
    assert len(list(root.rglob("*.py"))) > 100
