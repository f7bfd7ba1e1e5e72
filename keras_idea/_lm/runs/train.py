"""A run from its file to its folder.

Wide, pruned and recovered in one `fit`, and the narrow model saved; then, if the file
says so, a narrow model from scratch on the same batches; then the plot, the table and
the text of the narrow model.
"""

import contextlib
import dataclasses
from typing import Any

import keras

from keras_idea import _processes as processes
from keras_idea import methods
from keras_idea._callbacks import IdeaPruneCallback
from keras_idea._callbacks.checkpoint import newest, restore_model
from keras_idea._files import replacing, reserve
from keras_idea._finding.find import find_groups
from keras_idea._keras.layers import all_layers
from keras_idea._lm import distribution as devices
from keras_idea._lm.export.load import load_run
from keras_idea._lm.report.table import ResultRow
from keras_idea._lm.runs.config import RunConfig
from keras_idea._lm.runs.fitting import Run, fit
from keras_idea._lm.runs.folder import RunFolder, check_places
from keras_idea._lm.runs.judge import vocabulary_of
from keras_idea._lm.runs.models import run_models
from keras_idea._lm.runs.results import NARROW, SAVED_AS, SCRATCH, write_results
from keras_idea._lm.runs.sizes import Sizes, make_timeline
from keras_idea._surgery import compact
from keras_idea._validation import plural, require
from keras_idea.errors import ConfigError, PruningStopped
from keras_idea.hub.inputs import token_inputs

# Packages that write the results: checked before hours of training.
_PACKAGES = ("filelock", "matplotlib", "tomli_w")
# Sequences of the run's own text that "activation" measures, as in the paper.
_CALIBRATION_WINDOWS = 1024
# More passes over a text add little (Muennighoff et al., 2023, arXiv:2305.16264).
_PASSES = 4


def train(config: RunConfig, overwrite: bool = False) -> list[ResultRow]:
    """Carries out a run and leaves its folder; resumes one that was killed.

    Each of several processes (see `[distribution]`) calls it, with the same config.

    Example:
    >>> from keras_idea._lm.runs.config import load_config
    >>> rows = train(load_config("run.toml"))
    Text: text.txt: ...
    >>> [row.name for row in rows]
    ['wide before pruning', 'pruned', 'narrow from scratch']
    """
    for package in _PACKAGES:
        require(package, "A run", "cli")
    check_places(config)
    mesh = config.distribution
    devices.join(mesh.data, mesh.model, config.to_toml())
    folder = RunFolder(config.run.output)
    with contextlib.ExitStack() as stack:
        resumes = processes.from_first(
            lambda: (
                stack.enter_context(folder.locked()),
                folder.resumes(config, overwrite),
            )[1]
        )
        run = _prepare(config, folder)
        processes.from_first(lambda: folder.claim(config, resumes))
        devices.check_shared(folder.path / "config.toml")
        _say(_summary(run))
        narrow = _train_and_prune(run)
        if config.run.compare_from_scratch:
            _train_from_scratch(run)
        rows: list[ResultRow] = []
        processes.from_first(lambda: rows.extend(_finish(run, narrow)))
        return rows


def _prepare(config: RunConfig, folder: RunFolder) -> Run:
    """The run before its first step; nothing is written but a cache of tokens."""
    made: list[Any] = []
    if processes.count() > 1:  # the first one leaves its cache to the others
        processes.from_first(lambda: made.append(run_models(config)))
    models = processes.on_each(lambda: made[0] if made else run_models(config))
    processes.check_same({"the text": models.text.fingerprint()})
    timeline = make_timeline(config, models.source.at_start, models.narrow)
    mesh = config.distribution
    spread = devices.distribution_of(mesh.data, mesh.model, models.source.backbone)
    run = Run(config, models, timeline, folder, None, spread)
    if config.distillation.teacher is None:
        return run
    with devices.scope(spread):
        return dataclasses.replace(run, teacher=_load_teacher(run))


def _load_teacher(run: Run) -> keras.Model:
    source, own = run.config.distillation.teacher, run.models.text.vocabulary
    teacher: Any = load_run(str(source), dtype=run.config.run.dtype)
    known = vocabulary_of(teacher)
    if known is None or known.fingerprint != own.fingerprint:
        raise ConfigError(
            "`distillation.teacher` must have the tokenizer of the run. Received: "
            f"{source!r}. Set `model.preset` to the preset of the teacher."
        )
    teacher.preprocessor = None
    return teacher


