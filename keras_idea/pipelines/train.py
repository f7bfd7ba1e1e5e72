"""The main job: a run from its description to its folder.

Wide, pruned and recovered in one `fit`; then a narrow model from scratch on the
same batches; then the picture, the table, the narrow model and its text.
"""

import platform
import sys

import keras
import numpy as np

import keras_idea as ki
from keras_idea.data import load_text
from keras_idea.models import generate
from keras_idea.pipelines.build import compiled_decoder, cosine, prunable_ffn
from keras_idea.pipelines.recorder import Recorder, ShortBar
from keras_idea.pipelines.run_folder import RunFolder
from keras_idea.pipelines.timing import generation_speeds, step_times
from keras_idea.report import ResultRow
from keras_idea.report.history import metrics_csv
from keras_idea.report.picture import draw_run
from keras_idea.report.table import print_table, to_json, to_markdown

WIDE, NARROW, SCRATCH = "wide before pruning", "pruned", "narrow from scratch"
# Readings of the neurons before and during pruning: columns of the heat map.
_READINGS = 60


def train(config, overwrite=False):
    """Carries out a run and leaves its folder.

    Args:
        config: `RunConfig`.
        overwrite: bool, whether an earlier run in the folder may be replaced.

    Returns:
        List of `ResultRow`: wide, pruned and, if asked for, from scratch.

    Raises:
        RunFolderError: if the run folder may not be written to.
        TextError: if there is no text, or less than a sequence of it.
        TrainingDiverged: if the loss becomes NaN or infinite.

    Example:
    >>> rows = train(load_config("run.toml"))
    """
    folder = RunFolder(config.run.output)
    folder.check(overwrite)
    corpus = load_text(
        config.data.text,
        config.data.validation_fraction,
        round(config.data.max_megabytes * 1e6),
    )
    corpus.check_length(config.model.sequence_length)
    folder.claim()
    folder.write("config.toml", config.to_toml())
    print(
        f"Text: {corpus.description} ({len(corpus.train):,} bytes to train on, "
        f"{len(corpus.validation):,} held out)\n"
        f"Backend: {keras.backend.backend()}. Run folder: {folder.path}",
        flush=True,
    )
    recorders: list[Recorder] = []
    model = _train_and_prune(config, corpus, folder, recorders)
    narrow = ki.compact(model)
    with folder.replacing("narrow.keras") as path:
        narrow.save(path)
    if config.run.compare_from_scratch:
        _train_from_scratch(config, corpus, folder, recorders)
    _draw(config, folder, recorders)
    rows = _measure(config, corpus, recorders, narrow)
    folder.write("table.md", to_markdown(rows))
    folder.write("table.json", to_json(rows, _facts(corpus)))
    print_table(rows)
    sample = _sample(config, narrow)
    folder.write("sample.txt", sample)
    print(f"The narrow model writes:\n\n{sample}\n\nAll of it is in {folder.path}/")
    return rows


def _train_and_prune(config, corpus, folder, recorders):
    budget, width = config.budget, config.model.hidden_dim
    print(f"\nTraining wide: {width} -> {config.model.target_width} neurons an FFN")
    keras.utils.set_random_seed(config.run.seed)
    model = compiled_decoder(config, width, prunable_ffn(config))
    begin, end = budget.enlarge_steps, budget.enlarge_steps + budget.prune_steps
    readings = np.concatenate(
        [np.linspace(1, begin, _READINGS), np.linspace(begin, end, _READINGS)]
    )
    recorder = _recorder(config, NARROW, width, folder, recorders, readings.astype(int))
    prune = ki.IdeaPruneCallback(
        config.model.target_width,
        begin,
        budget.prune_steps,
        method=config.pruning.method,
        compact=config.pruning.compact,
        update_every=config.pruning.update_every,
    )
    _fit(config, corpus, model, [recorder, prune])
    return model


def _train_from_scratch(config, corpus, folder, recorders):
    width = config.model.target_width
    print(f"\nTraining narrow from scratch: {width} neurons an FFN, the same batches")
    keras.utils.set_random_seed(config.run.seed)
    model = compiled_decoder(config, width, ki.GatedFFN)
    recorder = _recorder(config, SCRATCH, width, folder, recorders)
    _fit(config, corpus, model, [recorder])


