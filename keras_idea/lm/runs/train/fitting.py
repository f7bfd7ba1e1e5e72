"""One training of a run: its `fit`, with what is recorded, saved and shown of it."""

import sys
from collections.abc import Sequence

import keras
import numpy as np

from keras_idea import processes
from keras_idea.callbacks import Checkpoint, Monitor
from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.report.curves import metrics_csv
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.models.learning_rate import learning_rate
from keras_idea.lm.runs.train.claim_or_resume import text_identity
from keras_idea.lm.runs.train.devices import own_rows, rows_at_once, share_of, spread
from keras_idea.lm.runs.train.disk_estimate import results_bytes
from keras_idea.lm.runs.train.recorder import Recorder, ShortBar
from keras_idea.lm.runs.train.run import Run
from keras_idea.lm.runs.train.teacher import taught


def fit(
    run: Run,
    model: keras.Model,
    recorder: Recorder,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    before: Sequence[keras.callbacks.Callback] = (),
) -> None:
    """Trains a model over the run's whole budget, from its last checkpoint on.

    It is compiled, and made on the run's devices. `callbacks` stand behind `recorder`,
    those `before` in front of it.
    """
    config = run.config
    share = share_of(config.data.batch_size, config.micro_batches, run.distribution)
    every, batch_size = config.run.validate_every, config.data.batch_size
    fitted = model if run.teacher is None else taught(config, model, run.teacher)
    checkpoint = _checkpoint_of(run, recorder)
    bar, verbose = [], 0
    if processes.is_first():
        # The bar that moves is for a terminal; a log gets a line an interval.
        bar, verbose = [ShortBar(run.loss_units)], 1 if sys.stdout.isatty() else 2
    with spread(run.distribution):
        epoch = checkpoint.restore(fitted)
        if epoch and processes.is_first():
            print(f"Resuming at step {epoch * every} of {run.timeline.total}")
        batches = run.models.corpus.batches(
            seed=config.run.seed,
            # A part of a batch is the batch of a run of smaller ones.
            batch_size=batch_size // share.parts,
            length=run.length,
            start_step=epoch * every * share.parts,
            index=share.index,
            count=share.count,
        )
        most, devices = batch_size // share.parts, config.distribution.size[0]
        judged = rows_at_once(len(run.validation[0]), most, devices)
        x, *rest = own_rows(run.validation, judged, share)
        held_out = (token_inputs(model, x), *rest)
        at_once = judged // share.count
        trained = run.timeline.begin == 0 and not run.timeline.widths
        if epoch == 0 and (trained or config.model.preset is not None):
            # Before it is pruned: the model that a run begins with is trained already.
            eval_kwargs = {"batch_size": at_once, "verbose": 0, "return_dict": True}
            names = ("x", "y", "sample_weight")
            given = dict(zip(names, held_out, strict=False))
            recorder.begin_with(keras.Model.evaluate(fitted, **given, **eval_kwargs))
        # The base class's: KerasHub's takes no generator.
        keras.Model.fit(
            fitted,
            ((token_inputs(model, ids), *rest) for ids, *rest in batches),
            epochs=run.timeline.total // every,
            initial_epoch=epoch,
            steps_per_epoch=every * share.parts,
            validation_data=held_out,
            validation_batch_size=at_once,
            shuffle=False,
            callbacks=[*before, recorder, *callbacks, *bar, checkpoint],
            verbose=verbose,
        )


def _checkpoint_of(run: Run, recorder: Recorder) -> Checkpoint:
    settings = run.config.run
    every = settings.validate_every
    checkpoint = Checkpoint(
        run.folder.checkpoints(recorder.name),
        every=(settings.checkpoint_every or every) // every,
        keep=settings.keep_checkpoints,
        stateful={"recorder": recorder},
        identity=text_identity(run.models.corpus.fingerprint()),
    )
    if not (run.folder.path / run.models.saved_as).exists():
        checkpoint.reserve = results_bytes(run)
    return checkpoint


def recorder_of(
    run: Run,
    name: str,
    sizes: Sizes,
    reading_steps: Sequence[int] | np.ndarray = (),
    pruned: bool = True,
    widths: Sequence[str] = (),
) -> Recorder:
    """A recorder, put among those whose curves go to the metrics file.

    `sizes` are those at the start of the training `name`, and `reading_steps` those
    after which the neurons are read; `widths` are names of narrower ones that are
    validated too.
    """

    def write_metrics() -> None:
        curves = [recorder.curve() for recorder in run.recorders]
        if processes.is_first():
            run.folder.write("metrics.csv", metrics_csv(curves))

    recorder = Recorder(
        name,
        sizes,
        learning_rate(run.config.optimizer, run.config.budget, pruned),
        run.loss_units,
        reading_steps,
        write_metrics,
        run.config.micro_batches,
        widths,
    )
    run.recorders.append(recorder)
    return recorder


def monitor_of(run: Run, training: str) -> Monitor | None:
    """`Monitor` of one of the run's trainings, or None if it is not asked for."""
    config = run.config
    if not config.run.tensorboard:
        return None
    return Monitor(
        run.folder.tensorboard(training),
        tokens_per_batch=config.data.batch_size // config.micro_batches * run.length,
        sequence_length=run.length,
    )
