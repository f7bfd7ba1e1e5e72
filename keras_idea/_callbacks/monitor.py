"""Shows a run in TensorBoard while it runs."""

import functools
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_idea import _processes as processes
from keras_idea._files import check_folder
from keras_idea._finding.find import find_groups
from keras_idea._graph.group import FFN
from keras_idea._keras.optimizer_variables import StepCount, as_int
from keras_idea._validation import check_int, require

_CHARTS = {
    "loss": ["loss", "val_loss"],
    "learning rate": ["learning_rate"],
    "width: active units": ["width.*"],
    "churn: units that enter or leave the top k, mean": ["churn/mean"],
    "churn of each group": ["churn/(?!mean$).*"],
}
# Units per group in the heat map, and readings; then every other reading is dropped.
_UNITS, _READINGS = 64, 320
# Yellow (least important) over green to blue (most important); gray is pruned.
_RAMP = ((255, 255, 217), (127, 205, 187), (29, 145, 192), (37, 52, 148))
_PRUNED, _INK = (222, 226, 230), (31, 41, 51)
# Pixels of the heat map: its width, of all bands at least, of a band, a line of text.
_WIDTH, _HEIGHT, _BAND, _LINE = 640, 480, 8, 18
_numbers = itertools.count()
_needs = functools.partial(
    require, purpose="Logging to TensorBoard", extra="tensorboard"
)


class Monitor(keras.callbacks.Callback):
    """Logs a run for TensorBoard; does not need TensorFlow.

        tensorboard --logdir DIR    # then open its address + "#custom_scalars"

    Use it to see whether scores settle before pruning begins. Put it after
    `IdeaPruneCallback` in the list of callbacks. It shows:

    - Everything in `logs`, by its name; of a batch, means over the epoch so far.
    - `width/NAME`: the active units of each group that is pruned.
    - `churn/NAME`: the units that entered or left the k most important ones since the
      last reading, where k is the width that pruning aims at; `churn/mean`.
    - The image `neurons`: when units were active, with a band for each group. Units
      that were pruned first are on top. Blue is important, yellow is unimportant, gray
      is pruned.

    The step of every point is `optimizer.iterations`, also in a second `fit` and in a
    resumed run, which adds to the same folder. If the model has its own train step,
    points within an epoch count one step per batch.

    Args:
        log_dir: path. The folder of the logs.
        update_every: int >= 1. Optimizer steps between two points. Defaults to 10.
        neurons_every: int >= 1. Optimizer steps between two readings of the units. A
            reading waits for the device. Defaults to 50.

    Raises:
        ImportError: If tensorboardX or Pillow is not installed.
        ValueError: If an argument is outside its range.

    Example:
    >>> monitor = Monitor("runs/logs")
    >>> _ = model.fit(data, callbacks=[prune, monitor], verbose=0)
    """

    # What runs at the end of a batch touches only the logs.
    async_safe = True

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        update_every: int = 10,
        neurons_every: int = 50,
    ) -> None:
        super().__init__()
        folder, given = check_folder("log_dir", log_dir), os.fspath(log_dir)
        self.log_dir = given if "://" in given else str(folder)  # a URL stays one
        self.update_every = check_int("update_every", update_every, minimum=1)
        self.neurons_every = check_int("neurons_every", neurons_every, minimum=1)
        _needs("PIL"), _needs("tensorboardX")
        self._writer: Any = None

    def __reduce__(self) -> tuple:
        """A copy, or a pickle, begins without a run, in the same folder."""
        return type(self), (self.log_dir, self.update_every, self.neurons_every)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Opens an event file that begins at the optimizer's step."""
        self.on_train_end()  # of a `fit` that an exception has ended
        start = as_int(self.model.optimizer.iterations)
        self._start = self._reading = start
        self._writer = _needs("tensorboardX").SummaryWriter(
            self.log_dir,
            purge_step=start + 1,  # hides what a killed run wrote later
            flush_secs=10,
            write_to_disk=processes.is_first(),
            # Else a second writer in the same second uses the first one's file.
            filename_suffix=f".{os.getpid()}.{next(_numbers):04}",
        )
        charts = {name: ["Multiline", tags] for name, tags in _CHARTS.items()}
        self._writer.add_custom_scalars({"IDEA Prune": charts})
        self._due: dict[int, dict | None] = {}
        self._steps: list[int] = []
        self._units: dict[str, _Units] = {}

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Reads where the optimizer is, once: each batch would wait for the device."""
        self._count = StepCount(self.model)

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Writes the logs that have arrived, and reads the units when it is time."""
        self._write_due()
        step = self._count.after(batch)
        if step // self.neurons_every > self._reading // self.neurons_every:
            self._read(step)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Keeps the logs of a point: Keras may call it from threads."""
        step = self._count.after(batch + 1)
        if step // self.update_every > self._count.after(batch) // self.update_every:
            self._due[step] = logs

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Writes the epoch's logs, such as those of a validation, and the heat map."""
        step = as_int(self.model.optimizer.iterations)
        self._write_due()
        if step > self._reading:
            self._read(step)
        self._write(step, logs)
        if self._units:
            bands = {name: np.array(each.levels) for name, each in self._units.items()}
            image = heat_map(bands, self._steps, self._start)
            self._writer.add_image("neurons", image, step, dataformats="HWC")
        self._writer.flush()

    def on_train_end(self, logs: dict | None = None) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def _write_due(self) -> None:
        for step in sorted(self._due):
            self._write(step, self._due.pop(step))

    def _write(self, step: int, values: dict | None) -> None:
        for tag, value in (values or {}).items():
            if np.ndim(value) == 0:
                self._writer.add_scalar(tag, value, step)

    def _read(self, step: int) -> None:
        """Writes width and churn of each group that is pruned; notes its units."""
        self._reading = step
        groups = [g for g in find_groups(self.model) if g.held_state is not None]
        if not self._steps:
            self._units = {group.name: _Units() for group in groups}
        self._steps.append(step)
        values: dict[str, float] = {}
        churns = []
        for group in groups:
            values[f"width/{group.name}"] = group.width
            each = self._units.get(group.name)
            churn = None if each is None else each.read(group)
            if churn is not None:
                values[f"churn/{group.name}"] = churn
                churns.append(churn)
        if churns:
            values["churn/mean"] = float(np.mean(churns))
        self._write(step, values)
        if len(self._steps) > _READINGS:
            del self._steps[::2]
            for each in self._units.values():
                del each.levels[::2]