def _recorder(config, name, width, folder, recorders, reading_steps=()):
    """A recorder, put among those whose curves go to the metrics file."""

    def write_metrics():
        folder.write("metrics.csv", metrics_csv([r.curve() for r in recorders]))

    recorder = Recorder(name, width, cosine(config), reading_steps, write_metrics)
    recorders.append(recorder)
    return recorder


def _fit(config, corpus, model, callbacks):
    length, batch_size = config.model.sequence_length, config.data.batch_size
    x, y = corpus.validation_windows(
        length=length, limit=config.data.validation_batches * batch_size
    )
    # Whole batches: a shorter last one would be compiled for itself.
    whole = len(x) - len(x) % batch_size or len(x)
    model.fit(
        corpus.batches(seed=config.run.seed, batch_size=batch_size, length=length),
        epochs=config.budget.total_steps // config.run.validate_every,
        steps_per_epoch=config.run.validate_every,
        validation_data=(x[:whole], y[:whole]),
        validation_batch_size=min(batch_size, whole),
        shuffle=False,
        callbacks=[*callbacks, ShortBar()],
        # The bar that moves is for a terminal; a log gets a line an interval.
        verbose=1 if sys.stdout.isatty() else 2,
    )


def _draw(config, folder, recorders):
    budget, model = config.budget, config.model
    begin, total = budget.enlarge_steps, budget.total_steps
    end = begin + budget.prune_steps
    stages = [("enlarged", 0, begin), ("pruning", begin, end), ("recovery", end, total)]
    with folder.replacing("run.png") as path:
        draw_run(
            path,
            [recorder.curve() for recorder in recorders],
            recorders[0].neurons(),
            stages if budget.recover_steps else stages[:-1],
            end if config.pruning.compact == "end" else None,
            f"{model.hidden_dim} neurons an FFN become {model.target_width} in one fit",
        )


def _measure(config, corpus, recorders, narrow):
    """The rows. Speeds are taken now, on models that nothing depends on any more."""
    shape, budget = config.model, config.budget
    wide = compiled_decoder(config, shape.hidden_dim, ki.GatedFFN)
    pruning = compiled_decoder(config, shape.hidden_dim, prunable_ffn(config))
    batch = corpus.batch(
        0, seed=0, batch_size=config.data.batch_size, length=shape.sequence_length
    )
    prune = ki.IdeaPruneCallback(shape.target_width, 0, 1, compact="off")
    pruning.fit(*batch, batch_size=len(batch[0]), callbacks=[prune], verbose=0)
    prompt, window = _ids(config.sample.prompt), shape.sequence_length
    speeds = generation_speeds({WIDE: wide, NARROW: narrow}, prompt, window)
    trained = compiled_decoder(config, shape.target_width, ki.GatedFFN)
    times = step_times({WIDE: pruning, NARROW: trained}, batch)
    rows = [
        ResultRow(
            WIDE,
            wide.count_params(),
            recorders[0].curve().validation[budget.enlarge_steps],
            times[WIDE],
            speeds[WIDE],
        )
    ]
    for recorder in recorders:
        rows.append(
            ResultRow(
                recorder.name,
                narrow.count_params(),
                recorder.curve().validation[budget.total_steps],
                times[NARROW],
                speeds[NARROW],
            )
        )
    return rows


def _facts(corpus):
    return {
        "text": corpus.description,
        "backend": keras.backend.backend(),
        "keras": keras.version(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _ids(text):
    return np.frombuffer(text.encode("utf-8"), dtype="uint8").astype("int32")


def _sample(config, narrow):
    ids = generate(
        narrow,
        _ids(config.sample.prompt),
        config.sample.tokens,
        temperature=config.sample.temperature,
        top_k=config.sample.top_k,
        seed=config.run.seed,
        window=config.model.sequence_length,
    )
    return bytes(ids.tolist()).decode("utf-8", errors="replace")
