"""The core with one backend alone: run by `make test`.

A script, not a pytest file: it hides every package that `pip install keras-idea[jax]`
does not install, so no second environment is needed.
"""

import importlib.metadata
import importlib.util
import os
import re
import runpy
import subprocess
import sys

from packaging.requirements import Requirement


class Without:
    """A finder that does not find some packages."""

    def __init__(self, finder, hidden):
        self.finder, self.hidden = finder, hidden

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.hidden:
            return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


def normalized(name):
    return re.sub("[-_.]+", "-", name).lower()


def installed_by(*names):
    """The distributions that `pip install` of some needs, with these."""
    found, todo = set(), [normalized(name) for name in names]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        try:
            needs = importlib.metadata.requires(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system
        for requirement in map(Requirement, needs):
            marker = requirement.marker
            if marker is None or marker.evaluate({"extra": ""}):
                todo.append(normalized(requirement.name))
    return found


def hide_all_but(*names):
    """Makes every other installed package impossible to import."""
    kept = installed_by(*names)
    hidden = {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not {normalized(owner) for owner in owners} & kept
    }
    sys.meta_path[:] = [Without(finder, hidden) for finder in sys.meta_path]


hide_all_but("keras-idea", "jax", "jaxlib", "pip", "setuptools")
if sys.argv[1:]:  # a command of this script, as `python -m` would run it
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    sys.exit()

import keras  # noqa: E402
import numpy as np  # noqa: E402

import keras_idea as ki  # noqa: E402

ALONE = [sys.executable, __file__]
OTHERS = ("tensorflow", "torch", "keras_hub", "pytest", "matplotlib", "tomli_w")
for other in OTHERS:
    assert importlib.util.find_spec(other) is None, f"{other} is installed here"

x = np.random.default_rng(0).normal(size=(32, 8)).astype("float32")
dense = [keras.layers.Dense(16, "relu"), keras.layers.Dense(8)]
for ffn, parameters in (
    ([ki.PrunableGatedFFN(16)], 3 * 8 * 4),
    (dense, 2 * 8 * 4 + 4 + 8),
):
    model = keras.Sequential([keras.Input((8,)), *ffn])
    model.compile("adamw", "mse")
    prune = ki.IdeaPruneCallback(target_dim=4, begin_step=2, prune_steps=4)
    model.fit(x, x, batch_size=4, verbose=0, callbacks=[prune])
    narrow = ki.compact(model)
    assert narrow.count_params() == parameters, narrow.count_params()
    assert np.allclose(narrow.predict(x, verbose=0), model.predict(x, verbose=0))
# An extra that is not there: what to install.
try:
    ki.Monitor("logs")
except ImportError as error:
    assert 'pip install "keras-idea[tensorboard]"' in str(error), error
else:
    raise AssertionError("tensorboardX is installed here")
# What only the command line needs: one line, no traceback, and nothing is begun.
command = [*ALONE, "keras_idea_cli"]
for arguments in (["train"], ["report", "runs/demo"]):
    failed = subprocess.run([*command, *arguments], capture_output=True, text=True)
    (line,) = failed.stderr.splitlines()
    assert failed.returncode == 2 and line.startswith("keras-idea: "), failed.stderr
    assert line.endswith('Install it: pip install "keras-idea[cli]"'), failed.stderr
# A backend that is not there: one clear line at the end.
command = [*ALONE, "keras_idea"]
environment = {**os.environ, "KERAS_BACKEND": "torch"}
failed = subprocess.run(command, env=environment, capture_output=True, text=True)
last = failed.stderr.strip().splitlines()[-1]
assert "No module named 'torch'" in last and "KERAS_BACKEND=jax" in last, failed.stderr

print(f"core alone on {keras.backend.backend()}: 1 passed, 0 failed")
