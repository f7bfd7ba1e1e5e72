"""The core in an environment with one backend alone: run by `make test`.

A script, not a pytest file: the environment has nothing but the core's own needs.
"""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np

import keras_idea as ki

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
command = [sys.executable, "-m", "keras_idea_cli"]
for arguments in (["train"], ["report", "runs/demo"]):
    failed = subprocess.run([*command, *arguments], capture_output=True, text=True)
    (line,) = failed.stderr.splitlines()
    assert failed.returncode == 2 and line.startswith("keras-idea: "), failed.stderr
    assert line.endswith('Install it: pip install "keras-idea[cli]"'), failed.stderr
helped = subprocess.run([*command, "--help"], capture_output=True, text=True)
assert helped.returncode == 0 and "train" in helped.stdout, helped.stderr
# A backend that is not there: one clear line at the end.
command = [sys.executable, "-c", "import keras_idea"]
environment = {**os.environ, "KERAS_BACKEND": "torch"}
failed = subprocess.run(command, env=environment, capture_output=True, text=True)
last = failed.stderr.strip().splitlines()[-1]
assert "No module named 'torch'" in last and "KERAS_BACKEND=jax" in last, failed.stderr

print(f"core alone on {keras.backend.backend()}: 1 passed, 0 failed")