class _Units:
    """The level of some units of one group at each reading.

    Levels are 0 for a pruned unit, and 1 to 255 for the rank of an active one. Units
    keep the places that they had before any narrowing.
    """

    def __init__(self) -> None:
        self.levels: list[np.ndarray] = []
        self._top: np.ndarray | None = None

    def read(self, group: FFN) -> int | None:
        """Notes the units of a group; returns the churn since the last reading."""
        mask = keras.ops.convert_to_numpy(group.mask)
        active = np.nan_to_num(group.by_original_index(mask)) > 0
        width, before = group.width, self._top
        importance = keras.ops.convert_to_numpy(group.importance())
        values = np.nan_to_num(group.by_original_index(importance), nan=-np.inf)
        order = np.argsort(-np.where(active, values, -np.inf), kind="stable")
        rank = np.argsort(order)  # 0: the most important
        levels = np.maximum(255 - 254 * rank // max(width - 1, 1), 1)
        flat = np.where(active, levels, 0).astype("uint8").ravel()
        some = np.linspace(0, flat.size - 1, min(_UNITS, flat.size)).astype(int)
        self.levels.append(flat[some])
        self._top = rank < (group.state.target_dim or width)
        return None if before is None else int((self._top != before).sum())


def heat_map(
    bands: Mapping[str, np.ndarray], steps: Sequence[int], start: int
) -> np.ndarray:
    """Draws bands below one another, steps to the right: uint8 `(height, width, 3)`.

    `bands` are titles and levels `(readings, units)`. In a band, units are sorted by
    the reading at which they were pruned, then by their mean level.
    """
    images, drawing = _needs("PIL.Image"), _needs("PIL.ImageDraw")
    places = np.linspace(0, 254, len(_RAMP))
    ramp = [np.interp(np.arange(255), places, color) for color in np.transpose(_RAMP)]
    colors = np.vstack([[_PRUNED], np.transpose(ramp)]).round().astype("uint8")
    columns = np.searchsorted(steps, np.linspace(start, steps[-1], _WIDTH))
    rows = max(_BAND, _HEIGHT // len(bands))
    parts: list[np.ndarray] = []
    for title, levels in bands.items():
        gone = (levels == 0).argmax(axis=0) + len(levels) * (levels > 0).all(axis=0)
        order = np.lexsort((levels.mean(axis=0), gone))
        shown = order[np.linspace(0, len(order) - 1, rows).round().astype(int)]
        head = images.new("RGB", (_WIDTH, _LINE), "white")
        pen = drawing.Draw(head)
        if not parts:
            title = f"{title}, steps {start:,} to {steps[-1]:,}"
        pen.text((1, _LINE // 2), title, _INK, anchor="lm", font_size=13)
        parts += [np.asarray(head), colors[levels[columns][:, shown].T]]
    return np.concatenate(parts)
