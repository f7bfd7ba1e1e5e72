"""The main job: a run from its description to its folder.

Wide, pruned and recovered in one `fit`; then a narrow model from scratch on the
same batches; then the picture, the table, the narrow model and its text.
"""

import sys
from collections.abc import Sequence

import keras
import numpy as np

from keras_idea.callbacks import Checkpoint, Monitor
from keras_idea.errors import ConfigError, RunFolderError
from keras_idea.extras import require
from keras_idea.hub.inputs import token_inputs
from keras_idea.report import ResultRow
from keras_idea.report.history import metrics_csv
from keras_idea.report.table import print_table, to_json, to_markdown
from keras_idea.runs import results
from keras_idea.runs.build import cosine, pruning
from keras_idea.runs.config import RunConfig, load_config
from keras_idea.runs.prepare import describe, prepare
from keras_idea.runs.recorder import Recorder, ShortBar
from keras_idea.runs.run import NARROW, SCRATCH, Run
from keras_idea.runs.run_folder import RunFolder
from keras_idea.surgery import compact

# Readings of the neurons before and during pruning: columns of the heat map.
_READINGS = 60
# What a run writes with: missing, it is told before hours of training.
_PACKAGES = ("matplotlib", "rich", "tomli_w")


def train(config: RunConfig, overwrite: bool = False) -> list[ResultRow]:
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
    Text: text.txt, ...
    >>> [row.name for row in rows]
    ['wide before pruning', 'pruned', 'narrow from scratch']
    """
    for package in _PACKAGES:
        require(package, "Carrying out a run", "cli")
    folder = RunFolder(config.run.output)
    goes_on = not overwrite and _goes_on(config, folder)
    if not goes_on:
        folder.check(overwrite)
    run = prepare(config, folder)
    if not goes_on:
        folder.claim()
        folder.write("config.toml", config.to_toml())
    print(describe(run.models.corpus, folder.path), flush=True)
    narrow = compact(_train_and_prune(run))
    with folder.replacing(run.models.saved_as) as path:
        run.models.save(narrow, path)
    if config.run.compare_from_scratch:
        _train_from_scratch(run)
    rows = _tell(run, narrow)
    folder.remove_checkpoints()
    return rows


def _tell(run: Run, narrow: keras.Model) -> list[ResultRow]:
    """Writes and prints what a trained run has to say."""
    config, models, folder = run.config, run.models, run.folder
    length, prompt = config.model.sequence_length, config.sample.prompt
    results.draw(folder, run.recorders, run.timeline)
    costs = results.measure(models, narrow, config.data.batch_size, length, prompt)
    rows = results.rows(run.recorders, run.timeline, costs, run.bits.train)
    facts = results.facts(models.corpus.description)
    folder.write("table.md", to_markdown(rows))
    folder.write("table.json", to_json(rows, facts))
    print_table(rows)
    seed, vocabulary = config.run.seed, models.vocabulary
    sample = results.sample(narrow, vocabulary, config.sample, seed, length)
    folder.write("sample.txt", sample)
    print(f"The narrow model writes:\n\n{sample}\n\nAll of it is in {folder.path}/")
    if config.model.of_hub:
        print(results.how_to_load(folder.path / "preset", prompt, length))
    return rows


def _goes_on(config: RunConfig, folder: RunFolder) -> bool:
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


def _train_and_prune(run: Run) -> keras.Model:
    config, models, timeline = run.config, run.models, run.timeline
    print(f"\nTraining wide: {timeline.wide} -> {timeline.narrow} neurons an FFN")
    keras.utils.set_random_seed(config.run.seed)
    model = models.wide()
    stages = ((1, timeline.begin), (timeline.begin, timeline.end))
    readings = np.concatenate([np.linspace(*stage, _READINGS) for stage in stages])
    recorder = _recorder(run, NARROW, timeline.wide, readings.astype(int))
    prune = pruning(config, timeline.narrow, _monitor(run, NARROW))
    _fit(run, model, recorder, [prune])
    return model


def _train_from_scratch(run: Run) -> None:
    width = run.timeline.narrow
    print(f"\nTraining narrow from scratch: {width} neurons an FFN, the same batches")
    keras.utils.set_random_seed(run.config.run.seed)
    monitor = _monitor(run, SCRATCH)
    model, recorder = run.models.plain(width), _recorder(run, SCRATCH, width)
    _fit(run, model, recorder, [] if monitor is None else [monitor])


def _monitor(run: Run, training: str) -> Monitor | None:
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


def _recorder(
    run: Run, name: str, width: int, reading_steps: Sequence[int] | np.ndarray = ()
) -> Recorder:
    """A recorder, put among those whose curves go to the metrics file."""

    def write_metrics() -> None:
        curves = [recorder.curve() for recorder in run.recorders]
        run.folder.write("metrics.csv", metrics_csv(curves))

    schedule = cosine(run.config)
    recorder = Recorder(name, width, schedule, run.bits, reading_steps, write_metrics)
    run.recorders.append(recorder)
    return recorder


def _fit(
    run: Run,
    model: keras.Model,
    recorder: Recorder,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> None:
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
        print(f"Going on after step {epoch * every} of {run.timeline.total}")
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
        epochs=run.timeline.total // every,
        initial_epoch=epoch,
        steps_per_epoch=every,
        validation_data=(token_inputs(model, x), y),
        validation_batch_size=min(batch_size, len(x)),
        shuffle=False,
        callbacks=[recorder, *callbacks, ShortBar(run.bits), checkpoint],
        # The bar that moves is for a terminal; a log gets a line an interval.
        verbose=1 if sys.stdout.isatty() else 2,
    )
