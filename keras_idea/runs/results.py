"""What a run leaves when its models are trained: picture, table and text."""

import platform

import keras

from keras_idea.callbacks import IdeaPruneCallback
from keras_idea.hub.inputs import token_inputs
from keras_idea.models.generate import generate
from keras_idea.report import ResultRow
from keras_idea.report.picture import draw_run
from keras_idea.runs.compactions import compactions
from keras_idea.runs.run import NARROW, WIDE
from keras_idea.runs.timing import generation_speeds, step_times


def draw(run):
    """Draws the picture of a `Run` into its folder."""
    budget, models = run.config.budget, run.models
    begin, total = budget.enlarge_steps, budget.total_steps
    end = begin + budget.prune_steps
    stages = [("enlarged", 0, begin), ("pruning", begin, end), ("recovery", end, total)]
    with run.folder.replacing("run.png") as path:
        draw_run(
            path,
            [recorder.curve() for recorder in run.recorders],
            run.recorders[0].neurons(),
            stages if budget.recover_steps else stages[:-1],
            list(compactions(run.config, models.hidden_dim, models.target_dim)),
            f"{models.hidden_dim} neurons an FFN become {models.target_dim} in one fit",
        )


def measure(run, narrow):
    """The rows of the table.

    Speeds are taken now, on models that nothing depends on any more.

    Args:
        run: `Run`, trained.
        narrow: keras.Model, the narrow one.

    Returns:
        List of `ResultRow`.
    """
    budget, models = run.config.budget, run.models
    wide = models.plain(models.hidden_dim)
    speeds = _generation_speeds(run, {WIDE: wide, NARROW: narrow})
    times = _step_times(run)
    first = run.recorders[0].curve().validation[budget.enlarge_steps]
    rows = [ResultRow(WIDE, wide.count_params(), first, times[WIDE], speeds[WIDE])]
    for recorder in run.recorders:
        last = recorder.curve().validation[budget.total_steps]
        rows.append(
            ResultRow(
                recorder.name,
                narrow.count_params(),
                last,
                times[NARROW],
                speeds[NARROW],
            )
        )
    return rows


def facts(run):
    """Dict of what is worth knowing of a `Run` besides its table."""
    return {
        "text": run.models.corpus.description,
        "backend": keras.backend.backend(),
        "keras": keras.version(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def sample(run, narrow):
    """Text that the narrow model of a `Run` writes, its prompt at the beginning."""
    settings, vocabulary = run.config.sample, run.models.vocabulary
    ids = generate(
        narrow,
        vocabulary.encode(settings.prompt),
        settings.tokens,
        temperature=settings.temperature,
        top_k=settings.top_k,
        seed=run.config.run.seed,
        window=run.config.model.sequence_length,
    )
    return vocabulary.decode(ids)


def how_to_load(run):
    """What to type to use the preset that a `Run` has left, without this package."""
    preset = str(run.folder.path / "preset")
    return (
        f"The narrow model is a stock KerasHub model, in {preset}/. It needs no "
        "keras_idea:\n\n"
        "    import keras_hub\n"
        f"    lm = keras_hub.models.CausalLM.from_preset({preset!r})\n"
        f"    print(lm.generate({run.config.sample.prompt!r}, "
        f"max_length={run.config.model.sequence_length}))\n"
    )


def _generation_speeds(run, models):
    """Dict of name to bytes of text a second."""
    prompt = run.models.vocabulary.encode(run.config.sample.prompt)
    window = run.config.model.sequence_length
    speeds = generation_speeds(models, prompt, window)
    return {name: speed * run.bits.train for name, speed in speeds.items()}


def _step_times(run):
    """Dict of name to milliseconds a step: wide with pruning on, and narrow."""
    models = run.models
    batch_size = run.config.data.batch_size
    ids, targets = models.corpus.batch(
        0, seed=0, batch_size=batch_size, length=run.config.model.sequence_length
    )
    pruning = models.wide()
    keras.Model.fit(
        pruning,
        token_inputs(pruning, ids),
        targets,
        batch_size=batch_size,
        callbacks=[IdeaPruneCallback(models.target_dim, 0, 1, compact="off")],
        verbose=0,
    )
    timed = {WIDE: pruning, NARROW: models.plain(models.target_dim)}
    return step_times(timed, (ids, targets))
