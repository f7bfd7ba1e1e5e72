"""The main job: a run from its description to its folder.

Wide, pruned and recovered in one `fit`, and the narrow model saved; then, if asked for,
the same without the teacher, and a narrow model from scratch, on the same batches; then
the picture, the table and the text of the narrow model.
"""

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_idea import processes
from keras_idea.callbacks.checkpoint.files import CheckpointFiles
from keras_idea.callbacks.checkpoint.restoring import restore_model
from keras_idea.elastic.widths import FULL
from keras_idea.errors import RunFolderError, TrainingDiverged
from keras_idea.finding.find import find_groups
from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.report.table import ResultRow, print_table, to_json, to_markdown
from keras_idea.lm.runs.config import RunConfig, load_config
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.models.build import pruning
from keras_idea.lm.runs.places import check_places
from keras_idea.lm.runs.run_folder import RunFolder
from keras_idea.lm.runs.train import devices, elastic, results
from keras_idea.lm.runs.train.claim_or_resume import claim_or_resume, is_of_text
from keras_idea.lm.runs.train.disk_estimate import results_bytes
from keras_idea.lm.runs.train.fitting import fit, monitor_of, recorder_of
from keras_idea.lm.runs.train.measuring import Costs, measure
from keras_idea.lm.runs.train.prepare import prepare, run_summary
from keras_idea.lm.runs.train.run import (
    NARROW,
    PRUNED_WITHOUT_TEACHER,
    SCRATCH,
    TEACHER,
    Run,
)
from keras_idea.lm.runs.train.teacher import load_teacher, teacher_bits
from keras_idea.lm.runs.train.written import default_prompt, written_text
from keras_idea.models.decoder import compute_in
from keras_idea.surgery import compact
from keras_idea.validation import plural, require

# Readings of the neurons before and during pruning: columns of the heat map.
_READINGS = 60
# Packages that write the results: checked before hours of training.
_PACKAGES = ("matplotlib", "rich", "tomli_w")


def train(
    config: RunConfig, overwrite: bool = False, extend: bool = False
) -> list[ResultRow]:
    """Carries out a run and leaves its folder; continues with one that was killed.

    Of several processes (see `[distribution]`) each calls it, with the same config.

    Args:
        config: `RunConfig`.
        overwrite: bool, whether another run in the folder, or a finished one, may be
            replaced. This run continues there if it is not finished.
        extend: bool, whether the run there must be this one, unfinished: it becomes
            `budget.extend_steps` longer than planned.

    Returns:
        List of `ResultRow`: the teacher, if there is one, then as `results.rows`.
        Empty in all processes but the first.

    Raises:
        ConfigError: if the model cannot be made: keras_hub is missing, say, or a
            preset cannot be loaded. If the run would read what it writes.
        MissingPackage: if a package of an extra that the run needs is not installed.
        ProcessError: if the processes disagree.
        DiskError: if something cannot be written, or there is no room for it.
        RunFolderError: if the run folder may not be written to, or another process
            writes to it.
        TextError: if there is no text, or less than a sequence of it.
        TrainingDiverged: if the loss becomes NaN or infinite.

    Example:
    >>> from keras_idea.lm.runs.config import load_config
    >>> rows = train(load_config("run.toml"))
    Text: text.txt, ...
    >>> [row.name for row in rows]
    ['wide before pruning', 'pruned', 'narrow from scratch']
    """
    for package in _PACKAGES:
        require(package, "Carrying out a run", "cli")
    check_places(config)
    devices.join_mesh(config)
    folder = RunFolder(config.run.output)
    with contextlib.ExitStack() as stack:
        goes_on, extended = processes.from_first(
            lambda: claim_or_resume(folder, config, overwrite, stack, extend)
        )
        config = config.with_extension(extended)
        return _carry_out(config, folder, goes_on, overwrite)


