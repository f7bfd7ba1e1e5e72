"""Callbacks of a run: what is kept for its folder, and what is shown meanwhile."""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import keras
import numpy as np

from keras_idea.callbacks.monitor.neuron_lives import NeuronLives, rank_levels
from keras_idea.errors import TrainingDiverged
from keras_idea.finding.find import find_groups
from keras_idea.functional.counts import mean_between
from keras_idea.lm.evaluation.perplexity import perplexity_of
from keras_idea.lm.report.curves import TrainingCurve
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.validation import plural

Nats = TypeVar("Nats", float, np.ndarray)


@dataclasses.dataclass(frozen=True)
class LossUnits:
    """From a loss in nats per token to bits per byte of text, and to perplexity.

    Keras divides a weighted loss by the number of all tokens. So the bits per byte of
    responses are the loss divided by the share of tokens that it counts, then by the
    bytes per counted token.
    """

    # Bytes a token of the training text stands for on average.
    train: float = 1.0
    # Bytes a token stands for among those that a validation predicts: exactly, so that
    # its bits can be compared between tokenizers.
    validation: float = 1.0
    # Shares of the tokens that the losses count.
    train_counted: float = 1.0
    validation_counted: float = 1.0

    def of_training(self, nats: Nats) -> Nats:
        """Bits a byte of a training loss."""
        return nats / self.train_counted / self.train / math.log(2.0)

    def of_validation(self, nats: Nats) -> Nats:
        """Bits a byte of a validation loss."""
        return nats / self.validation_counted / self.validation / math.log(2.0)

    def perplexity(self, validation_bits: float) -> float:
        """Perplexity per token, of the bits per byte of a validation."""
        return perplexity_of(validation_bits * self.validation * math.log(2.0))


def text_loss(logs: Mapping[str, float], prefix: str = "") -> float:
    """The loss of the text, in nats per token, without what a teacher adds to it.

    `prefix` is "val_" for the validation's.
    """
    return logs.get(f"{prefix}student_loss", logs[f"{prefix}loss"])


