"""Makes a smaller model from a trained one, in one step and without training."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import keras
import numpy as np
from keras import ops

from keras_idea import methods
from keras_idea._finding.budget import Budget
from keras_idea._finding.explain import why_nothing
from keras_idea._finding.find import all_heads, find_groups
from keras_idea._finding.targets import (
    check_sizes,
    check_targets,
    target_width,
    target_widths,
)
from keras_idea._graph.group import FFN
from keras_idea._groups.kinds import KINDS, KV_GROUPS
from keras_idea._groups.state import Scoring
from keras_idea._keras.layers import walk
from keras_idea._keras.models import compile_arguments
from keras_idea._shapes.blocks import (
    block_influence,
    find_blocks,
    most_important,
    patterns,
    take_out,
)
from keras_idea._shapes.features import (
    narrow_streams,
    stream_importance,
    streams_of,
)
from keras_idea._shapes.vocabulary import (
    count_tokens,
    kept_tokens,
    rows_of,
    take_tokens,
)
from keras_idea._step.algorithm import Track
from keras_idea._step.pruner import NeuronPruner
from keras_idea._surgery.compact import compile_like, narrowed
from keras_idea._surgery.refit import carry_out_and_refit, carry_out_decision
from keras_idea._surgery.trial import try_groups
from keras_idea.errors import ArgumentError
from keras_idea.hub.rebuild import check_plain
from keras_idea.methods.calibration import Batch, Samples
from keras_idea.methods.method import Decision, Method, keep_largest

Model = TypeVar("Model", bound=keras.Model)
#: The axes besides the kinds of groups.
BLOCKS, FEATURES, VOCABULARY = "blocks", "features", "vocabulary"
#: By axis: an int, how many stay; or a float in (0, 1), the fraction that stays.
Shape: TypeAlias = dict[str, int | float]


def shrink(
    model: Model,
    targets: Any = None,
    data: Any = None,
    method: str | Method = "activation",
    refit: bool = False,
    *,
    target_parameters: int | None = None,
    num_samples: int = 1024,
    batch_size: int = 32,
) -> Model:
    """Makes a new, smaller model from a trained one, in one step and without training.

    Use it to choose the shape of a trained model before you train it further. The least
    important parts are cut out of a copy, which is again a stock model. Its loss is
    usually worse, so train it afterwards. For a large cut, remove blocks first:
    `{"blocks": 0.8}`. To prune during training, use `IdeaPruneCallback`.

    Args:
        model: keras.Model. A built Keras model, as for `compact`. It is not changed.
        targets: dict. Maps an axis to what stays: a number (int >= 1) or a fraction
            (float in (0, 1)). The axes: "neurons" of each FFN; "kv_groups", key/value
            heads of each attention layer, with their query heads; "channels" of
            convolutions; "blocks" of a KerasHub model, or of a functional model or
            `Sequential` whose layers of one class hold other layers; "features" of each
            residual stream, together with "kv_groups" by one share where a head is
            hidden_dim / heads wide; "vocabulary", tokens of a KerasHub `CausalLM` with
            a byte-level BPE or a SentencePiece BPE tokenizer. With `target_parameters`,
            a list of kinds or None, as in `IdeaPruneCallback`.
        data: samples as for `keras_idea.methods.Activation`, a tuple `(x, y)` or
            `(x, y, sample_weight)` of arrays, or None. The importance is measured on
            them. None is enough for widths by "magnitude", "random" or a method that
            has data. For "vocabulary" also texts: a str, or an iterable of str, of
            which the model's preprocessor makes the samples. Defaults to None.
        method: str or `keras_idea.methods.Method`. What ranks neurons, heads and
            channels: a method of `IdeaPruneCallback`, but not "learned_mask".
            "activation" measures activations on the data, "magnitude" the norm of the
            weights, "sensitivity" the mean of |gradient x weight| over batches of
            `(x, y)`. Defaults to "activation".
        refit: bool. Whether to fit what reads the units that stay (down kernels, output
            projections of attention, convolutions) to the wide layer's outputs on the
            data, by ridge least squares, layer after layer. Every fourth sample is held
            out to choose the ridge. The others need as many tokens, or places of
            images, as a kernel keeps rows. Features are cut in a call of their own,
            before. A method made with `refit=True` does the same. Defaults to False.
        target_parameters: int >= 1 or None. A budget in place of numbers in `targets`:
            the new model has at most so many parameters. Defaults to None.
        num_samples: int >= 1. The most samples to use. Defaults to 1024.
        batch_size: int >= 1. Samples per batch, if `data` are arrays. Defaults to 32.

    Returns:
        A new model of the same class. If the model is compiled, it is compiled too,
        with a new optimizer of the same config.

    Raises:
        ValueError: If the targets cannot be met, if the model does not have an axis or
            it cannot be cut exactly, or if data are missing.
        ImportError: If the package that writes a smaller SentencePiece model is
            missing.

    Example:
    >>> small = ki.shrink(model, {"neurons": 0.5}, method="magnitude")
    >>> [ffn.width for ffn in ki.find_ffns(small)]
    [4, 4]

    Notes:
        "vocabulary" keeps the tokens that the data use most, all bytes and special
        tokens, and whatever a kept token is merged from. New ids follow the order of
        the old ones. A text that had only kept tokens has the same tokens and logits,
        except that a backend may sum in another order. The task has a new preprocessor.

    Source: Minitron (arXiv 2407.14679), ShortGPT (arXiv 2403.03853); for `refit` GRAIL
    (arXiv 2602.23795).
    """
    budget = Budget(target_parameters)
    axes = (*KINDS, BLOCKS, FEATURES, VOCABULARY)
    shape: Any = check_targets(None, targets, 1, budget) if budget else None
    shape = shape or check_sizes(targets, axes)
    check_plain(model)
    tokens, rest = None, {axis: shape[axis] for axis in shape if axis != VOCABULARY}
    if VOCABULARY in shape:
        counts, data = count_tokens(model, data, num_samples if rest else 0)
        size = _size_of(VOCABULARY, shape, rows_of(model), model.name)
        tokens = kept_tokens(model, size, counts)
    ranks_by = methods.get(method)
    refits = refit and ranks_by.refit_data is None
    needed = data is not None or refits or set(rest) - set(KINDS)
    samples = Samples(data, num_samples, batch_size) if needed else None
    refit_data = samples if refits else ranks_by.refit_data
    if refit_data is not None and (FEATURES in rest or not set(rest) & set(KINDS)):
        raise ArgumentError(
            f"refit=True fits what reads {', '.join(map(repr, KINDS))} to a model that "
            f"keeps its features. Received: targets={shape!r}. Cut features in a call "
            "before, without `refit`."
        )
    copy = narrowed(model, "shrink()")
    if getattr(model, "compiled", False):
        compile_like(copy, model)
    copy = _cut(copy, rest, budget, samples, ranks_by, refit_data)
    if tokens is not None:  # last, because the data have the old ids
        copy = take_tokens(copy, tokens)
    if getattr(model, "compiled", False):
        compile_like(copy, model)
    return copy


def _cut(
    model: keras.Model,
    shape: Shape,
    budget: Budget,
    samples: Samples | None,
    method: Method,
    refit_data: Samples | None,
) -> keras.Model:
    """Measures a model and returns it without its least important parts.

    `refit_data` are those of a `Method`; None fits nothing.
    """
    kinds, streams = [kind for kind in KINDS if kind in shape], FEATURES in shape
    groups = _groups_of(model, kinds, streams)
    if budget:
        targets = target_widths({**shape}, budget, model, groups, 1)
    else:
        targets = [(g, _size_of(g.kind, shape, g.hidden_dim, g.name)) for g in groups]
    try_groups(model, [g for g in groups if not (streams and g.kind == KV_GROUPS)])
    decisions: list[Decision] = []
    if groups:
        importance = method.importance(model, groups, samples)
        if importance is None:
            importance = _mean_scores(model, groups, method, samples)
        decisions = keep_largest(targets, importance)
    features: list[np.ndarray] = []
    if streams and samples is not None:
        handles = streams_of(model)
        sizes = [_size_of(FEATURES, shape, h.hidden_dim, model.name) for h in handles]
        for values, size in zip(
            stream_importance(model, handles, samples), sizes, strict=True
        ):
            features.append(np.sort(np.argsort(-values, kind="stable")[:size]))
    if BLOCKS in shape and samples is not None:
        blocks = find_blocks(model)
        count = _size_of(BLOCKS, shape, len(blocks), model.name)
        influence = block_influence(model, blocks, samples)
        kept = most_important(influence, *patterns(model, len(blocks), count))
        gone = [b for place, b in enumerate(blocks) if place not in kept]
        parts = {id(part) for block in gone for part in walk(block)}
        pairs = zip(groups, decisions, strict=True)
        decisions = [each for group, each in pairs if id(group.layer) not in parts]
        model = take_out(model, kept)
        groups = _groups_of(model, kinds, streams)
    if not groups and not features:
        return model
    cuts = list(zip(groups, decisions, strict=True))
    if refit_data is not None:
        carry_out_and_refit(model, cuts, refit_data)
    else:
        for group, decision in cuts:
            carry_out_decision(group, decision)
    if not features:
        return narrowed(model, "shrink()")
    streams_cut = list(zip(streams_of(model), features, strict=True))
    heads = [(group, group.kept_neurons()) for group in groups]
    narrow_streams(model, streams_cut, heads)
    return model


def _groups_of(model: keras.Model, kinds: list[str], streams: bool) -> list[FFN]:
    """Returns the groups of some kinds; raises if the model has none of a kind.

    `streams`: whether features are cut too, with which a config may hold heads.
    """
    groups = find_groups(model, kinds) if kinds else []
    if streams and KV_GROUPS in kinds:
        groups = [group for group in groups if group.kind != KV_GROUPS]
        groups += all_heads(model)
    for kind in kinds:
        if all(group.kind != kind for group in groups):
            raise ArgumentError(
                f"Model '{model.name}' has no {kind!r} that can be cut. "
                f"{why_nothing(model, kind)} Or remove it from `targets`."
            )
    return groups


def _size_of(axis: str, shape: Shape, full: int, owner: str) -> int:
    """Returns how many of the `full` units of an owner stay, at least one."""
    size = target_width(shape[axis], full, round_to=1)
    if size > full:
        raise ArgumentError(
            f"`targets[{axis!r}]` is {size}, but '{owner}' has {full}. Give at most "
            "that, or a float in (0, 1), the fraction that stays."
        )
    return size


def _mean_scores(
    model: keras.Model,
    groups: Sequence[FFN],
    method: Method,
    samples: Samples | None,
) -> list[Any]:
    """Returns the mean over batches of a method's scores, with constant weights.

    The steps are those of training, dropout included, on a copy of the model.
    """
    if method.decision_step(0, 1) is not None:
        raise ArgumentError(
            f"Method {method.name!r} decides during training. Use another method, or "
            "IdeaPruneCallback; a method of your own needs `importance`."
        )
    if not getattr(model, "compiled", False) or model.loss is None:
        raise ArgumentError(
            f"Method {method.name!r} needs the loss of '{model.name}'. Call "
            "`model.compile(optimizer, loss=...)` first."
        )
    copy = narrowed(model, "shrink()")
    names = ("loss", "loss_weights", "run_eagerly", "jit_compile")
    arguments = {name: compile_arguments(model)[name] for name in names}
    keras.Model.compile(copy, keras.optimizers.SGD(0.0), **arguments)
    copy.optimizer.build(copy.trainable_variables)
    kinds = list(dict.fromkeys(group.kind for group in groups))
    tracks = [Track(group) for group in find_groups(copy, kinds)]
    how = method.scoring
    for track in tracks:  # no moving average: the mean is computed here
        track.ffn.state.score_by(Scoring(0.0, how.row_reduce, how.matrix_reduce))
    pruner = NeuronPruner(tracks, method)
    pruner.attach(copy)
    totals = [np.zeros(tuple(track.scores.shape)) for track in tracks]
    batches = 0
    for x, _, y, weight in samples or [Batch(None, {})]:
        if y is None:
            raise ArgumentError(
                f"Method {method.name!r} needs targets: give `data` as (x, y) or (x, "
                "y, sample_weight) of arrays, or batches of such tuples."
            )
        for track in tracks:
            # What is not measured, such as an expert without tokens, counts as 0.
            track.scores.assign(ops.zeros(track.scores.shape))
        # Not the method of a KerasHub task, which would preprocess the data again.
        logs = keras.Model.train_on_batch(copy, x, y, weight, return_dict=True)
        if not math.isfinite(logs.get("loss", 0.0)):  # a train step may rename it
            raise ArgumentError(
                f"The loss of '{model.name}' on `data` is not finite. Look for NaN in "
                "the data and in the model's weights."
            )
        for total, track in zip(totals, tracks, strict=True):
            total += ops.convert_to_numpy(track.ffn.scores)
        batches += 1
    pruner.detach(copy)
    found = []
    for group, track, total in zip(groups, tracks, totals, strict=True):
        mean = (total / batches).astype("float32")
        found.append(ops.convert_to_numpy(track.ffn.state.importance_of(mean)))
        if not found[-1].any():
            raise ArgumentError(
                f"Nothing was measured of {group.name}: the loss on the `data` does "
                "not depend on its weights, or they are frozen. Use another method."
            )
    return found