def _carry_out(
    config: RunConfig, folder: RunFolder, goes_on: bool, overwrite: bool
) -> list[ResultRow]:
    run = devices.first_then_others(lambda: _prepare(config, folder))
    processes.check_same({"the text": run.models.corpus.fingerprint()})
    processes.from_first(lambda: _claim(run, goes_on, overwrite))
    devices.check_shared(folder.path)
    models: Mapping[str, keras.Model] = {}
    if config.elastic.given:
        models = elastic.train_widths(run)
        narrow = models[FULL]
    else:
        narrow = _train_and_prune(run)
        if config.distillation.compare_without and run.teacher is not None:
            _say("\nTraining the same without the teacher")
            _pruned(dataclasses.replace(run, teacher=None), PRUNED_WITHOUT_TEACHER)
        if config.run.compare_from_scratch:
            _train_from_scratch(run)
    rows: list[ResultRow] = []
    processes.from_first(lambda: rows.extend(_finish(run, narrow, models)))
    return rows


def _prepare(config: RunConfig, folder: RunFolder) -> Run:
    run = prepare(config, folder)
    distribution = devices.mesh_of(run)
    teacher, source = None, config.distillation.teacher
    if source is not None:
        with devices.spread(distribution):
            teacher = load_teacher(source, config.teacher_dtype, run.models.vocabulary)
    return dataclasses.replace(run, teacher=teacher, distribution=distribution)


def _claim(run: Run, goes_on: bool, overwrite: bool) -> None:
    folder, config = run.folder, run.config
    if goes_on and overwrite:
        goes_on = is_of_text(folder, run.models.corpus.fingerprint())
    if not goes_on:
        folder.claim(config.to_toml())
    elif load_config(folder.unfinished()) != config:  # on other devices, say
        folder.write("config.toml", config.to_toml())
    print(run_summary(run), flush=True)
    if config.budget.extend_steps:
        print(results.extension(run), flush=True)
    if goes_on and overwrite:
        print(
            f"The run in {folder.shown} is unfinished, so it resumes: --overwrite does "
            "not replace it. Delete that folder to begin again.",
            flush=True,
        )
    if goes_on and not folder.has_checkpoints():
        print(f"No checkpoint yet in {folder.shown}: starting at step 0", flush=True)


def _train_and_prune(run: Run) -> keras.Model | None:
    """The narrow model, saved; None in all processes but the first."""
    timeline = run.timeline
    _say(f"\nTraining: {timeline.wide.pruned_to(timeline.narrow)}")
    model = _pruned(run, NARROW)
    narrow: list[keras.Model] = []

    def save() -> None:
        trained = model if run.distribution is None else _on_one_device(run)
        # A stock preset in mixed precision is one that KerasHub 0.32 cannot read.
        narrow.append(compute_in(compact(trained), "float32"))
        size = results_bytes(run)
        with run.folder.replacing(run.models.saved_as, size) as path:
            run.models.save(narrow[0], path)
        print(f"\n{results.where_it_lies(run, narrow[0])}", flush=True)

    processes.from_first(save)
    return narrow[0] if narrow else None


def _pruned(run: Run, name: str) -> keras.Model:
    """The run's wide model, trained and pruned."""
    config, timeline = run.config, run.timeline
    keras.utils.set_random_seed(config.run.seed)
    with devices.spread(run.distribution):
        model = run.models.wide()
    stages = ((1, timeline.begin), (timeline.begin, timeline.end))
    readings = np.concatenate([np.linspace(*stage, _READINGS) for stage in stages])
    recorder = recorder_of(run, name, timeline.wide, readings.astype(int))
    # A kind that stays as it is needs no scores.
    targets = timeline.wide.smaller_in(timeline.narrow)
    samples = _refit_samples(run, model)
    log_dir = monitor_of(run, name)
    prune = pruning(config.pruning, config.budget, targets, samples, log_dir)
    fit(run, model, recorder, [prune])
    _check_pruned(model, timeline.narrow)
    return model


def _refit_samples(run: Run, model: keras.Model) -> Any:
    """Training text that layers are fitted on when neurons go; None: they are not."""
    windows, seed = run.config.pruning.refit_windows, run.config.run.seed
    if not windows:
        return None
    batches = run.models.corpus.batches(
        seed=seed, batch_size=windows, length=run.length
    )
    return token_inputs(model, next(iter(batches))[0])