def _summary(run: Run) -> str:
    """Says what the run reads and where it goes."""
    config, text, total = run.config, run.models.text, run.timeline.total
    tokens = config.data.batch_size * run.length
    times = total * tokens / len(text.train)
    begins = "" if run.models.start_id is None else ", each sequence begins with <s>"
    lines = [
        f"Text: {text.description} ({plural(len(text.train), 'token')} to train on, "
        f"{len(text.held_out):,} held out), read {times:,.3g} times",
        f"Vocabulary: {plural(run.models.source.vocabulary_size, 'token')}, "
        f"{text.bytes_per_token():.2f} bytes per token{begins}",
        f"Backend: {keras.backend.backend()}. Run folder: {run.folder.shown}",
    ]
    if times > _PASSES:
        lines.append(
            f"Warning: the run reads its text {times:,.0f} times; more than {_PASSES} "
            "adds little. Give more text, or use fewer steps."
        )
    if not config.budget.enlarge_steps and config.model.preset is None:
        lines.append(
            "Warning: budget.enlarge_steps=0 prunes a model with random weights. Set "
            f"it to {total // 2}, or set `model.preset`."
        )
    return "\n".join(lines)


def _train_and_prune(run: Run) -> keras.Model | None:
    """Trains and saves the narrow model; None in all processes but the first."""
    config, timeline = run.config, run.timeline
    _say(f"\nTraining: {timeline.wide.pruned_to(timeline.narrow)}")
    keras.utils.set_random_seed(config.run.seed)
    with devices.scope(run.distribution):
        model = run.models.wide()
    prune = IdeaPruneCallback(
        begin_step=timeline.begin,
        prune_steps=config.budget.prune_steps,
        targets=dict(timeline.wide.smaller_in(timeline.narrow)),
        method=_method(run, model),
        compact=config.pruning.compact,
        update_every=config.pruning.update_every,
    )
    fit(run, NARROW, model, [prune])
    _check_pruned(model, timeline.narrow)
    narrow: list[keras.Model] = []

    def save() -> None:
        trained = model if run.distribution is None else _on_one_device(run)
        narrow.append(compact(trained))
        # KerasHub 0.32 cannot read a preset in mixed precision.
        for layer in all_layers(narrow[0]):
            layer.dtype_policy = "float32"
        # HDF5 ends the whole process if the disk is full.
        variables = [*narrow[0].variables, *narrow[0].optimizer.variables]
        with replacing(run.folder.path / SAVED_AS) as path:
            reserve(run.folder.path, variables)
            run.models.save(narrow[0], path)
        print(f"The narrow model is saved: {run.folder.shown}/{SAVED_AS}")

    processes.from_first(save)
    return narrow[0] if narrow else None


def _method(run: Run, model: keras.Model) -> str | methods.Method:
    settings, text = run.config.pruning, run.models.text
    if settings.method != "activation":
        return settings.method
    windows = (len(text.train) - 1) // run.length
    count = settings.refit_windows or min(_CALIBRATION_WINDOWS, windows)
    batches = text.batches(
        seed=run.config.run.seed, batch_size=count, length=run.length
    )
    data = token_inputs(model, next(iter(batches))[0])
    return methods.Activation(
        data,
        count,
        refit=bool(settings.refit_windows),
        by_weights=settings.by_weights,
    )


def _on_one_device(run: Run) -> keras.Model:
    """The trained model of a mesh, whole on one device, from its last checkpoint."""
    saved = newest(run.folder.checkpoints(NARROW))
    if saved is not None and saved.facts["step"] == run.timeline.total:
        model = run.models.wide()
        restore_model(model, saved)
        return model
    raise ConfigError(
        "The last checkpoint, from which the trained model is put together, is not of "
        "the last step. Give the same command again."
    )


def _check_pruned(model: keras.Model, sizes: Sizes) -> None:
    kept = sizes.by_kind()
    for group in find_groups(model, list(kept)):
        if group.width != kept[group.kind]:
            raise PruningStopped(
                f"Pruning did not finish: {group.name} has {group.width} {group.units},"
                f" not {kept[group.kind]}. mixed_float16 skips steps whose gradients "
                'overflow: raise `recover_steps`, or use "mixed_bfloat16".'
            )


def _train_from_scratch(run: Run) -> None:
    _say(f"\nTraining the scratch baseline: {run.timeline.narrow}, the same batches")
    keras.utils.set_random_seed(run.config.run.seed)
    with devices.scope(run.distribution):
        model = run.models.scratch()
    fit(run, SCRATCH, model)


def _finish(run: Run, narrow: keras.Model | None) -> list[ResultRow]:
    assert narrow is not None
    rows = write_results(run, narrow)
    run.folder.remove_checkpoints()
    return rows


def _say(text: str) -> None:
    if processes.is_first():
        print(text, flush=True)
