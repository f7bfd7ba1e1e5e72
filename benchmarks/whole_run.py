"""A whole run, watched: seconds and bytes of each step. See gpu_day.py.

Peak memory of the process needs Linux (/proc/self); on a GPU the allocator of the
backend is asked instead.
"""

import ctypes
import gc
import pathlib
import statistics
import time

import keras

import keras_idea as ki
from benchmarks import proof
from benchmarks.contestants import fit


def rss(peak=False):
    """Bytes of memory this process holds, or held at most since `reset_peak`."""
    field = "VmHWM:" if peak else "VmRSS:"
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")


def reset_peak():
    """Makes the kernel (and torch) count the peak from now on."""
    gc.collect()
    # What malloc keeps of freed memory (of a compilation, say) is not in use.
    ctypes.CDLL(None).malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    device_memory(reset=True)


def device_memory(reset=False):
    """Peak bytes on the GPU, or None without one. On jax it is never reset."""
    if keras.backend.backend() == "jax":
        import jax

        stats = jax.local_devices()[0].memory_stats()
        return stats and stats.get("peak_bytes_in_use")
    import torch

    if not torch.cuda.is_available():
        return None
    if reset:
        torch.cuda.reset_peak_memory_stats()
    return torch.cuda.max_memory_allocated()


class Watch(keras.callbacks.Callback):
    """Notes seconds, bytes and width of each step; it waits for the loss.

    A step's time and peak are those since the end of the step before: of the narrowing
    too, and of the compilation for it.
    """

    def __init__(self):
        super().__init__()
        self.steps = []

    def on_train_begin(self, logs=None):
        """Begins to count."""
        # Not through `callback.model`: on jax that moves the state of the run.
        self._ffns = ki.find_ffns(self._model)
        self._go_on()

    def _go_on(self):
        reset_peak()
        self._begin = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        """Notes the step."""
        loss = float(logs["loss"])
        self.steps.append(
            {
                "step": batch + 1,
                "seconds": time.perf_counter() - self._begin,
                "neurons": self._ffns[0].hidden_dim,
                "loss": loss,
                "resident": rss(),
                "peak": rss(peak=True),
                "device peak": device_memory(),
            }
        )
        self._go_on()


def watched(model, prune, data, shape):
    """Fits a model and returns what `Watch` saw of each step.

    Raises:
        NotPrunedError: if the model does not end as wide as the shape says.
    """
    watch, width = Watch(), shape.target_dim
    fit(model, shape, data, [prune, watch])
    ended = [step["neurons"] for step in watch.steps]
    proof.check_narrow("whole run", model, width)
    proof.expect("whole run", "neurons", ended, sorted(ended, reverse=True))
    proof.expect("whole run", "whether it was wider", ended[0] > width, True)
    return watch.steps


def summary(steps):
    """dict: typical seconds and bytes while wide, of the narrowing, while narrow.

    The first two steps of each program compile or place the state: they do not count.
    """
    widths = [step["neurons"] for step in steps]
    wide = [s for s in steps if s["neurons"] == widths[0]][2:]
    narrow = [s for s in steps if s["neurons"] == widths[-1]]
    at = next(i for i, width in enumerate(widths) if width == widths[-1])

    def typical(group):
        return {
            "seconds a step": statistics.median(s["seconds"] for s in group),
            "resident": statistics.median(s["resident"] for s in group),
            "peak": max(s["peak"] for s in group),
            "device peak": group[-1]["device peak"],
        }

    return {
        "wide": typical(wide),
        "narrowing": steps[at],
        "narrow": typical(narrow[2:]),
    }
