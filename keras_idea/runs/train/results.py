"""What a run leaves when its models are trained: picture, table and text."""

import dataclasses
import pathlib
import platform
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from keras_idea.callbacks import IdeaPruneCallback
from keras_idea.data import Vocabulary
from keras_idea.hub.inputs import token_inputs
from keras_idea.models.generate import generate
from keras_idea.report import ResultRow
from keras_idea.report.picture import draw_run
from keras_idea.runs.config.tables import SampleConfig
from keras_idea.runs.config.timeline import Timeline
from keras_idea.runs.models.build import RunModels
from keras_idea.runs.run_folder import RunFolder
from keras_idea.runs.train.recorder import Recorder
from keras_idea.runs.train.run import CUT, NARROW, WIDE
from keras_idea.runs.train.timing import generation_speeds, step_times


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a model costs, however well it predicts.

    Attributes:
        parameters: int, trained numbers.
        step_ms: float, milliseconds a training step; of the wide model with pruning.
        tokens_per_second: float, generated.
    """

    parameters: int
    step_ms: float
    tokens_per_second: float


def draw(folder: RunFolder, recorders: Sequence[Recorder], timeline: Timeline) -> None:
    """Draws the picture of a run into its folder.

    Args:
        folder: `RunFolder`.
        recorders: list of `Recorder`, the pruned training's first.
        timeline: `Timeline`.
    """
    with folder.replacing("run.png") as path:
        draw_run(
            path,
            [recorder.curve() for recorder in recorders],
            recorders[0].neurons(),
            timeline.stages,
            list(timeline.compactions),
            f"{timeline.wide.pruned_to(timeline.narrow)}, in one fit",
        )


def measure(
    models: RunModels,
    narrow: keras.Model,
    batch_size: int,
    length: int,
    prompt: str,
    parts: int = 1,
) -> dict[str, Cost]:
    """What the models cost: measured at the end, on such as nobody needs any more.

    Args:
        models: `RunModels`.
        narrow: keras.Model, the one that was pruned.
        batch_size: int, sequences of a training step.
        length: int, tokens of a sequence.
        prompt: str, that generated text goes on from.
        parts: int, micro-batches of a training step. Default 1.

    Returns:
        dict of `WIDE` and `NARROW` to `Cost`.
    """
    made = {WIDE: models.plain(models.at_start), NARROW: narrow}
    speeds = generation_speeds(made, models.vocabulary.encode(prompt), length)
    part = batch_size // parts
    batch = models.corpus.batch(0, seed=0, batch_size=part, length=length)
    times = step_times(_to_train(models, batch, parts), batch)
    return {
        name: Cost(model.count_params(), parts * times[name], speeds[name])
        for name, model in made.items()
    }


def rows(
    recorders: Sequence[Recorder],
    timeline: Timeline,
    costs: Mapping[str, Cost],
    bytes_per_token: float,
) -> list[ResultRow]:
    """The rows of the table.

    Args:
        recorders: list of `Recorder`, the pruned training's first.
        timeline: `Timeline`.
        costs: dict, as `measure` returns.
        bytes_per_token: float, bytes of text that a token stands for on average.

    Returns:
        List of `ResultRow`: the wide model right before pruning, the pruned one before
        it recovers, if it was judged then, and each training's at its end.
    """

    def row(name: str, recorder: Recorder, step: int, cost: Cost) -> ResultRow:
        bits = recorder.curve().validation[step]
        speed = cost.tokens_per_second * bytes_per_token
        return ResultRow(name, cost.parameters, bits, cost.step_ms, speed)

    found = [row(WIDE, recorders[0], timeline.begin, costs[WIDE])]
    if timeline.end < timeline.total:
        bits = recorders[0].curve().validation.get(timeline.end)
        if bits is not None:  # a validation fell on that step
            found.append(ResultRow(CUT, costs[NARROW].parameters, bits))
    at_end = [row(each.name, each, timeline.total, costs[NARROW]) for each in recorders]
    return found + at_end


def facts(text: str) -> dict[str, str]:
    """What is worth knowing of a run besides its table.

    Args:
        text: str, what was read.

    Returns:
        dict of str to str.
    """
    return {
        "text": text,
        "backend": keras.backend.backend(),
        "keras": keras.version(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def opening(models: RunModels, length: int) -> str:
    """How the validation text begins: a prompt that suits any text.

    Args:
        models: `RunModels`, whose text it is.
        length: int, tokens of a sequence of the run, which the text surely has. Of
            more than 16 the first 16.

    Returns:
        str.
    """
    windows, _ = models.corpus.validation_windows(length=min(length, 16), limit=1)
    text = models.vocabulary.decode([int(i) for i in windows[0]])
    # A character of several bytes may have been cut at either end.
    return text.strip("\ufffd") or " "


def written_text(
    narrow: keras.Model,
    vocabulary: Vocabulary,
    prompt: str,
    settings: SampleConfig,
    seed: int,
    window: int,
) -> str:
    """Text that a model writes, its prompt at the beginning.

    Args:
        narrow: keras.Model, tokens to logits.
        vocabulary: `Vocabulary`, its tokens.
        prompt: str, that it goes on from.
        settings: `SampleConfig`, all else.
        seed: int.
        window: int, tokens the model sees at once.

    Returns:
        str.
    """
    ids = generate(
        narrow,
        vocabulary.encode(prompt),
        settings.tokens,
        temperature=settings.temperature,
        top_k=settings.top_k,
        seed=seed,
        window=window,
    )
    return vocabulary.decode(ids)


def how_to_load(preset: pathlib.Path, prompt: str, length: int) -> str:
    """What to type to use the preset that a run has left, without this package.

    Args:
        preset: path of it.
        prompt: str, that the model goes on from.
        length: int, tokens of the text that it then has.

    Returns:
        str, some lines.
    """
    return (
        f"The narrow model is a stock KerasHub model, in {preset}/. It needs no "
        "keras_idea:\n\n"
        "    import keras_hub\n"
        f"    lm = keras_hub.models.CausalLM.from_preset({str(preset)!r})\n"
        f"    print(lm.generate({prompt!r}, max_length={length}))\n"
    )


def _to_train(
    models: RunModels, batch: tuple[np.ndarray, np.ndarray], parts: int
) -> dict[str, keras.Model]:
    """Dict of name to model that trains: wide with pruning on, and narrow."""
    ids, following = (np.tile(array, (parts, 1)) for array in batch)
    pruning = models.wide()
    prune = IdeaPruneCallback(
        begin_step=0,
        prune_steps=1,
        compact="off",
        targets=dict(models.at_start.smaller_in(models.at_end).items()),
    )
    keras.Model.fit(
        pruning,
        token_inputs(pruning, ids),
        following,
        batch_size=len(batch[0]),
        callbacks=[prune],
        verbose=0,
    )
    return {WIDE: pruning, NARROW: models.plain(models.at_end)}
