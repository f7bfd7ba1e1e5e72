"""The callback that shows a run in TensorBoard while it runs."""

import collections
import os
import time
import weakref
from typing import Any

import keras

from keras_idea.callbacks.monitor.event_log import (
    EventLog,
    last_value,
    tensorboardx,
)
from keras_idea.callbacks.monitor.interval import IntervalMeter
from keras_idea.callbacks.monitor.neuron_watch import (
    NeuronLog,
    NeuronWatch,
    watched_groups,
)
from keras_idea.callbacks.monitor.run_figures import RunFigures, infer_tokens
from keras_idea.errors import ArgumentError
from keras_idea.files import check_folder
from keras_idea.keras_private.callbacks import peers
from keras_idea.keras_private.optimizer_variables import as_int
from keras_idea.step.rate_log import RateLog, StepCount
from keras_idea.validation import check_int, check_number


class Monitor(keras.callbacks.Callback):
    """Logs a run for TensorBoard; needs no TensorFlow.

        tensorboard --logdir DIR    # then open its address + "#custom_scalars"

    Use it to see whether scores settle before pruning begins, and how fast a run is.
    `IdeaPruneCallback(..., log_dir=DIR)` has its own `Monitor`. In the list of
    callbacks, put a `Monitor` after `IdeaPruneCallback`.

    The tab "Custom Scalars" holds one dashboard, "IDEA Prune". It shows loss, learning
    rate, width, sparsity, churn, speed, minutes left, FLOPs and memory. Width and
    sparsity are shown as means, per FFN, and per attention layer whose key/value heads
    are pruned. "Histograms" shows the importance of the active neurons, or heads, of
    each layer. "Images" shows heat maps of when each neuron was active: blue is
    important, yellow unimportant, gray pruned. More than 12 layers share one heat map
    for all neurons, and one for all heads.

    - `loss/train`: mean over the batches since the last point; `loss/validation`.
    - `churn`: neurons that entered or left the k most important ones since the last
      reading. k is the width that pruning aims at. Importance comes from the scores of
      the neurons, whatever the pruning method is.
    - `flops/train`: operations of training so far, all products of matrices, with FFNs
      at their width in memory, or at the width that a step of `ElasticCallback`
      computes: `6 x tokens x (weights in matrices + 2 x sequence length
      x features of all queries)`.
    - `flops/utilisation`: the fraction of `peak_flops` that is used.
    - `memory`: of this process on the host; of the devices if the backend reports it.

    Args:
        log_dir: path. The folder of the logs. A relative path counts from the working
            directory at this call.
        update_every: int >= 1. Optimizer steps between two points. Defaults to 10.
        neurons_every: int >= 1. Optimizer steps between two readings of the neurons. A
            reading syncs the model on JAX. Defaults to 50.
        tokens_per_batch: int >= 1 or None. Tokens of a training batch. None uses the
            samples of a batch times the length of the model's inputs. If that is not
            fixed, tokens per second and FLOPs are left out. Defaults to None.
        peak_flops: float > 0 or None. Operations per second of all devices together.
            None shows no utilization. Defaults to None.
        sequence_length: int >= 1 or None. Tokens that attend to each other. None uses
            the length of the model's inputs. If that is not fixed, FLOPs do not include
            the products of queries, keys and values. Defaults to None.

    Raises:
        ImportError: If tensorboardX, Pillow or psutil is not installed.
        ValueError: If an argument is outside its range. When `fit` begins: if the model
            is not compiled.

    Example:
    >>> monitor = Monitor("runs/logs", tokens_per_batch=4 * 16)
    >>> _ = model.fit(data, callbacks=[prune, monitor], verbose=0)

    Notes:
        The step of every point is `optimizer.iterations`, also in a second `fit` and in
        a resumed run. A resumed run adds to the same folder.
        `keras.callbacks.TensorBoard` may write there too.
    """

    # What runs at the end of a batch only keeps the logs.
    async_safe = True

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        update_every: int = 10,
        neurons_every: int = 50,
        tokens_per_batch: int | None = None,
        peak_flops: float | None = None,
        sequence_length: int | None = None,
    ) -> None:
        super().__init__()
        folder = check_folder("log_dir", log_dir)
        given = os.fspath(log_dir)
        self.log_dir = given if "://" in given else str(folder)  # a URL stays one
        self.update_every = check_int("update_every", update_every, minimum=1)
        self.neurons_every = check_int("neurons_every", neurons_every, minimum=1)
        self.tokens_per_batch, self.sequence_length = tokens_per_batch, sequence_length
        for name in ("tokens_per_batch", "sequence_length"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), minimum=1)
        self.peak_flops = peak_flops
        if peak_flops is not None and not check_number("peak_flops", peak_flops):
            raise ArgumentError(
                f"`peak_flops` must be above 0. Received: {peak_flops!r}."
            )
        tensorboardx()
        self._log: Any = None
        self._watched: Any = None
        self._watch = NeuronWatch()

    def __reduce__(self) -> tuple:
        """A copy, or a pickle, begins without a run, in the same folder."""
        every = (self.update_every, self.neurons_every)
        known = (self.tokens_per_batch, self.peak_flops, self.sequence_length)
        return type(self), (self.log_dir, *every, *known)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Opens an event file that begins at the optimizer's step."""
        model = self.model
        if getattr(model, "optimizer", None) is None:
            raise ArgumentError(
                f"Model '{model.name}' is not compiled with an optimizer, so there are "
                "no steps to log. Call `model.compile(optimizer=..., loss=...)`."
            )
        if self._log is not None:
            self._log.close()  # of a fit that an exception has ended
        if self._watched is None or self._watched() is not model:
            self._watched, self._watch = weakref.ref(model), NeuronWatch()
        start = as_int(model.optimizer.iterations)
        self._earlier = start and last_value(self.log_dir, "flops/train", start)
        self._log = EventLog(self.log_dir, start)
        self._neurons = NeuronLog(self._log, self._watch)
        self._ffns = watched_groups(model)
        self._watch.narrowed(self._ffns)  # what was narrowed before is no news
        self._start = start
        self._point = _Last(self.update_every, start)
        self._reading = _Last(self.neurons_every, start)
        self._meter = IntervalMeter()
        self._points: collections.deque = collections.deque()
        self._count: Any = None
        self._figures: Any = None
        self._first_epoch: int | None = None
        self._batches_before = self._batches = 0

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Notes where the optimizer stands: reading it each batch would cost."""
        self._first_epoch = epoch if self._first_epoch is None else self._first_epoch
        self._count = StepCount(self.model)
        self._point.begin_epoch()
        self._reading.begin_epoch()
        self._rate = RateLog(self.model, self._count, peers(self), self)
        self._meter.begin_epoch()
        self._batches_before += self._batches
        self._batches = 0
        self._metrics_of_epoch = True
        self._of_batch: dict = {}

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Writes and reads what has become due, between two batches."""
        self._advance(batch)
        self._rate.note(batch)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Keeps the batch's logs: maybe in another thread, maybe late."""
        self.keep(batch, logs, time.perf_counter())

    def keep(self, batch: int, logs: dict | None, now: float) -> None:
        """As `on_train_batch_end`, of a batch that ended at `time.perf_counter()`."""
        # The dict itself: callbacks that come later add to it (the width).
        self._of_batch = {} if logs is None else logs
        self._meter.add(batch + 1, self._of_batch, now)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Writes what is due, and the validation."""
        # A validation has begun the metrics anew.
        self._metrics_of_epoch = not any(name.startswith("val_") for name in logs or {})
        self._advance(self._meter.latest)
        step = as_int(self.model.optimizer.iterations)
        validation: dict[str, float | None] = {
            "loss/validation" if name == "val_loss" else f"metrics/{name}": value
            for name, value in (logs or {}).items()
            if name.startswith("val_") or self._is_of_epoch(name)
        }
        if self._rate.of(self._batches) is None:  # no point of a batch has told it
            validation["learning_rate"] = self._rate.at_end(self._batches)
        self._log.scalars(step, validation)
        self._log.flush()

    def _is_of_epoch(self, name: str) -> bool:
        """Whether it is a loss that is known of an epoch alone: that of a width."""
        return name.endswith("_loss") and name not in self._of_batch

    def on_train_end(self, logs: dict | None = None) -> None:
        """Writes a last point and a last reading, and closes the file."""
        if self._log is None:
            return
        if self._count is not None and self._batches:
            step = self._count.after(self._batches)
            if step > self._point.step:
                self._add_point(step)
            self._write_points()
            if step > self._reading.step:
                self.read_neurons(step)
            self._neurons.draw(self._true(step))
        self._log.close()
        self._log = None

    def read_neurons(self, step: int, last: bool = False) -> None:
        """Reads the neurons, after so many steps; between two batches only."""
        true_step = self._true(step)
        self._neurons.read(watched_groups(self.model), true_step, last)
        self._reading.note(step, true_step)

    def _advance(self, batches: int) -> None:
        """Does what is due after so many batches of this epoch."""
        step = self._count.after(batches)
        if self._watch.narrowed(self._ffns):  # the last ranking, whether due or not
            self.read_neurons(step, last=True)
        if batches < 1:
            return
        self._batches = batches
        if self._figures is None:
            self._figures = self._figures_of_fit()
        self._figures.work.after(self._batches_before + batches)
        if self._point.lies_behind(step):
            self._add_point(step)
        self._write_points()
        if self._reading.lies_behind(step):
            self.read_neurons(step)

    def _true(self, step: int) -> int:
        """The optimizer's step, read where the count of batches does not tell it."""
        return step if self._count.known else as_int(self.model.optimizer.iterations)

    def _add_point(self, step: int) -> None:
        """Notes that there is a point here; its logs may not have arrived."""
        work = self._figures.work.after(self._batches_before + self._batches)
        true_step = self._true(step)
        self._points.append((true_step, self._batches_before, self._batches, work))
        self._point.note(step, true_step)

    def _write_points(self) -> None:
        while self._points:
            step, before, batches, work = self._points[0]
            interval = self._meter.take(batches)
            if interval is None:
                return
            self._points.popleft()
            values = self._figures.at(interval, before + batches, work)
            # What the pruning callback has told, or left out; alone its own notes.
            is_covered = "width" in interval.logs or not self._count.known
            rate = None if is_covered else self._rate.of(batches)
            values["learning_rate"] = interval.logs.get("learning_rate", rate)
            if interval.batches_per_second is not None and self._count.known:
                speed = interval.batches_per_second / self._count.per_step
                values["speed/steps_per_second"] = speed
            self._log.scalars(step, values)

    def _figures_of_fit(self) -> RunFigures:
        """Made after the first batch: only now is every model built."""
        self._ffns = watched_groups(self._watched())
        steps, epochs = self.params.get("steps"), self.params.get("epochs")
        known = steps is not None and epochs is not None
        tokens = self.tokens_per_batch
        if tokens is None and self._metrics_of_epoch:
            tokens = infer_tokens(self.model, self._batches)
        batches = steps * (epochs - self._first_epoch) if known else None
        rest = (self.peak_flops, batches, self._flops_before, self.sequence_length)
        return RunFigures(self._watched(), tokens, *rest)

    def _flops_before(self, flops_per_batch: float) -> float:
        """What the steps before this fit have cost, as far as the folder tells."""
        if not self._earlier:
            return 0.0
        step, flops = self._earlier
        return flops + (self._start - step) * self._count.per_step * flops_per_batch


class _Last:
    """When what is done every so many steps was done last.

    By the count of batches, and by the optimizer: where the train step is the user's
    own, the count is a guess that begins anew with each epoch.
    """

    def __init__(self, every: int, step: int) -> None:
        self._every, self.step, self._true_step = every, step, step

    def lies_behind(self, step: int) -> bool:
        """Whether it is due after so many steps, by the count of batches."""
        return step // self._every > self.step // self._every

    def note(self, step: int, true_step: int) -> None:
        """It was done now."""
        self.step, self._true_step = step, true_step

    def begin_epoch(self) -> None:
        """The count of batches begins at the optimizer's step."""
        self.step = self._true_step