class Recorder(keras.callbacks.Callback):
    """Records the loss of every optimizer step, and when which neurons lived.

    It reads the neurons when a step ends; the model becomes narrow only after that, so
    at the step of the compaction it still sees every neuron. An epoch is one
    validation interval.

    Args:
        name: str, the run's name in the metrics.
        sizes: `Sizes` at the start; with the heads of a layer, if some are pruned.
        learning_rate: the `LearningRateSchedule` of the run.
        loss_units: `LossUnits`, how losses are converted.
        reading_steps: steps after which the neurons are read. Each reading
            syncs the state on jax, so they should be few.
        on_validation: function without arguments or None, called after each
            validation.
        micro_batches: int, batches of an optimizer step.
        widths: list of str, the narrower widths whose validations are in the logs, as
            of `ElasticCallback`.

    Attributes:
        seconds: float, the time of its `fit`s so far, those before a kill too.
    """

    def __init__(
        self,
        name: str,
        sizes: Sizes,
        learning_rate: keras.optimizers.schedules.LearningRateSchedule,
        loss_units: LossUnits,
        reading_steps: Iterable[int] = (),
        on_validation: Callable[[], None] | None = None,
        micro_batches: int = 1,
        widths: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.name = name
        self.micro_batches = micro_batches
        self.step = 0
        self.reading_steps = frozenset(reading_steps)
        self.on_validation = on_validation
        self._schedule = learning_rate
        self._loss_units = loss_units
        self._width: list[float] = [sizes.neurons]
        self._heads: list[float] = [] if sizes.kv_groups is None else [sizes.kv_groups]
        self._loss: list[float] = []
        self._validation: dict[int, float] = {}
        self._at_widths: dict[str, dict[int, float]] = {name: {} for name in widths}
        self._epoch_logs: list[dict[str, float]] = []
        # Levels of the neurons by kind, layer and step: a quarter of the scores' size.
        self._levels: dict[tuple[str, str], dict[int, np.ndarray]] = {}
        self.seconds, self._since = 0.0, math.nan
        self._step_seconds: list[float] = []
        self._step_began = math.nan

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Starts the clock."""
        self._since = time.perf_counter()

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, float] | None = None
    ) -> None:
        """Notes when a step begins."""
        if batch % self.micro_batches == 0:
            self._step_began = time.perf_counter()

    def on_train_batch_end(
        self, batch: int, logs: dict[str, float] | None = None
    ) -> None:
        """Keeps the step's logs and time; reads the neurons where it is time."""
        if (batch + 1) % self.micro_batches:
            return
        self.step += 1
        # The logs hold numbers, so the step is done.
        self._step_seconds.append(time.perf_counter() - self._step_began)
        # The dict itself: callbacks that come later add to it (the width).
        self._epoch_logs.append({} if logs is None else logs)
        if self.step in self.reading_steps:
            self._read_neurons()

    def begin_with(self, logs: dict[str, float]) -> None:
        """Keeps what `evaluate` says of the model before its first step."""
        self._validation[0] = self._loss_units.of_validation(text_loss(logs))

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Settles the interval; stops a run whose loss is no number."""
        now = time.perf_counter()
        self.seconds, self._since = self.seconds + now - self._since, now
        self._settle_epoch()
        if logs and "val_loss" in logs:
            nats = text_loss(logs, "val_")
            self._validation[self.step] = self._loss_units.of_validation(nats)
        for name, points in self._at_widths.items():
            if logs and f"val_{name}_loss" in logs:
                nats = text_loss(logs, f"val_{name}_")
                points[self.step] = self._loss_units.of_validation(nats)
        if self.on_validation is not None:
            self.on_validation()
        if not math.isfinite(self._loss[-1]):
            raise TrainingDiverged(
                f"The loss of the {self.name} model is {self._loss[-1]} after "
                f"{plural(self.step, 'step')}. Lower `optimizer.peak_learning_rate`, "
                "or raise `optimizer.warmup_steps`."
            )

    def step_ms(self, first: int = 0, last: int | None = None) -> float | None:
        """The median milliseconds of the steps after `first` up to `last`, if any."""
        seconds = self._step_seconds[first:last]
        return 1000 * statistics.median(seconds) if seconds else None

    def curve(self) -> TrainingCurve:
        """The `TrainingCurve` so far."""
        judged = self._validation.items()
        return TrainingCurve(
            name=self.name,
            steps=np.arange(1, len(self._loss) + 1),
            loss=np.array(self._loss),
            learning_rate=keras.ops.convert_to_numpy(
                self._schedule(np.arange(len(self._loss)))
            ),
            width=np.array(self._width[1:], dtype="int64"),
            validation=dict(self._validation),
            kv_groups=np.array(self._heads[1:], "int64") if self._heads else None,
            perplexity={
                step: self._loss_units.perplexity(bits) for step, bits in judged
            },
            at_widths={name: dict(points) for name, points in self._at_widths.items()},
        )

    def neurons(self) -> list[NeuronLives]:
        """List of `NeuronLives`, one for each layer that is pruned."""
        return [
            NeuronLives(
                layer, np.array(list(read)), np.stack(list(read.values())), kind
            )
            for (kind, layer), read in self._levels.items()
        ]

    def get_state(self) -> dict[str, np.ndarray]:
        """Everything recorded so far, as arrays; to be asked for between epochs."""
        state = {
            "loss": np.array(self._loss),
            "width": np.array(self._width, "float64"),
            "kv_groups": np.array(self._heads, "float64"),
            "validated": np.array(list(self._validation), "int64"),
            "validation": np.array(list(self._validation.values())),
            "seconds": np.array([self.seconds]),
            "step_seconds": np.array(self._step_seconds),
        }
        for name, points in self._at_widths.items():
            state[f"validated_at/{name}"] = np.array(list(points), "int64")
            state[f"validation_at/{name}"] = np.array(list(points.values()))
        for (kind, layer), read in self._levels.items():
            state[f"levels_at/{kind}/{layer}"] = np.array(list(read), "int64")
            state[f"levels/{kind}/{layer}"] = np.stack(list(read.values()))
        return state

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Goes on from what `get_state` of an earlier recorder returned."""
        self._loss, self._width = state["loss"].tolist(), state["width"].tolist()
        self._heads = state["kv_groups"].tolist() if self._heads else []
        self.step = len(self._loss)
        (self.seconds,) = state["seconds"].tolist()
        self._step_seconds = state["step_seconds"].tolist()
        pairs = zip(state["validated"], state["validation"], strict=True)
        self._validation = {int(step): float(bits) for step, bits in pairs}
        for name in self._at_widths:
            points = state[f"validated_at/{name}"], state[f"validation_at/{name}"]
            self._at_widths[name] = dict(
                zip(*(p.tolist() for p in points), strict=True)
            )
        for key, steps in state.items():
            if key.startswith("levels_at/"):
                _, kind, layer = key.split("/", 2)
                rows = zip(steps.tolist(), state[f"levels/{kind}/{layer}"], strict=True)
                self._levels[kind, layer] = dict(rows)

    def _settle_epoch(self) -> None:
        # Running means of the epoch. Micro-batches are equal in size, so this is exact.
        means = np.array([0.0, *map(text_loss, self._epoch_logs)])
        steps = np.arange(len(means))
        losses = mean_between((steps[:-1], means[:-1]), (steps[1:], means[1:]))
        self._loss.extend(self._loss_units.of_training(losses).tolist())
        for logs in self._epoch_logs:
            drawn = logs.get("drawn_width", self._width[-1])
            self._width.append(logs.get("width", drawn))
            if self._heads:
                self._heads.append(logs.get("kv_groups", self._heads[-1]))
        self._epoch_logs = []

    def _read_neurons(self) -> None:
        # `self.model` syncs the state on jax; without it these are stale.
        for ffn in find_groups(self.model):
            state = ffn.held_state
            if state is None or state.active_track is None:
                continue  # nobody ranks them: all that are left live on
            importance = keras.ops.convert_to_numpy(ffn.importance())
            alive = keras.ops.convert_to_numpy(ffn.mask) > 0
            every = ffn.by_original_index(np.where(alive, importance, np.nan))
            read = self._levels.setdefault((ffn.kind, ffn.name), {})
            read[self.step] = rank_levels(every).ravel()


class ShortBar(keras.callbacks.ProgbarLogger):
    """Keras's own progress bar, in bits per byte and within 80 columns.

    A validation adds its bits per byte and its perplexity per token.

    Keras redraws a line wider than the terminal on a new line at each update. Put this
    callback after those that add to the logs.
    """

    def __init__(self, loss_units: LossUnits) -> None:
        super().__init__()
        self._loss_units = loss_units

    def on_train_batch_end(
        self, batch: int, logs: dict[str, float] | None = None
    ) -> None:
        """Shows the interval's mean loss so far, and the width."""
        super().on_train_batch_end(batch, self._shown(logs or {}))

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Shows the validation besides."""
        super().on_epoch_end(epoch, self._shown(logs or {}))

    def _shown(self, logs: dict[str, float]) -> dict[str, float]:
        shown = {"bits": self._loss_units.of_training(text_loss(logs))}
        # One of them: a line has 80 columns.
        for units in ("width", "kv_groups", "drawn_width"):
            if units in logs:
                shown[units] = logs[units]
                break
        if "val_loss" in logs:
            nats = text_loss(logs, "val_")
            shown["validation bits"] = self._loss_units.of_validation(nats)
            perplexity = self._loss_units.perplexity(shown["validation bits"])
            shown["perplexity per token"] = perplexity
        return shown
