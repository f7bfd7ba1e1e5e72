"""The command line in a process of its own."""

import os
import subprocess
import sys

# As the installed program calls it, and as a module.
PROGRAM = ("-c", "import sys, keras_idea_cli as c; sys.exit(c.main())")


MODULE = ("-m", "keras_idea_cli")


def python(*words, folder=None, **environment):
    """A process of its own, with nothing of this one's settings for TensorFlow."""
    inherited = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, *words],
        env={**inherited, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def run_script(name, *arguments):
    """What a script of `tests.support` prints; it must succeed."""
    ended = python("-m", f"tests.support.{name}", *arguments, PYTHONPATH=os.getcwd())
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout


def path_with(*folders):
    return os.pathsep.join(map(str, [*folders, *filter(None, sys.path)]))
