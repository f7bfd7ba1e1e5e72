"""The figures of a run at one point of its curves: speed, cost, memory, time left."""

import math
import sys
from collections.abc import Callable, Iterable
from types import ModuleType

import keras

from keras_idea.callbacks.monitor.interval import Interval
from keras_idea.finding.work_count import WorkCount
from keras_idea.functional.counts import train_flops
from keras_idea.validation import require


def host_memory() -> int:
    """Bytes of this process in the host's memory now."""
    psutil = require("psutil", "Logging to TensorBoard", "tensorboard")
    return psutil.Process().memory_info().rss


def device_memory() -> int | None:
    """Bytes taken now on all devices of the backend.

    None: there is no accelerator, or it does not tell.
    """
    name = keras.backend.backend()
    # Imported by Keras; not imported here, so that no other backend is needed.
    backend = sys.modules.get(name)
    return _DEVICES[name](backend) if name in _DEVICES and backend else None


def _jax(jax: ModuleType) -> int | None:
    stats = [device.memory_stats() for device in jax.local_devices()]
    return _total([entry and entry.get("bytes_in_use") for entry in stats])


def _torch(torch: ModuleType) -> int | None:
    if not torch.cuda.is_available():
        return None
    devices = range(torch.cuda.device_count())
    return _total([torch.cuda.memory_allocated(device) for device in devices])


def _tensorflow(tf: ModuleType) -> int | None:
    gpus = tf.config.list_logical_devices("GPU")
    return _total(
        [
            tf.config.experimental.get_memory_info(gpu.name.removeprefix("/device:"))[
                "current"
            ]
            for gpu in gpus
        ]
    )


def _total(parts: Iterable[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


_DEVICES = {"jax": _jax, "torch": _torch, "tensorflow": _tensorflow}


_SHOWN_ELSEWHERE = ("loss", "width", "sparsity", "learning_rate")


class RunFigures:
    """Turns intervals of a `fit` into numbers to show.

    Args:
        model: the fitted Keras model, built.
        tokens_per_batch: int or None, unknown.
        peak_flops: float or None, operations a second that the devices can do.
        batches: int or None, of the whole `fit`.
        flops_before: function of the FLOPs of a batch: what was done before the `fit`.
        sequence_length: int or None: as long as the model's inputs, if that is fixed.
    """

    def __init__(
        self,
        model: keras.Model,
        tokens_per_batch: int | None,
        peak_flops: float | None,
        batches: int | None,
        flops_before: Callable[[float], float],
        sequence_length: int | None = None,
    ) -> None:
        self.tokens_per_batch = tokens_per_batch
        self._peak_flops = peak_flops
        self._batches = batches
        length = input_length(model) if sequence_length is None else sequence_length
        self.work = WorkCount(model, length)
        self._flops_before = flops_before
        self._of_token = self.work.present
        self._settled: tuple[int, float] = (0, 0)  # batches and work at the last point

    def at(
        self, interval: Interval, batches: int, work: float
    ) -> dict[str, float | None]:
        """The figures at a point, by tag; None: unknown.

        `interval` is what happened since the last point, `batches` are those of the
        `fit` so far, and `work` is what `work.after` said then.
        """
        speed = interval.batches_per_second
        host, device = host_memory(), device_memory()
        left = self._batches and speed and (self._batches - batches) / speed
        values: dict[str, float | None] = {
            "loss/train": interval.loss,
            "width/mean": interval.logs.get("width"),
            "sparsity/mean": interval.logs.get("sparsity"),
            "speed/minutes_left": None if left is None else left / 60,
            "memory/host": host and host / 1e6,
            "memory/device": device and device / 1e6,
        }
        for name in interval.logs.keys() - _SHOWN_ELSEWHERE:
            values[f"metrics/{name}"] = interval.logs[name]
        if self.tokens_per_batch is not None:
            values |= self._of_tokens(self.tokens_per_batch, speed, batches, work)
        self._settled = batches, work
        return values

    def _of_tokens(
        self, tokens: int, speed: float | None, batches: int, work: float
    ) -> dict[str, float]:
        before = self._flops_before(train_flops(self._of_token, tokens))
        values = {"flops/train": before + train_flops(work, tokens)}
        if speed is None:
            return values
        values["speed/tokens_per_second"] = speed * tokens
        if self._peak_flops is not None:
            settled_batches, settled_work = self._settled
            mean_work = (work - settled_work) / (batches - settled_batches)
            rate = train_flops(mean_work, tokens) * speed
            values["flops/utilisation"] = rate / self._peak_flops
        return values


def input_length(model: keras.Model) -> int | None:
    """Tokens of a sequence, of a model whose inputs have a fixed length; else None."""
    length = getattr(getattr(model, "preprocessor", None), "sequence_length", None)
    inputs = getattr(model, "inputs", None)
    if length is not None or not inputs:
        return length
    # Ids are (batch, tokens); numbers are (batch, ..., features).
    ids = keras.backend.is_int_dtype(inputs[0].dtype)
    sizes = inputs[0].shape[1:] if ids else inputs[0].shape[1:-1]
    return None if None in sizes else math.prod(sizes)


def infer_tokens(model: keras.Model, batches: int) -> int | None:
    """Tokens of a batch, of a model whose inputs have a fixed length.

    None: the length or the number of samples is unknown. `batches` are those of this
    epoch so far, one at least; the variables must be in sync.
    """
    length = input_length(model)
    counts = [metric.count for metric in model.metrics if metric.name == "loss"]
    if length is None or not counts:
        return None
    return round(float(counts[0].value) / batches) * length or None
