"""A checkpoint needs no second copy of the model in memory."""

import json
import os
import subprocess
import sys

from tests.support import ROOT

# Bytes of the kernels and of AdamW's two slots for each: 24 of 4 MiB.
KERNELS, SIDE, SHARD = 8, 1024, 1 << 23
STATE = 3 * KERNELS * SIDE**2 * 4
CODE = f"""
import json, resource, sys
import keras, numpy as np
import keras_idea as ki
from keras_idea.callbacks.checkpoint.files import CheckpointFiles

def peak():
    # Linux counts from the last reset; /proc tells it apart from before.
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmHWM"].split()[0]) * 1024

def reset():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")

def make():
    layers = [keras.layers.Dense({SIDE}, use_bias=False) for _ in range({KERNELS})]
    model = keras.Sequential([keras.Input(({SIDE},)), *layers])
    model.compile(keras.optimizers.AdamW(1e-3), "mse")
    model.optimizer.build(model.trainable_variables)
    # Zeros that were never written take no memory yet.
    for variable in model.trainable_variables + model.optimizer.variables[2:]:
        variable.assign(variable + 1)
    return model

folder, model = sys.argv[1], make()
checkpoint = ki.Checkpoint(folder)
checkpoint._files = CheckpointFiles(folder, shard_bytes={SHARD})
checkpoint.set_model(model)
checkpoint.set_params({{"epochs": 1}})
reset()
before = peak()
checkpoint.on_epoch_end(0)
written = peak() - before
fresh = make()
reset()
before = peak()
assert checkpoint.restore(fresh) == 1
print(json.dumps([written, peak() - before]))
"""


def test_writing_and_restoring_hold_a_part_at_a_time(tmp_path):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        # malloc gives large blocks back at once.
        "MALLOC_MMAP_THRESHOLD_": "65536",
    }
    command = [sys.executable, "-c", CODE, str(tmp_path / "checkpoints")]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    written, restored = json.loads(result.stdout.splitlines()[-1])
    saved = sum(f.stat().st_size for f in tmp_path.rglob("*.safetensors"))
    assert saved > STATE
    # A few shards, and never a copy of the whole.
    assert written < STATE / 4, f"{written / STATE:.2f} of the state while writing"
    assert restored < STATE / 4, f"{restored / STATE:.2f} while restoring"
