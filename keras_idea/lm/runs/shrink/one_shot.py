"""A released checkpoint made smaller in one step, and what that did to it."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from keras_idea.errors import ExportFailed, ExportRefused, LoadRefused
from keras_idea.groups.kinds import NEURONS
from keras_idea.hub.inputs import token_inputs
from keras_idea.hub.loading import (
    check_language_model,
    check_not_quantized,
    load,
    outline,
    preprocessor_of,
)
from keras_idea.hub.vocabulary import tokens_of
from keras_idea.lm.evaluation.perplexity import most_tokens
from keras_idea.lm.export import gguf, hf
from keras_idea.lm.export.preset import export_preset
from keras_idea.lm.runs.shrink.rows import Rows, check_enough, judge, read_rows
from keras_idea.lm.runs.shrink.table import next_steps, row_of, table
from keras_idea.lm.runs.shrink.wanted import Wanted
from keras_idea.methods.calibration import heard_by
from keras_idea.shapes.search import search
from keras_idea.shapes.shrink import groups_of, shrink, widths_in
from keras_idea.shapes.targets import VOCABULARY, Shape, size_of
from keras_idea.shapes.vocabulary import check_size, rows_of

# Seconds between two lines about one stage.
_INTERVAL = 20.0


def one_shot(wanted: Wanted) -> keras.Model:
    """Shrinks a checkpoint, saves it as a preset, judges and exports it.

    What is printed: the text, the stages with their progress, a table of before and
    after, and where everything lies. All that can be known before the weights are
    loaded is checked before.

    Returns:
        The narrow model, a KerasHub `CausalLM`: what `keras_idea.shrink` returns.

    Raises:
        KerasIdeaError: as what it calls; nothing of a preset or an export that failed
            is left.
    """
    wanted.check_places()
    check_not_quantized(wanted.source)
    backbone = outline(wanted.source, "float32")
    check_language_model(wanted.source, backbone)
    shape = wanted.shape_of(backbone)
    _check_exportable(wanted, backbone)
    preprocessor = preprocessor_of(wanted.source)
    if preprocessor is None:
        raise LoadRefused(
            f"The checkpoint {wanted.source!r} has no tokenizer, so no text can be "
            "measured on it. Save it with its tokenizer."
        )
    tokens = _tokens_of(wanted, preprocessor, backbone)
    sizes = (wanted.tokens, wanted.window, tokens is not None)
    rows = read_rows(wanted.text, preprocessor, backbone, *sizes)
    if wanted.refit:
        check_enough(rows, _widest(backbone, shape))
    print(rows, flush=True)
    with _stage("Loading the checkpoint"):
        wide: Any = load(wanted.source, "float32")
    nats = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    wide.compile(keras.optimizers.SGD(0.0), nats, weighted_metrics=None)
    with _stage("Judging it before", "row") as advance:
        before = row_of("before", wide, judge(wide, rows, advance), rows)
    narrow = _shrunk(wide, shape, wanted, rows) if wanted.cuts_more else wide
    if tokens is not None:
        narrow = _with_tokens(narrow, tokens, rows)
    with _stage("Saving the preset"):
        saved = export_preset(narrow, wanted.to)
    with _stage("Judging it after", "row") as advance:
        after = row_of("after", narrow, judge(narrow, rows, advance), rows)
    print(f"\n{table([before, after], rows)}\n\n{saved}", flush=True)
    if wanted.export is not None:
        print(_export(narrow, wanted), flush=True)
    print(f"\n{next_steps(wanted)}", flush=True)
    return narrow


def _check_exportable(wanted: Wanted, backbone: keras.Model) -> None:
    """Refuses a family that the export does not know, before anything is computed."""
    if wanted.export == "gguf":
        gguf.check_family(backbone)
    if wanted.export == "hf":
        hf.check_family(backbone)


def _tokens_of(wanted: Wanted, preprocessor: Any, backbone: keras.Model) -> int | None:
    """How many tokens the vocabulary keeps; None: all."""
    if VOCABULARY not in wanted.targets:
        return None
    tokens, rows = tokens_of(preprocessor.tokenizer), rows_of(backbone)
    return check_size(tokens, wanted.targets[VOCABULARY], rows, backbone.name)


def _with_tokens(model: keras.Model, tokens: int, rows: Rows) -> keras.Model:
    """A model with the tokens that the rows' text uses most."""
    with _stage(f"Shrinking the vocabulary to {tokens:,} tokens"):
        counted = rows.counted.astype("int32")[None]
        return shrink(model, {VOCABULARY: tokens}, {"token_ids": counted})


