"""What `keras-idea shrink` prints when it is done: a table, and what comes next."""

import dataclasses
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


@dataclasses.dataclass(frozen=True)
class Row:
    """A model in the table.

    Attributes:
        name: str.
        parameters: int.
        blocks: int, those with an FFN.
        widths: tuple of int, the widths of its FFNs, each once, the widest first.
        found: `Perplexity` on what is held out.
        tokens: int, of its vocabulary.
    """

    name: str
    parameters: int
    blocks: int
    widths: tuple[int, ...]
    found: Perplexity
    tokens: int


def row_of(name: str, model: Any, found: Perplexity) -> Row:
    """The row of a model."""
    ffns = [group for group in find_groups(model) if group.kind == NEURONS]
    widths = sorted({ffn.width for ffn in ffns}, reverse=True)
    size = plain_parameters(model)
    tokens = int(model.output_shape[-1])
    return Row(name, size, len(ffns), tuple(widths), found, tokens)


def table(rows: Sequence[Row], text: Rows) -> str:
    """Lines of text: a row a model, and below them what was measured on.

    Of two vocabularies bits per byte: perplexities per token cannot be compared.
    """
    head = ["", "parameters", "bytes (float32)", "FFNs", "FFN width"]
    head += ["vocabulary", "bits per byte"] if text.text else ["perplexity per token"]
    lines = [head]
    for row in rows:
        size = row.parameters * BYTES["float32"]
        widths = "/".join(map(str, row.widths))
        figures = [f"{row.parameters:,}", f"{size:,}", str(row.blocks), widths]
        judged = [f"{row.found.per_token:.3f}"]
        if text.text:
            judged = [f"{row.tokens:,}", f"{row.found.bits_per_byte:.3f}"]
        lines.append([row.name, *figures, *judged])
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
    if VOCABULARY in wanted.targets:
        lines += [
            "To prune its FFNs too, and recover it (the preset is its own teacher; the "
            "checkpoint has other tokens):",
            f"  keras-idea new {to}.toml --preset {to} --tokens 1M --text {text}",
        ]
        return "\n".join(lines)
    lines += [
        "To recover what it lost, train it with the checkpoint as teacher, "
        "`ki.distiller(teacher, student)`:",
        '  docs/faq.md, "What recovers a pruned checkpoint best?"',
    ]
    return "\n".join(lines)
