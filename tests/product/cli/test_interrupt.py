"""Ctrl-C ends the command line with one line and status 130, at whatever moment.

In processes of their own, which get a real signal once they are where a test wants
them: a stand-in for Keras or TensorFlow says so by making a file.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support import ROOT
from tests.support.processes import MODULE, PROGRAM, path_with
from tests.support.tiny_run import CONFIG, with_hub, write_inputs

HERE = "import pathlib, time\npathlib.Path('here').touch()\n"
# In naps: a signal that comes right before a sleep is looked at when that is over.
NAPS = "[time.sleep(0.1) for _ in range(600)]"
IMPORTS = {
    "a long import": f"{HERE}{NAPS}",
    "one that swallows it": f"{HERE}try: {NAPS}\nexcept BaseException: pass",
    "one that makes another error of it": (
        f"{HERE}try: {NAPS}\n"
        "except BaseException: raise ImportError('No module named x')"
    ),
}
LINE = "keras-idea: interrupted."


def interrupted(folder, words, ready, times=1, **arguments):
    """The status, standard output and standard error of an interrupted process."""
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path_with(folder, ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As of a terminal; some ways to run tests have it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **arguments,
    )
    for i in range(times):
        while not ready(i):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    return process.returncode, out, err


def there(folder, *names):
    return lambda i: (folder / names[i]).exists()


@pytest.mark.parametrize("begin", [PROGRAM, MODULE], ids=["program", "module"])
@pytest.mark.parametrize("keras", IMPORTS.values(), ids=IMPORTS.keys())
def test_while_keras_is_imported(tmp_path, begin, keras):
    (tmp_path / "keras.py").write_text(keras)
    words = [*begin, "plan", "tiny.toml"]
    ended = interrupted(tmp_path, words, there(tmp_path, "here"))
    assert ended == (130, "", f"{LINE}\n")


@pytest.mark.parametrize("body", IMPORTS.values(), ids=IMPORTS.keys())
def test_while_tensorflow_is_imported(tmp_path, body):
    """By a command at work, and with the standard error held back."""
    write_inputs(tmp_path, with_hub(CONFIG, "hub = 'llama3'"))
    (tmp_path / "keras_hub.py").write_text("import tensorflow")
    (tmp_path / "tensorflow.py").write_text(
        f"import os; os.write(2, b'I0000 a greeting')\n{body}"
    )
    words = [*PROGRAM, "plan", "tiny.toml"]
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", environment)
        ended = interrupted(tmp_path, words, there(tmp_path, "here"))
    assert ended == (130, "", f"{LINE}\n")


def test_while_it_trains(tmp_path):
    """What is written is whole, and the same command resumes the run."""
    steps = CONFIG.replace("recover_steps = 5", "recover_steps = 100001")
    write_inputs(tmp_path, steps + "compare_from_scratch = false\n")
    checkpoints = tmp_path / "runs/tiny/checkpoints/pruned"

    def saved(i):
        return checkpoints.is_dir() and list(checkpoints.glob("[!.]*"))

    words = [*PROGRAM, "train", "tiny.toml"]
    status, out, err = interrupted(tmp_path, words, saved)
    assert status == 130 and "Epoch 1/" in out
    assert err == f"{LINE} The same command resumes the run.\n"
    # In an import or a destructor it ends at once, and leaves the file of the lock.
    assert {path.name for path in checkpoints.parents[1].glob(".*")} <= {".lock"}
    assert "Resume with" in _status(tmp_path)


def _status(folder):
    return subprocess.run(
        [sys.executable, *PROGRAM, "status", "runs/tiny"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path_with(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


# What runs where the command would.
COMMAND = """
import os, pathlib, signal, sys, time
from keras_idea_cli import interrupt
try:
    with interrupt.answered():
{body}
except KeyboardInterrupt:
    sys.exit("the last line")
"""


def command(tmp_path, body, *names):
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    words = ["-c", COMMAND.format(body=lines)]
    return interrupted(tmp_path, words, there(tmp_path, *names), len(names))


def test_in_a_destructor_where_an_exception_would_be_lost(tmp_path):
    body = """
class Held:
    def __del__(self):
        pathlib.Path("here").touch()
        time.sleep(60)
Held()
time.sleep(60)
"""
    assert command(tmp_path, body, "here") == (130, "", f"{LINE}\n")


def test_a_second_time_while_the_first_is_cleaned_up(tmp_path):
    body = """
try:
    pathlib.Path("here").touch()
    time.sleep(60)
finally:
    pathlib.Path("cleaning").touch()
    time.sleep(60)
"""
    ended = command(tmp_path, body, "here", "cleaning")
    assert ended == (130, "", f"{LINE}\n")


def test_in_an_import_the_advice_is_given_too(tmp_path):
    (tmp_path / "late.py").write_text(IMPORTS["a long import"])
    body = "interrupt.advise('Run it again.')\nsys.path.insert(0, '.')\nimport late"
    assert command(tmp_path, body, "here") == (130, "", f"{LINE} Run it again.\n")


def test_a_lookup_in_a_package_is_no_import(tmp_path):
    """Nothing is loaded there: what is written is cleaned up."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text(
        "import pathlib, time\ndef __getattr__(name):\n    if name != '__path__':\n"
        "        pathlib.Path('here').touch()\n        time.sleep(60)\n"
    )
    body = """
sys.path.insert(0, ".")
import package
try:
    from package import late
finally:
    pathlib.Path("cleaned").touch()
"""
    status, _, err = command(tmp_path, body, "here")
    assert (status, err) == (1, "the last line\n")
    assert (tmp_path / "cleaned").exists()


def test_otherwise_what_is_written_is_cleaned_up(tmp_path):
    body = """
try:
    pathlib.Path("here").touch()
    time.sleep(60)
finally:
    pathlib.Path("cleaned").touch()
"""
    status, _, err = command(tmp_path, body, "here")
    assert (status, err) == (1, "the last line\n")
    assert (tmp_path / "cleaned").exists()


def test_what_ignores_it_goes_on(tmp_path):
    """As a command of `nohup`, or one in the background of a script."""
    code = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code += "from keras_idea_cli import interrupt\ninterrupt.install()\n"
    code += "signal.raise_signal(signal.SIGINT)\nprint('done')"
    ended = subprocess.run(
        [sys.executable, "-c", f"import signal\n{code}"],
        env={**os.environ, "PYTHONPATH": path_with(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("done\n", "")
