"""What a run leaves when its models are trained: picture, table and text."""

import dataclasses
import math
import pathlib
import platform
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from keras_idea.callbacks import IdeaPruneCallback
from keras_idea.data.tokens.interfaces import Batch
from keras_idea.hub.inputs import token_inputs
from keras_idea.models.generate import generate
from keras_idea.report import ResultRow
from keras_idea.report.picture import draw_run
from keras_idea.runs.models.build import RunModels
from keras_idea.runs.train.recorder import Recorder
from keras_idea.runs.train.run import ALONE, CUT, NARROW, SCRATCH, TEACHER, WIDE, Run
from keras_idea.runs.train.timing import generation_speeds, step_times

#: What the bits of a run on conversations are.
OF_RESPONSES = "Bits and perplexity are those of the held-out responses alone."


def draw(run: Run) -> None:
    """Draws the picture of a run into its folder."""
    timeline = run.timeline
    with run.folder.replacing("run.png") as path:
        draw_run(
            path,
            [recorder.curve() for recorder in run.recorders],
            run.recorders[0].neurons(),
            timeline.stages,
            list(timeline.compactions),
            f"{timeline.wide.pruned_to(timeline.narrow)}, in one fit",
        )


def measure(run: Run, narrow: keras.Model, prompt: str) -> dict[str, ResultRow]:
    """What the models cost: measured at the end, on such as nobody needs any more.

    `narrow` is the one that was pruned; generated text goes on from `prompt`.

    Returns:
        dict of `WIDE` and `NARROW` to `ResultRow`, without bits. A step of the wide
        model is one with pruning.
    """
    models, length, parts = run.models, run.length, run.config.micro_batches
    made = {WIDE: models.plain(models.at_start), NARROW: narrow}
    speeds = generation_speeds(made, models.vocabulary.encode(prompt), length)
    part = run.config.data.batch_size // parts
    batch = models.corpus.batch(0, seed=0, batch_size=part, length=length)
    times = step_times(_to_train(models, batch, parts), batch)
    return {
        name: ResultRow(
            name,
            parameters=model.count_params(),
            step_ms=parts * times[name],
            generation_speed=speeds[name] * run.bits.train,
        )
        for name, model in made.items()
    }


def rows(run: Run, costs: Mapping[str, ResultRow]) -> list[ResultRow]:
    """The rows of the table; the costs are what `measure` returned.

    The wide model right before pruning, the pruned one before it recovers, if it was
    judged then, and each training's at its end.
    """
    recorders, timeline = run.recorders, run.timeline

    def row(name: str, recorder: Recorder, step: int, cost: ResultRow) -> ResultRow:
        return judged(run, cost, name, recorder.curve().validation[step])

    found = [row(WIDE, recorders[0], timeline.begin, costs[WIDE])]
    if timeline.end < timeline.total:
        bits = recorders[0].curve().validation.get(timeline.end)
        if bits is not None:  # a validation fell on that step
            parameters = costs[NARROW].parameters
            found.append(judged(run, ResultRow(CUT, parameters), CUT, bits))
    at_end = [row(each.name, each, timeline.total, costs[NARROW]) for each in recorders]
    return found + at_end


def judged(run: Run, cost: ResultRow, name: str, bits: float | None) -> ResultRow:
    """A row with the bits per byte of a validation, and its perplexity per token."""
    perplexity = None if bits is None else run.bits.perplexity(bits)
    values = {"bits_per_byte": bits, "perplexity_per_token": perplexity}
    return dataclasses.replace(cost, name=name, **values)


def facts(run: Run) -> dict[str, str]:
    """What is worth knowing of a run besides its table."""
    return {
        "text": run.models.corpus.description,
        "backend": keras.backend.backend(),
        "keras": keras.version(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def opening(run: Run) -> str:
    """How the validation text begins, 16 tokens or a prompt: to be continued."""
    text = run.models.vocabulary.decode(_opening_ids(run))
    # A character of several bytes may have been cut at either end.
    return text.strip("\ufffd") or " "


def _opening_ids(run: Run) -> list[int]:
    tokens, _, *weights = run.validation
    # Of a conversation, all before the first response.
    most = int(np.argmax(weights[0][0])) + 1 if weights else 16
    return [int(i) for i in tokens[0, :most]]


def written_text(run: Run, narrow: keras.Model, prompt: str) -> str:
    """Text that the narrow model writes, its prompt at the beginning."""
    settings, vocabulary = run.config.sample, run.models.vocabulary
    # The text of a conversation may lack the tokens of its template.
    by_ids = run.config.chat.given and not settings.prompt
    ids = generate(
        narrow,
        _opening_ids(run) if by_ids else vocabulary.encode(prompt),
        settings.tokens,
        temperature=settings.temperature,
        top_k=settings.top_k,
        seed=run.config.run.seed,
        window=run.length,
    )
    return vocabulary.decode(ids)


def how_to_load(run: Run, prompt: str) -> str:
    """What to type to use the preset that a run has left, without this package."""
    preset = pathlib.Path(run.folder.shown) / "preset"
    return (
        f"The narrow model is a stock KerasHub model, in {preset}/. It needs no "
        "keras_idea:\n\n"
        "    import keras_hub\n"
        f"    lm = keras_hub.models.CausalLM.from_preset({str(preset)!r})\n"
        f"    print(lm.generate({prompt!r}, max_length={run.length}))\n"
    )


def verdict(rows: Sequence[ResultRow]) -> str:
    """How the pruned model compares with each other model of a run; "" with none."""
    bits = {row.name: row.bits_per_byte for row in rows}
    ours = bits.get(NARROW)
    compared = [
        sentence.format(ours=f"{ours:.3f}", theirs=f"{theirs:.3f}", gap=_gap(gap))
        for name, sentence in _VERDICTS.items()
        if ours is not None and (theirs := bits.get(name)) is not None
        for gap in [round(ours, 3) - round(theirs, 3)]
    ]
    return "\n".join([*compared, *([_ONE_RUN] if compared else [])])


# By the model that the pruned one is compared with.
_VERDICTS = {
    TEACHER: "Pruned {ours}, teacher {theirs} bits per byte: the pruned model is "
    "{gap}.",
    ALONE: "With the teacher {ours}, without it {theirs} bits per byte: the pruned "
    "model with the teacher is {gap}.",
    SCRATCH: "Pruned {ours}, narrow from scratch {theirs} bits per byte at equal "
    "tokens: the pruned model is {gap}. It took more FLOPs (`keras-idea plan`).",
}
_ONE_RUN = (
    "This is one run of each. In measurements with small models, another seed changed "
    "such a difference by 0.01 to 0.03."
)


def _gap(gap: float) -> str:
    if not math.isfinite(gap):
        return "not comparable"
    if abs(gap) < 5e-4:
        return "equal to three digits"
    return f"{'better' if gap < 0 else 'worse'} by {abs(gap):.3f}"


def _to_train(models: RunModels, batch: Batch, parts: int) -> dict[str, keras.Model]:
    """Dict of name to model that trains: wide with pruning on, and narrow."""
    ids, following = (np.tile(array, (parts, 1)) for array in batch[:2])
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
