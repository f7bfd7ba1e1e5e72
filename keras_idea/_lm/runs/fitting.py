"""One training of a run: its `fit`, its checkpoints, and the figures of each epoch."""

import dataclasses
import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import keras
import numpy as np

from keras_idea import _processes as processes
from keras_idea._callbacks import Checkpoint, Monitor
from keras_idea._distillation import distiller
from keras_idea._lm import distribution as devices
from keras_idea._lm.data.tokens import Batch
from keras_idea._lm.evaluation.perplexity import perplexity_of
from keras_idea._lm.report.curves import Curve, metrics_csv
from keras_idea._lm.runs import text as run_text
from keras_idea._lm.runs.compiling import learning_rate
from keras_idea._lm.runs.config import RunConfig
from keras_idea._lm.runs.folder import RunFolder
from keras_idea._lm.runs.models import RunModels
from keras_idea._lm.runs.sizes import Timeline
from keras_idea.errors import PruningStopped, TextError
from keras_idea.hub.inputs import token_inputs

Nats = TypeVar("Nats", float, np.ndarray)


@dataclasses.dataclass(frozen=True)
class LossUnits:
    """Converts a loss in nats per token to bits per byte, and to perplexity.

    Keras divides a weighted loss by the number of all tokens, so the loss of responses
    is divided by the share of tokens that it counts.
    """

    train: float = 1.0  # mean bytes per token of the training text
    validation: float = 1.0  # of exactly the tokens that a validation predicts
    train_counted: float = 1.0  # the share of tokens that the loss counts
    validation_counted: float = 1.0

    def of_training(self, nats: Nats) -> Nats:
        """Bits per byte of a training loss."""
        return nats / self.train_counted / self.train / math.log(2.0)

    def of_validation(self, nats: Nats) -> Nats:
        """Bits per byte of a validation loss."""
        return nats / self.validation_counted / self.validation / math.log(2.0)

    def perplexity(self, validation_bits: float) -> float:
        """Perplexity per token, from the bits per byte of a validation."""
        return perplexity_of(validation_bits * self.validation * math.log(2.0))


@dataclasses.dataclass(frozen=True)
class Run:
    """A run while it is carried out; `curves` has one per training so far."""

    config: RunConfig
    models: RunModels
    timeline: Timeline
    folder: RunFolder
    teacher: keras.Model | None = None
    distribution: devices.Distribution | None = None
    curves: dict[str, Curve] = dataclasses.field(default_factory=dict)

    @property
    def length(self) -> int:
        """Tokens of a sequence."""
        return self.config.model.sequence_length

    @functools.cached_property
    def validation(self) -> Batch:
        """Arrays `(windows, length)` that every validation reads: whole batches."""
        data, rows = self.config.data, self.config.distribution.data
        limit = data.validation_batches * data.batch_size
        arrays = self.models.text.held_out_windows(self.length, limit)
        count = len(arrays[0])
        whole = count - count % data.batch_size or count - count % rows
        if not whole:
            raise TextError(
                f"The held-out text has {count} sequences, fewer than the {rows} "
                "devices. Give more text, or raise `data.validation_fraction`."
            )
        return tuple(array[:whole] for array in arrays)

    @functools.cached_property
    def rows_at_once(self) -> int:
        """Rows of a validation that are computed at once, of model and teacher alike.

        The most that divide all its rows and fit into a part of a training batch.
        """
        rows = len(self.validation[0])
        most = self.config.data.batch_size // self.config.parts
        counts = range(self.config.distribution.data, min(rows, most) + 1)
        each = self.config.distribution.data
        return max(n for n in counts if rows % n == 0 and n % each == 0)

    @functools.cached_property
    def units(self) -> LossUnits:
        """`LossUnits` of this run's tokens."""
        text = self.models.text
        _, following, *weights = self.validation
        counts = weights[0] > 0 if weights else np.ones(following.shape, bool)
        return LossUnits(
            train=text.bytes_per_token(),
            validation=text.bytes_per_token(following[counts]),
            train_counted=text.counted,
            validation_counted=float(counts.mean()),
        )


