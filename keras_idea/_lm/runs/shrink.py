"""`keras-idea shrink`: a checkpoint made smaller in one step, and measured.

The work is `keras_idea.shrink`'s.
"""

import time
from typing import Any

import keras
import numpy as np

from keras_idea._finding.budget import Budget, plain_parameters
from keras_idea._finding.find import find_ffns
from keras_idea._finding.targets import target_width, target_widths
from keras_idea._lm.data.tokens import Tokens
from keras_idea._lm.data.vocabulary import tokenizer_vocabulary
from keras_idea._lm.evaluation.perplexity import (
    Perplexity,
    TokenScorer,
    most_tokens,
    perplexity,
)
from keras_idea._lm.export.preset import export_preset
from keras_idea._lm.export.target import check_target
from keras_idea._lm.report.table import markdown_table
from keras_idea._lm.runs.judge import whole_text
from keras_idea._shapes.shrink import VOCABULARY, shrink
from keras_idea.errors import ArgumentError
from keras_idea.hub.families import needs_start
from keras_idea.hub.inputs import token_inputs
from keras_idea.hub.loading import (
    check_language_model,
    load,
    outline,
    preprocessor_of,
)
from keras_idea.methods import Activation

# Of the text: the share that is held out, and windows of it that are judged.
_HELD_OUT, _WINDOWS = 0.1, 32
_MOST = 16_000_000  # characters


def shrink_checkpoint(
    source: str,
    to: str,
    text: str,
    targets: dict[str, int | float],
    target_parameters: int | None = None,
    method: str = "activation",
    by_weights: bool = False,
    refit: bool = False,
    round_to: int = 1,
    tokens: int = 32_768,
    window: int = 512,
) -> Any:
    """Shrinks a checkpoint and saves it as a preset; prints what that did to it."""
    if bool(targets) == (target_parameters is not None):
        raise ArgumentError(
            "Say how small, in one way: targets such as --neurons 0.67, or "
            "--target-parameters."
        )
    check_target(to)
    backbone = outline(source, "float32")
    check_language_model(source, backbone)
    preprocessor = preprocessor_of(source)
    if target_parameters is not None:
        ffns, budget = find_ffns(backbone), Budget(target_parameters)
        widths = target_widths({"neurons": None}, budget, backbone, ffns, round_to)
        targets = {"neurons": max(width for _, width in widths)}
    neurons = targets.get("neurons")
    if round_to > 1 and isinstance(neurons, float):
        full = max(ffn.hidden_dim for ffn in find_ffns(backbone))
        targets = {**targets, "neurons": target_width(neurons, full, round_to)}
    positions = getattr(backbone, "max_sequence_length", None)
    window = window if positions is None else min(window, positions)
    read = whole_text(text)[:_MOST]
    cut = round(len(read) * (1 - _HELD_OUT))
    vocabulary = tokenizer_vocabulary(preprocessor.tokenizer)
    ids = np.asarray(vocabulary.encode(read[:cut]), "int32")
    starts = needs_start(type(backbone))
    start = preprocessor.tokenizer.start_token_id if starts else None
    read_ids = Tokens(ids, ids, vocabulary, text, start, start_every=1)
    x, y = read_ids.held_out_windows(window, max(1, tokens // window))
    print(f"Text: {len(ids):,} tokens, measured on {x.size:,}, in rows of {window}")
    begin = time.monotonic()
    model: Any = load(source, "float32")
    model.compile(
        keras.optimizers.SGD(0.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=None,
    )
    rows = [_row("before", model, _judge(model, read[cut:], window, starts))]
    others = {axis: size for axis, size in targets.items() if axis != VOCABULARY}
    if others:
        ranks: Any = Activation(by_weights=True) if by_weights else method
        size = max(1, most_tokens(model) // window)
        data = (token_inputs(model, x), y)
        limits: Any = {"num_samples": len(x), "batch_size": size}
        model = shrink(model, others, data, ranks, refit=refit, **limits)
    if VOCABULARY in targets:  # by all of the text
        model = shrink(
            model, {VOCABULARY: targets[VOCABULARY]}, {"token_ids": ids[None]}
        )
    rows.append(_row("after", model, _judge(model, read[cut:], window, starts)))
    print(markdown_table([_HEAD, *rows]))
    print(f"{export_preset(model, to)}")
    print(f"It took {time.monotonic() - begin:,.0f} s. Recover what it lost:")
    print(f"  keras-idea new recover.toml --preset {to} --tokens 1M --text {text}")
    return model


_HEAD = ["", "parameters", "vocabulary", "bits per byte", "perplexity per token"]


def _row(name: str, model: Any, found: Perplexity) -> list[str]:
    sizes = [f"{plain_parameters(model):,}", f"{model.output_shape[-1]:,}"]
    return [name, *sizes, f"{found.bits_per_byte:.3f}", f"{found.per_token:.3f}"]


def _judge(model: Any, text: str, window: int, starts: bool) -> Perplexity:
    """Measures perplexity on the first windows of the held-out text."""
    tokenizer = model.preprocessor.tokenizer
    vocabulary = tokenizer_vocabulary(tokenizer)
    ids = vocabulary.encode(text)[: _WINDOWS * window]
    scorer = TokenScorer(model, window, lambda x: token_inputs(model, x))
    start = tokenizer.start_token_id if starts else None
    sizes = vocabulary.token_bytes
    return perplexity(scorer, ids, sizes, window, start_id=start)
