"""What a run leaves when its models are trained: plot, table and a text."""

import dataclasses
import math
import platform
from typing import Any

import keras
import numpy as np

from keras_idea._files import replacing
from keras_idea._lm.report.picture import draw_run
from keras_idea._lm.report.table import ResultRow, to_json, to_markdown
from keras_idea._lm.runs.compiling import cross_entropy, learning_rate
from keras_idea._lm.runs.fitting import Run, evaluate
from keras_idea._lm.runs.models import keras_hub
from keras_idea.hub.inputs import token_inputs

#: The entry of the run folder that holds the narrow model.
SAVED_AS = "preset"
#: The models of a run's table.
NARROW, SCRATCH = "pruned", "narrow from scratch"
WIDE, CUT, TEACHER = "wide before pruning", "pruned, not recovered", "teacher"
_TOP_K = 40


def write_results(run: Run, narrow: keras.Model) -> list[ResultRow]:
    """Writes and prints the results of a trained run; its last file is status.json."""
    folder, timeline = run.folder, run.timeline
    teacher = _teacher_row(run)
    rows = ([] if teacher is None else [teacher]) + _rows(run, narrow)
    with replacing(folder.path / "run.png") as path:
        draw_run(
            path,
            list(run.curves.values()),
            timeline.stages,
            learning_rate(run.config),
            list(timeline.narrowings),
            f"{timeline.wide.pruned_to(timeline.narrow)}, in one fit",
            None if teacher is None else teacher.bits_per_byte,
        )
    notes = _verdict(rows)
    if run.config.data.chat:
        notes.append("Bits and perplexity are those of the held-out responses alone.")
    said = "\n".join(notes)
    folder.write("table.md", f"{to_markdown(rows)}\n{said}".rstrip() + "\n")
    facts = {
        "text": run.models.text.description,
        "backend": keras.backend.backend(),
        "keras": keras.version(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    folder.write("table.json", to_json(rows, facts))
    print(f"\n{to_markdown(rows)}\n{said}", flush=True)
    sample = _sample(run, narrow)
    folder.write("sample.txt", sample)
    print(f"\nThe narrow model writes:\n\n{sample}\n\n{_how_to_load(run)}", flush=True)
    folder.set_status(
        state="finished", step=timeline.total, of=timeline.total, table="table.md"
    )
    return rows


def _rows(run: Run, narrow: keras.Model) -> list[ResultRow]:
    """The wide model before pruning; the pruned one before recovery; each at the end.

    The time of a step is that of the fastest epoch: before the first narrowing, and
    after the last one.
    """
    timeline, curve = run.timeline, run.curves[NARROW]
    narrowed = list(timeline.narrowings) or [timeline.total]
    wide = run.models.source.outline(timeline.wide).count_params()
    size = narrow.count_params()

    def row(name: str, of: str, parameters: int, step: int) -> ResultRow | None:
        bits = run.curves[of].validation_at(step)
        if bits is None:
            return None
        perplexity = run.units.perplexity(bits)
        return ResultRow(name, parameters, bits, None, perplexity)

    ms = {
        WIDE: curve.fastest(0, narrowed[0]),
        NARROW: curve.fastest(narrowed[-1], timeline.total),
    }
    found = [row(WIDE, NARROW, wide, timeline.begin)]
    if timeline.end < timeline.total:
        found.append(row(CUT, NARROW, size, timeline.end))
    found.append(row(NARROW, NARROW, size, timeline.total))
    if SCRATCH in run.curves:
        ms[SCRATCH] = run.curves[SCRATCH].fastest(0, timeline.total)
        found.append(row(SCRATCH, SCRATCH, size, timeline.total))
    return [dataclasses.replace(row, step_ms=ms.get(row.name)) for row in found if row]


def _teacher_row(run: Run) -> ResultRow | None:
    if run.teacher is None:
        return None
    size = run.teacher.count_params()
    if run.distribution is not None:  # it lies on the devices of all processes
        return ResultRow(TEACHER, size)
    run.teacher.compile(loss=cross_entropy())
    x, *rest = run.validation
    # In the parts in which the student is validated: memory is the same.
    inputs = token_inputs(run.teacher, x)
    bits = evaluate(run, run.teacher, inputs, rest, run.rows_at_once)
    return ResultRow(TEACHER, size, bits, None, run.units.perplexity(bits))


def _verdict(rows: list[ResultRow]) -> list[str]:
    """Compares the pruned model with the other trained models."""
    bits = {row.name: row.bits_per_byte or math.nan for row in rows}
    lines = []
    for name, more in ((TEACHER, ""), (SCRATCH, " at equal tokens, with more FLOPs")):
        gap = round(bits[NARROW], 3) - round(bits.get(name, math.nan), 3)
        if math.isfinite(gap):
            how = f"{'better' if gap < 0 else 'worse'} by {abs(gap):.3f}"
            how = "equal" if abs(gap) < 5e-4 else how
            lines.append(
                f"Pruned {bits[NARROW]:.3f}, {name} {bits[name]:.3f} bits per byte: "
                f"the pruned model is {how}{more}. Another seed may change it by 0.03."
            )
    return lines


def _sample(run: Run, narrow: keras.Model) -> str:
    """Text that the narrow model writes, its prompt at the beginning."""
    settings, vocabulary = run.config.sample, run.models.text.vocabulary
    start = [] if run.models.start_id is None else [run.models.start_id]
    if settings.prompt is not None:
        prompt = [int(i) for i in vocabulary.encode(settings.prompt)]
    else:  # how the held-out text begins; of a conversation, all before the response
        tokens, _, *weights = run.validation
        most = int(np.argmax(weights[0][0])) + 1 if weights else 16
        prompt = [int(i) for i in tokens[0, len(start) : most]]
    samplers, seed = keras_hub().samplers, run.config.run.seed
    sampler = samplers.GreedySampler()
    if settings.temperature:
        k = min(_TOP_K, run.models.source.vocabulary_size)
        sampler = samplers.TopKSampler(k, temperature=settings.temperature, seed=seed)
    ids = write(narrow, [*start, *prompt], settings.tokens, run.length, sampler)
    return vocabulary.decode(ids[len(start) :])


def write(
    model: Any, ids: list[int], count: int, window: int, sampler: Any
) -> list[int]:
    """Continues tokens with KerasHub's cache; sets the model's sampler.

    In a text longer than the window, half a window of new tokens follows the last half.
    """
    end = len(ids) + count
    length = max(2, min(window, end))
    model.sampler, model.generate_function = sampler, None
    while len(ids) < end:
        held = ids if len(ids) < length else ids[-(length // 2) :]
        row = np.zeros((1, length), "int32")
        row[0, : len(held)] = held
        mask = np.arange(length)[None] < len(held)
        inputs = token_inputs(model, row, mask)
        tensors = keras.tree.map_structure(keras.ops.convert_to_tensor, inputs)
        written = model.make_generate_function()(tensors, stop_token_ids=None)
        new = keras.ops.convert_to_numpy(written["token_ids"])[0, len(held) :]
        ids = [*ids, *new.tolist()]
    return ids[:end]


def _how_to_load(run: Run) -> str:
    path = f"{run.folder.shown}/{SAVED_AS}"
    load = f"keras_hub.models.CausalLM.from_preset({path!r})"
    if run.config.model.preset is not None:
        load = f"keras_idea.hub.load({path!r})"
    return f"All of it is in {run.folder.shown}/. Load the narrow model: {load}"
