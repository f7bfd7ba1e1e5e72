"""What `keras-idea shrink` prints when it is done: a table, and what comes next."""

import dataclasses
import shlex
from collections.abc import Sequence

import keras

from keras_idea.finding.budget import BYTES, plain_parameters
from keras_idea.finding.find import find_groups
from keras_idea.groups.kinds import NEURONS
from keras_idea.lm.evaluation.perplexity import Perplexity
from keras_idea.lm.runs.shrink.rows import Rows
from keras_idea.lm.runs.shrink.wanted import Wanted


@dataclasses.dataclass(frozen=True)
class Row:
    """A model in the table.

    Attributes:
        name: str.
        parameters: int.
        blocks: int, those with an FFN.
        widths: tuple of int, the widths of its FFNs, each once, the widest first.
        found: `Perplexity` on the held-out rows.
    """

    name: str
    parameters: int
    blocks: int
    widths: tuple[int, ...]
    found: Perplexity


def row_of(name: str, model: keras.Model, found: Perplexity) -> Row:
    """The row of a model."""
    ffns = [group for group in find_groups(model) if group.kind == NEURONS]
    widths = sorted({ffn.width for ffn in ffns}, reverse=True)
    return Row(name, plain_parameters(model), len(ffns), tuple(widths), found)


def table(rows: Sequence[Row], text: Rows) -> str:
    """Lines of text: a row a model, and below them what was measured on."""
    head = ["", "parameters", "bytes (float32)", "FFNs", "FFN width", _PERPLEXITY]
    lines = [head]
    for row in rows:
        size = row.parameters * BYTES["float32"]
        widths = "/".join(map(str, row.widths))
        figures = [f"{row.parameters:,}", f"{size:,}", str(row.blocks), widths]
        lines.append([row.name, *figures, f"{row.found.per_token:.3f}"])
    sizes = [max(map(len, column)) for column in zip(*lines, strict=True)]
    printed = [
        "  ".join(f"{cell:>{size}}" for cell, size in zip(line, sizes, strict=True))
        for line in lines
    ]
    count, window = text.held_out[0].shape
    begin = "" if text.start_id is None else " that begin with the start token"
    return "\n".join(
        [
            *printed,
            f"Perplexity on {count * window:,} held-out tokens, in windows of {window} "
            f"tokens without overlap{begin}.",
        ]
    )


_PERPLEXITY = "perplexity per token"


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
    lines += [
        "To recover what it lost, train it with the checkpoint as teacher, "
        "`ki.distiller(teacher, student)`:",
        '  docs/faq.md, "What recovers a pruned checkpoint best?"',
    ]
    return "\n".join(lines)