def _widest(backbone: keras.Model, shape: Shape) -> int:
    """The most neurons that an FFN keeps; 0: a search is to find it."""
    if NEURONS not in shape:
        return 0
    groups = groups_of(backbone, {NEURONS: shape[NEURONS]})
    sizes = [size_of(NEURONS, shape[NEURONS], g.hidden_dim, g.name) for g in groups]
    return max(sizes)


def _shrunk(wide: Any, shape: Shape, wanted: Wanted, rows: Rows) -> keras.Model:
    x, y = rows.train
    data = (token_inputs(wide, x), y)
    # No more logits at once than a scorer takes.
    batch_size = max(1, most_tokens(wide) // wanted.window)
    limits: Any = {"num_samples": len(x), "batch_size": batch_size}
    batches = -(-len(x) // batch_size)
    if wanted.search:
        with _heard("Searching shapes", batches):
            found = search(
                wide,
                data,
                **wanted.budget.arguments(),
                kinds=wanted.search,
                method=wanted.ranks_by,
                candidates=wanted.candidates,
                round_to=wanted.round_to,
                **limits,
            )
        shape = found[0].targets
    kept = ", ".join(f"{axis} {size}" for axis, size in shape.items())
    # A search may find that blocks alone are best: nothing reads them.
    refit = wanted.refit and bool(widths_in(shape))
    weighed = " and weights" if wanted.by_weights else ""
    how = f"by {wanted.method}{weighed}{', then fitted' if refit else ''}"
    with _heard(f"Shrinking to {kept}, {how}", batches):
        return shrink(wide, shape, data, wanted.ranks_by, refit=refit, **limits)


def _export(narrow: keras.Model, wanted: Wanted) -> object:
    """Exports the preset that is saved already; an error says how to do it again."""
    try:
        with _stage(f"Exporting to {wanted.exported}"):
            if wanted.export == "hf":
                return hf.export_hf(narrow, wanted.exported)
            dtype = wanted.gguf_dtype or "f16"
            return gguf.export_gguf(narrow, wanted.exported, dtype)
    except (ExportRefused, ExportFailed) as error:
        said = f"{error} The preset {wanted.to!r} is saved and complete."
        raise type(error)(said) from error


@contextlib.contextmanager
def _heard(name: str, batches: int) -> Iterator[None]:
    """As `_stage`, of passes over so many batches of calibration data."""
    with _stage(name, "batch") as advance:

        def after_batch(names: Sequence[str]) -> None:
            advance(1, batches, f" ({names[0]})" if len(names) == 1 else "")

        with heard_by(after_batch):
            yield


@contextlib.contextmanager
def _stage(name: str, unit: str = "") -> Iterator[Callable[..., None]]:
    """Prints what begins, how far it is, and how long it took.

    Yields a function that takes the units just done, those of one pass, and what the
    pass is of.
    """
    begin = last = time.monotonic()
    done = 0
    print(f"{name} ...", flush=True)

    def advance(more: int, of: int, what: str = "") -> None:
        nonlocal done, last
        done, now = done + more, time.monotonic()
        if now - last >= _INTERVAL:
            last = now
            passes, here = divmod(done - 1, of)
            again = f", pass {passes + 1}" if passes else ""
            counted = f"{unit} {here + 1:,} of {of:,}{again}{what}"
            print(f"  {counted}, {now - begin:,.0f} s", flush=True)

    yield advance
    print(f"  done in {time.monotonic() - begin:,.1f} s", flush=True)