def _on_one_device(run: Run) -> keras.Model:
    """The trained model from its last checkpoint, whole on one device.

    The random state is left as it is: its variable lies on the devices of all.
    """
    with processes.alone():
        saved = CheckpointFiles(run.folder.checkpoints(NARROW)).newest()
        if saved is not None and saved.step == run.timeline.total:
            model = run.models.wide()
            restore_model(saved, model)
            return model
    raise RunFolderError(
        "The trained model is put together from the last checkpoint, which is damaged. "
        f"Received: a run in {run.folder.shown!r}. Give the same command again; it "
        "resumes from the checkpoint before."
    )


def _check_pruned(model: keras.Model, sizes: Sizes) -> None:
    kept = sizes.by_kind()
    for group in find_groups(model, list(kept)):
        if group.width != kept[group.kind]:
            raise TrainingDiverged(
                f"Pruning did not finish: {group.name} has {group.width} "
                f"{group.units} and should have {kept[group.kind]}. In "
                "mixed_float16, steps whose gradients overflow are skipped. Set a "
                'larger `budget.recover_steps`, or `run.dtype` to "mixed_bfloat16".'
            )


def _train_from_scratch(run: Run) -> None:
    sizes = run.timeline.narrow
    _say(f"\nTraining the scratch baseline: {sizes}, the same batches")
    keras.utils.set_random_seed(run.config.run.seed)
    with devices.spread(run.distribution):
        model = run.models.plain(sizes)
    monitor = monitor_of(run, SCRATCH)
    recorder = recorder_of(run, SCRATCH, Sizes(sizes.neurons), pruned=False)
    fit(run, model, recorder, [] if monitor is None else [monitor])


def _finish(
    run: Run, narrow: keras.Model, models: Mapping[str, keras.Model]
) -> list[ResultRow]:
    with processes.alone():
        rows = _tell(run, narrow, models)
        run.folder.remove_checkpoints()
    return rows


def _tell(
    run: Run, narrow: keras.Model, models: Mapping[str, keras.Model]
) -> list[ResultRow]:
    """Writes and prints what a trained run has to say.

    `models` are those of each width of a run with [elastic], whose full one is
    `narrow`.
    """
    folder = run.folder
    prompt = run.config.sample.prompt or default_prompt(run)
    bits = None
    if run.teacher is not None and run.distribution is None:
        bits = teacher_bits(run, run.teacher)  # of a mesh it lies on all processes
    if models:
        elastic.draw_widths(run, bits)
        costs = Costs({}, elastic.NOT_TIMED)
        rows = elastic.width_rows(run, models)
    else:
        results.draw(run, bits)
        costs = measure(run, narrow, prompt)
        rows = results.rows(run, costs.rows)
    if run.teacher is not None:
        cost = ResultRow(TEACHER, run.teacher.count_params())
        rows.insert(0, results.judged(run, cost, TEACHER, bits))
    of_responses = results.OF_RESPONSES if run.config.chat.given else ""
    said = elastic.notes(run) if models else [results.verdict(rows)]
    notes_text = "\n".join(filter(None, [of_responses, costs.left_out, *said]))
    folder.write("table.md", f"{to_markdown(rows)}\n{notes_text}".rstrip() + "\n")
    folder.write("table.json", to_json(rows, results.facts(run, costs)))
    print_table(rows)
    if notes_text:
        print(f"{notes_text}\n", flush=True)
    sample, count = written_text(run, narrow, prompt)
    folder.write("sample.txt", sample)
    writer = "full" if models else "narrow"
    print(f"The {writer} model writes:\n\n{sample}\n")
    if count < run.config.sample.tokens:
        print(f"It ends after {plural(count, 'token')}: there was no time for more.\n")
    print(f"All of it is in {folder.shown}/")
    if run.config.model.uses_keras_hub:
        print(results.how_to_load(run, narrow, prompt))
    return rows


def _say(text: str) -> None:
    if processes.is_first():
        print(text, flush=True)
