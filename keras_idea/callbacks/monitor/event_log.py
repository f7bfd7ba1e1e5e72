"""TensorBoard event files, written without TensorFlow."""

import itertools
import os
import pathlib
import struct
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from keras_idea import processes
from keras_idea.validation import require

#: What the tab "Custom Scalars" shows: charts, and regular expressions of their tags.
DASHBOARD = {
    "IDEA Prune": {
        "loss": ["loss/.*"],
        "learning rate": ["learning_rate"],
        "width: active neurons": ["width/.*"],
        "sparsity": ["sparsity/.*"],
        "churn: neurons that enter or leave the top k, mean": ["churn/mean"],
        "churn of each layer": ["churn/(?!mean$).*"],
        "tokens per second": ["speed/tokens_per_second"],
        "steps per second": ["speed/steps_per_second"],
        "minutes left": ["speed/minutes_left"],
        "train FLOPs so far": ["flops/train"],
        "model FLOPs utilisation": ["flops/utilisation"],
        "memory, MB": ["memory/.*"],
    }
}

_FILE_END = ".keras_idea"
_numbers = itertools.count()


def tensorboardx() -> ModuleType:
    """The package `tensorboardX`, if what else a log needs is there too.

    Its images need Pillow, the memory's curve psutil.
    """
    for module in ("PIL", "psutil"):
        require(module, "Logging to TensorBoard", "tensorboard")
    return require("tensorboardX", "Logging to TensorBoard", "tensorboard")


class EventLog:
    """One event file in a log folder, which others may share; the folder is made.

    Of several processes of a run the first alone writes one.

    TensorBoard hides what earlier files of the folder say of later steps than
    `start`, so that a resumed run continues where its checkpoint was.
    """

    def __init__(self, folder: str | os.PathLike, start: int) -> None:
        # File names have a resolution of one second: without an ending of its own, a
        # second writer in the folder would write into the file of the first.
        make = tensorboardx().SummaryWriter
        self._writer = make(
            os.fspath(folder),
            purge_step=start + 1,
            flush_secs=10,
            write_to_disk=processes.is_first(),
            filename_suffix=f".{os.getpid()}.{next(_numbers):04}{_FILE_END}",
        )
        charts = {
            category: {title: ["Multiline", tags] for title, tags in charts.items()}
            for category, charts in DASHBOARD.items()
        }
        self._writer.add_custom_scalars(charts)

    def scalars(self, step: int, values: Mapping[str, float | None]) -> None:
        """Writes numbers by their tags; None is left out."""
        for tag, value in values.items():
            if value is not None:
                self._writer.add_scalar(tag, value, step)

    def histogram(self, step: int, tag: str, values: np.ndarray) -> None:
        """Writes a histogram of an array, if there is anything in it."""
        if len(values):
            self._writer.add_histogram(tag, values, step, bins=40)

    def image(self, step: int, tag: str, pixels: np.ndarray) -> None:
        """Writes an image: uint8 array `(height, width, 3)`."""
        self._writer.add_image(tag, pixels, step, dataformats="HWC")

    def flush(self) -> None:
        """Puts on disk what the writer's thread has taken from its queue so far.

        The rest follows within `flush_secs`; `close` waits for all of it.
        """
        self._writer.flush()

    def close(self) -> None:
        """Writes what is left and closes the file."""
        self._writer.close()


def last_value(
    folder: str | os.PathLike, tag: str, step: int
) -> tuple[int, float] | None:
    """The last number that this package wrote under a tag, and its step, or None.

    What was written of later steps than `step` does not count.
    """
    found: tuple[int, float] | None = None
    paths = pathlib.Path(folder).glob(f"events.out.tfevents.*{_FILE_END}")
    for path in sorted(paths, key=lambda path: path.stat().st_mtime):
        for event in _events(path):
            for value in event.summary.value:
                if value.tag == tag and event.step <= step:
                    found = event.step, float(value.simple_value)
    return found


def _events(path: pathlib.Path) -> Iterator[Any]:
    """The events of a file; of one that is cut off, those before the cut."""
    event_class = tensorboardx().proto.event_pb2.Event
    with open(path, "rb") as file:
        # A record: its length (8 bytes), a checksum (4), the event, a checksum (4).
        while len(header := file.read(12)) == 12:
            (length,) = struct.unpack("<Q", header[:8])
            record = file.read(length)
            if len(record) < length or len(file.read(4)) < 4:
                return
            yield event_class.FromString(record)
