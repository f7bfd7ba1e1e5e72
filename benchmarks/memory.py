"""Memory of training and of compaction, each model in a process of its own.

Run by step_cost.py, which starts `python benchmarks/memory.py SHAPE KIND JIT`
and reads the JSON on its last line. Peak memory of the process needs Linux
(/proc/self); on a GPU the allocator of the backend is asked instead.
"""

import ctypes
import gc
import json
import math
import os
import pathlib
import subprocess
import sys

KINDS = ("wide", "pruning", "built narrow")


def rss(peak=False):
    """Bytes of memory this process holds, or held at most since `reset_peak`."""
    field = "VmHWM:" if peak else "VmRSS:"
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")


def reset_peak():
    """Makes the kernel (and torch or tensorflow) count the peak from now on."""
    gc.collect()
    # What malloc keeps of freed memory (of a compilation, say) is not in use.
    ctypes.CDLL(None).malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    device_memory(reset=True)


def device_memory(reset=False):
    """Peak bytes on the GPU, or None without one. On jax it is never reset."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        stats = jax.local_devices()[0].memory_stats()
        return stats and stats.get("peak_bytes_in_use")
    if keras.backend.backend() == "torch":
        import torch

        if not torch.cuda.is_available():
            return None
        if reset:
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated()
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        return None
    if reset:
        tf.config.experimental.reset_memory_stats("GPU:0")
    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def measure(shape, kind, jit_compile):
    """Trains one model for a few steps and reports its memory.

    Args:
        shape: `Shape`.
        kind: one of `KINDS`; "pruning" is compacted in its last `fit`.
        jit_compile: "auto" or bool.

    Returns:
        dict of bytes; peaks are above what the process held after its imports.
    """
    import contestants as c
    import proof

    import keras_idea as ki

    base = rss()
    width = shape.target_dim if kind == "built narrow" else shape.hidden_dim
    model = c.make_model("decoder", shape, width, kind == "pruning", jit_compile)
    data = c.make_data(shape, batches=4)
    if kind == "pruning":
        widths = (shape.hidden_dim, shape.target_dim)
        schedule = ki.CubicWidth(*widths, begin_step=0, prune_steps=8)
        pruner = c.start_pruner(model, schedule)
    c.fit(model, shape, data)
    result = {"first fit (compiles)": rss(peak=True) - base}
    result |= {"training": _peak_of_training(model, shape, data, base)}
    result |= _bytes_of_variables(model)
    if kind == "pruning":
        # Two fits of four batches, and the schedule's eight steps.
        proof.check_masked(kind, model, shape.target_dim, steps=8)
        pruner.detach(model)
        result |= _compact_in_fit(model, shape, data, base)
    return result | {"device peak": device_memory()}


def _peak_of_training(model, shape, data, base):
    import contestants as c

    reset_peak()
    c.fit(model, shape, data)
    return rss(peak=True) - base


def _bytes_of_variables(model):
    import ml_dtypes  # noqa: F401  (NumPy learns bfloat16 from it)
    import numpy as np

    def nbytes(variables):
        return sum(math.prod(v.shape) * np.dtype(v.dtype).itemsize for v in variables)

    return {
        "model variables": nbytes(model.variables),
        "optimizer variables": nbytes(model.optimizer.variables),
    }


def _compact_in_fit(model, shape, data, base):
    """Peaks while a real callback compacts in mid-epoch, and after it."""
    import contestants as c
    import keras

    import keras_idea as ki

    peaks = {}

    class Before(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            reset_peak()
            self.narrow = _is_narrow(self._model)

    class After(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if _is_narrow(self._model) and not before.narrow:
                peaks["compacting"] = rss(peak=True) - base

        def on_train_batch_end(self, batch, logs=None):
            if "compacting" in peaks:
                peaks.setdefault("first step after", rss(peak=True) - base)

    before = Before()
    # Steps count from the optimizer's making: 8 are done, the next fit has 4.
    prune = ki.IdeaPruneCallback(shape.target_dim, begin_step=0, prune_steps=10)
    c.fit(model, shape, data, [before, prune, After()])
    after = _peak_of_training(model, shape, data, base)
    return peaks | {"training after compaction": after}


def _is_narrow(model):
    # Not through `callback.model`: on jax that moves the state of the run.
    import keras_idea as ki

    return all(ffn.hidden_dim < ffn.full_dim for ffn in ki.find_ffns(model))


def measure_in_child(shape_name, kind, jit_compile):
    """`measure` in a fresh process.

    Args:
        shape_name: str, a key of `contestants.SHAPES`.
        kind: one of `KINDS`.
        jit_compile: "auto" or True.

    Returns:
        dict of bytes.
    """
    # Large arrays go back to the system when they are freed, so that resident
    # memory says what is alive, not what malloc or oneDNN's pool keep for later.
    settings = {
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_ARENA_MAX": "1",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }
    environment = os.environ | settings
    command = [sys.executable, __file__, shape_name, kind, str(jit_compile)]
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    if process.returncode:
        raise RuntimeError(
            f"Measuring the memory of {kind!r} at {shape_name!r} failed:\n"
            f"{process.stderr[-2000:]}"
        )
    return json.loads(process.stdout.splitlines()[-1])


def main():
    from contestants import SHAPES

    shape_name, kind, jit_compile = sys.argv[1:]
    jit_compile = jit_compile == "True" or "auto"
    print(json.dumps(measure(SHAPES[shape_name], kind, jit_compile)))


if __name__ == "__main__":
    main()
