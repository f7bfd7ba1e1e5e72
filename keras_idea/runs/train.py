"""The main job: a run from its description to its folder.

Wide, pruned and recovered in one `fit`; then a narrow model from scratch on the
same batches; then the picture, the table, the narrow model and its text.
"""

import sys

import keras
import numpy as np

from keras_idea.callbacks import Checkpoint, Monitor
from keras_idea.errors import ConfigError, RunFolderError
from keras_idea.models.generate import token_inputs
from keras_idea.report.history import metrics_csv
from keras_idea.report.table import print_table, to_json, to_markdown
from keras_idea.runs import results
from keras_idea.runs.build import cosine, pruning
from keras_idea.runs.config import load_config
from keras_idea.runs.prepare import describe, prepare
from keras_idea.runs.recorder import Recorder, ShortBar
from keras_idea.runs.run import NARROW, SCRATCH
from keras_idea.runs.run_folder import RunFolder
from keras_idea.surgery import compact

# Readings of the neurons before and during pruning: columns of the heat map.
_READINGS = 60


def train(config, overwrite=False):
    """Carries out a run and leaves its folder; goes on with one that was killed.

    Args:
        config: `RunConfig`.
        overwrite: bool, whether an earlier run in the folder may be replaced.

    Returns:
        List of `ResultRow`: wide, pruned and, if asked for, from scratch.

    Raises:
        ConfigError: if the model cannot be made: keras_hub is missing, say, or a
            preset cannot be loaded.
        MissingPackage: if a package of an extra that the run needs is not installed.
        RunFolderError: if the run folder may not be written to.
        TextError: if there is no text, or less than a sequence of it.
        TrainingDiverged: if the loss becomes NaN or infinite.

    Example:
    >>> rows = train(load_config("run.toml"))
    """
    folder = RunFolder(config.run.output)
    goes_on = not overwrite and _goes_on(config, folder)
    if not goes_on:
        folder.check(overwrite)
    run = prepare(config, folder)
    if not goes_on:
        folder.claim()
        folder.write("config.toml", config.to_toml())
    print(describe(run), flush=True)
    narrow = compact(_train_and_prune(run))
    with folder.replacing(run.models.saved_as) as path:
        run.models.save(narrow, path)
    if config.run.compare_from_scratch:
        _train_from_scratch(run)
    results.draw(run)
    rows = results.measure(run, narrow)
    folder.write("table.md", to_markdown(rows))
    folder.write("table.json", to_json(rows, results.facts(run)))
    print_table(rows)
    sample = results.sample(run, narrow)
    folder.write("sample.txt", sample)
    print(f"The narrow model writes:\n\n{sample}\n\nAll of it is in {folder.path}/")
    if config.model.of_hub:
        print(results.how_to_load(run))
    folder.remove_checkpoints()
    return rows


def _goes_on(config, folder):
    """Whether the folder holds this run, begun and not finished."""
    begun = folder.unfinished()
    if begun is None:
        return False
    try:
        there = load_config(begun)
    except ConfigError as error:
        raise RunFolderError(
            f"{str(folder.path)!r} holds an unfinished run whose config is damaged: "
            f"{error} Put the file back as it was to go on with that run, give another "
            "folder with --output, or --overwrite to replace that run."
        ) from None
    changed = config.changes_from(there)
    if changed:
        raise RunFolderError(
            f"{str(folder.path)!r} holds an unfinished run of another config: "
            f"{changed}. Set it back to go on with that run, give another folder with "
            "--output, or --overwrite to replace that run."
        )
    return True


def _train_and_prune(run):
    config, budget, models = run.config, run.config.budget, run.models
    print(f"\nTraining wide: {models.hidden_dim} -> {models.target_dim} neurons an FFN")
    keras.utils.set_random_seed(config.run.seed)
    model = models.wide()
    begin, end = budget.enlarge_steps, budget.enlarge_steps + budget.prune_steps
    readings = np.concatenate(
        [np.linspace(1, begin, _READINGS), np.linspace(begin, end, _READINGS)]
    )
    recorder = _recorder(run, NARROW, models.hidden_dim, readings.astype(int))
    prune = pruning(config, models.target_dim, _monitor(run, NARROW))
    _fit(run, model, recorder, [prune])
    return model


def _train_from_scratch(run):
    width = run.models.target_dim
    print(f"\nTraining narrow from scratch: {width} neurons an FFN, the same batches")
    keras.utils.set_random_seed(run.config.run.seed)
    monitor = _monitor(run, SCRATCH)
    model, recorder = run.models.plain(width), _recorder(run, SCRATCH, width)
    _fit(run, model, recorder, [] if monitor is None else [monitor])


def _monitor(run, training):
    """`Monitor` of one of the run's trainings, or None if it is not asked for."""
    config = run.config
    if not config.run.tensorboard:
        return None
    length = config.model.sequence_length
    return Monitor(
        run.folder.tensorboard(training),
        tokens_per_batch=config.data.batch_size * length,
        sequence_length=length,
    )


def _recorder(run, name, width, reading_steps=()):
    """A recorder, put among those whose curves go to the metrics file."""

    def write_metrics():
        curves = [recorder.curve() for recorder in run.recorders]
        run.folder.write("metrics.csv", metrics_csv(curves))

    schedule = cosine(run.config)
    recorder = Recorder(name, width, schedule, run.bits, reading_steps, write_metrics)
    run.recorders.append(recorder)
    return recorder


def _fit(run, model, recorder, callbacks=()):
    config, corpus = run.config, run.models.corpus
    length, batch_size = config.model.sequence_length, config.data.batch_size
    every = config.run.validate_every
    checkpoint = Checkpoint(
        run.folder.checkpoints(recorder.name),
        every=(config.run.checkpoint_every or every) // every,
        keep=config.run.keep_checkpoints,
        stateful={"recorder": recorder},
        identity={"text": corpus.fingerprint()},
    )
    epoch = checkpoint.restore(model)
    if epoch:
        print(f"Going on after step {epoch * every} of {config.budget.total_steps}")
    batches = corpus.batches(
        seed=config.run.seed,
        batch_size=batch_size,
        length=length,
        start_step=epoch * every,
    )
    x, y = run.validation
    # The base class's: KerasHub's takes no generator.
    keras.Model.fit(
        model,
        ((token_inputs(model, ids), targets) for ids, targets in batches),
        epochs=config.budget.total_steps // every,
        initial_epoch=epoch,
        steps_per_epoch=every,
        validation_data=(token_inputs(model, x), y),
        validation_batch_size=min(batch_size, len(x)),
        shuffle=False,
        callbacks=[recorder, *callbacks, ShortBar(run.bits), checkpoint],
        # The bar that moves is for a terminal; a log gets a line an interval.
        verbose=1 if sys.stdout.isatty() else 2,
    )
