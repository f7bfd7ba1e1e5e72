"""What `keras-idea shrink` prints when it is done: a table, and what comes next."""

import shlex
from collections.abc import Sequence
from typing import Any

from keras_idea.finding.budget import BYTES, plain_parameters
from keras_idea.finding.find import find_groups
from keras_idea.groups.kinds import NEURONS
from keras_idea.lm.evaluation.perplexity import Perplexity
from keras_idea.lm.runs.shrink.rows import Rows
from keras_idea.lm.runs.shrink.wanted import Wanted
from keras_idea.shapes.targets import VOCABULARY


def row_of(name: str, model: Any, found: Perplexity, text: Rows) -> list[str]:
    """The cells of a model, and of what was `found` on what is held out."""
    ffns = [group for group in find_groups(model) if group.kind == NEURONS]
    widths = map(str, sorted({ffn.width for ffn in ffns}, reverse=True))
    size = plain_parameters(model)
    figures = [f"{size:,}", f"{size * BYTES['float32']:,}", str(len(ffns))]
    judged = [f"{found.per_token:.3f}"]
    if text.text:
        judged = [f"{model.output_shape[-1]:,}", f"{found.bits_per_byte:.3f}"]
    return [name, *figures, "/".join(widths), *judged]


def table(rows: Sequence[list[str]], text: Rows) -> str:
    """Lines of text: the rows of models, and below them what was measured on.

    Of two vocabularies bits per byte: perplexities per token cannot be compared.
    """
    head = ["", "parameters", "bytes (float32)", "FFNs", "FFN width"]
    head += ["vocabulary", "bits per byte"] if text.text else ["perplexity per token"]
    lines = [head, *rows]
    sizes = [max(map(len, column)) for column in zip(*lines, strict=True)]
    printed = [
        "  ".join(f"{cell:>{size}}" for cell, size in zip(line, sizes, strict=True))
        for line in lines
    ]
    count, window = text.held_out[0].shape
    begin = "" if text.start_id is None else " that begin with the start token"
    what = f"Perplexity on {count * window:,} held-out tokens, in"
    if text.text:
        what = (
            "Bits per byte (lower is better) of the same "
            f"{len(text.text.encode()):,} held-out bytes, in"
        )
    where = f"{what} windows of {window} tokens without overlap{begin}."
    return "\n".join([*printed, where])


def next_steps(wanted: Wanted) -> str:
    """Where the preset lies, and what to do with it."""
    to, text = shlex.quote(wanted.to), shlex.quote(wanted.text)
    lines = [
        f"The preset is in {wanted.to}. Next:",
        f"  keras-idea evaluate {to} --text {text}",
    ]
    if wanted.export is None:
        gguf = f"{to} --gguf {to}.gguf --gguf-dtype q8_0"
        lines.append(f"  keras-idea export {gguf}   # for llama.cpp")
    if VOCABULARY in wanted.targets and NEURONS not in wanted.targets:
        lines += [
            "To prune its FFNs too, and recover it (the preset is its own teacher; the "
            "checkpoint has other tokens):",
            f"  keras-idea new {to}.toml --preset {to} --tokens 1M --text {text}",
        ]
        return "\n".join(lines)
    how = (
        "on text (the checkpoint has other tokens, so it cannot be the teacher)"
        if VOCABULARY in wanted.targets
        else "with the checkpoint as teacher, `ki.distiller(teacher, student)`"
    )
    lines += [
        f"To recover what it lost, train it {how}:",
        '  docs/checkpoint.md, "What recovers a pruned checkpoint best?"',
    ]
    return "\n".join(lines)