class Progress(keras.callbacks.Callback):
    """Adds the figures of an epoch to its logs; writes, prints and checks them.

    An epoch is what lies between two validations. Put it before the run's `Checkpoint`,
    whose `history` then holds the figures.
    """

    def __init__(self, run: Run, name: str) -> None:
        super().__init__()
        self.run, self.name = run, name
        self.before = math.nan  # bits per byte of a validation before the first step
        self._began = self._took = 0.0

    def get_state(self) -> dict[str, np.ndarray]:
        """Returns what a checkpoint holds of it."""
        return {"before": np.array([self.before])}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Puts back what `get_state` returned."""
        (self.before,) = state["before"].tolist()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Starts the clock."""
        self._began = time.perf_counter()

    def on_test_begin(self, logs: dict | None = None) -> None:
        """Stops the clock: the training steps of the epoch are done."""
        self._took = time.perf_counter() - self._began

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the figures; stops a run whose loss is not finite."""
        run, logs = self.run, {} if logs is None else logs
        every, units = run.config.run.validate_every, run.units
        step = (epoch + 1) * every
        bits = units.of_training(text_loss(logs))
        validation = units.of_validation(text_loss(logs, "val_"))
        logs |= {
            "step": step,
            "bits_per_byte": bits,
            "validation": validation,
            "validation_perplexity_per_token": units.perplexity(validation),
            "ms_per_step": 1000 * self._took / every,
            # The rate of the last step of the epoch.
            "learning_rate": float(learning_rate(run.config)(step - 1)),
        }
        logs.setdefault("width", run.timeline.narrow.neurons)
        # The same dict: `Checkpoint`, which comes later, keeps it.
        curve = run.curves[self.name]
        curve.add(logs)
        if processes.is_first():
            run.folder.write("metrics.csv", metrics_csv(run.curves.values()))
            self._tell(step, curve.last())
        if not math.isfinite(bits):
            raise PruningStopped(
                f"The loss of the {self.name} model is {bits} after {step:,} steps. "
                "Lower `optimizer.peak_learning_rate`, or raise `warmup_steps`."
            )

    def _tell(self, step: int, last: Mapping[str, float]) -> None:
        timeline = self.run.timeline
        stage = next((n for n, first, end in timeline.stages if step <= end), "")
        facts = {
            "state": "training",
            "training": self.name,
            "stage": stage,
            "of": timeline.total,
            **last,
        }
        self.run.folder.set_status(**facts)
        print(
            f"step {step:,} of {timeline.total:,}, FFN width {last['width']:,.0f}: "
            f"{last['bits_per_byte']:.3f} bits per byte, held out "
            f"{last['validation']:.3f} (perplexity per token "
            f"{last['validation_perplexity_per_token']:.2f}), "
            f"{last['ms_per_step']:,.0f} ms/step",
            flush=True,
        )


def text_loss(logs: Mapping[str, float], prefix: str = "") -> float:
    """The loss of the text in nats per token, without what a teacher adds to it."""
    return float(logs.get(f"{prefix}student_loss", logs[f"{prefix}loss"]))


def fit(
    run: Run,
    name: str,
    model: keras.Model,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> None:
    """Trains a compiled model over the run's whole budget, from its last checkpoint on.

    Its figures are `run.curves[name]`.
    """
    config, settings = run.config, run.config.run
    every = settings.validate_every
    progress = Progress(run, name)
    checkpoint = Checkpoint(
        run.folder.checkpoints(name),
        keep=2,
        stateful={"progress": progress},
        identity={"text": run.models.text.fingerprint()},
    )
    fitted = model if run.teacher is None else _taught(config, run.teacher, model)
    index, count = devices.share_of(run.distribution)
    with devices.scope(run.distribution):
        epoch = checkpoint.restore(fitted)
        run.curves[name] = Curve(name, checkpoint.history)
        if epoch and processes.is_first():
            print(f"Resuming at step {epoch * every:,} of {run.timeline.total:,}")
        batches = run_text.batches(run.models.text, config, epoch * every, index, count)
        held_out = [own_rows(a, run.rows_at_once, index, count) for a in run.validation]
        x, *rest = token_inputs(model, held_out[0]), *held_out[1:]
        size = run.rows_at_once // count
        if epoch == 0 and run.timeline.begin == 0:
            # The model that a run begins with may be trained already.
            progress.before = evaluate(run, fitted, x, rest, size)
        run.curves[name].before = progress.before
        # The base class's: KerasHub's takes no generator.
        keras.Model.fit(
            fitted,
            ((token_inputs(model, ids), *more) for ids, *more in batches),
            epochs=run.timeline.total // every,
            initial_epoch=epoch,
            steps_per_epoch=every * config.parts,
            validation_data=(x, *rest),
            validation_batch_size=size,
            shuffle=False,
            callbacks=[*callbacks, *_monitor(run, name), progress, checkpoint],
            verbose=0,
        )
    run.curves[name].before = progress.before


def evaluate(
    run: Run, model: keras.Model, x: Any, rest: Sequence[np.ndarray], size: int
) -> float:
    """Bits per byte of the held-out text, in batches of `size` rows."""
    given = dict(zip(("y", "sample_weight"), rest, strict=False))
    logs = keras.Model.evaluate(
        model, x, **given, batch_size=size, verbose=0, return_dict=True
    )
    return run.units.of_validation(text_loss(logs))


def own_rows(array: np.ndarray, size: int, index: int, count: int) -> np.ndarray:
    """The rows that one of `count` processes reads of batches of `size` rows."""
    each = size // count
    batches = array.reshape(-1, size, *array.shape[1:])
    rows = batches[:, index * each : (index + 1) * each]
    return rows.reshape(-1, *array.shape[1:])


def _taught(config: RunConfig, teacher: keras.Model, student: keras.Model) -> Any:
    settings = config.distillation.model_dump(exclude={"teacher"})
    return distiller(teacher, student, **settings)


def _monitor(run: Run, name: str) -> list[keras.callbacks.Callback]:
    if not run.config.run.tensorboard:
        return []
    return [Monitor(run.folder.path / "tensorboard" / name.replace(" ", "-"))]
