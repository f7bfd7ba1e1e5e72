"""A smaller model in one step, from a trained one, before it is trained further."""

import dataclasses
import itertools
from typing import Any, Literal, TypeVar

import keras
import numpy as np
from keras import ops

from keras_idea import methods
from keras_idea.errors import ArgumentError
from keras_idea.finding.explain import why_nothing
from keras_idea.finding.find import FFN, find_groups
from keras_idea.functional.masks import top_k_mask
from keras_idea.groups.kinds import KINDS, KindName
from keras_idea.hub.rebuild import check_plain
from keras_idea.keras_private.layers import walk
from keras_idea.methods.calibration import Calibration, refitting
from keras_idea.methods.method import Decision, Method
from keras_idea.shapes.block_losses import kept_by_loss
from keras_idea.shapes.blocks import Blocks, find_blocks, most_important, take_out
from keras_idea.shapes.hidden_size import check_hidden, take_features
from keras_idea.shapes.importance import block_influence, stream_importance
from keras_idea.shapes.samples import inputs_of
from keras_idea.shapes.targets import VOCABULARY, Shape, check_shape, size_of
from keras_idea.shapes.unit_importance import unit_importance
from keras_idea.shapes.vocabulary import count_tokens, kept_tokens, take_tokens
from keras_idea.step.row_ops import zero_rows
from keras_idea.surgery.compact import compile_like, narrowed
from keras_idea.surgery.proof import prove
from keras_idea.surgery.refit import carry_out_and_refit, check_refit
from keras_idea.surgery.width_in_code import check_width_in_code
from keras_idea.validation import check_choice, check_int

Model = TypeVar("Model", bound=keras.Model)


def shrink(
    model: Model,
    targets: Shape,
    data: Any = None,
    method: str | Method = "activation",
    *,
    blocks_by: Literal["influence", "loss"] = "influence",
    refit: bool = False,
    num_samples: int = 1024,
    batch_size: int = 32,
) -> Model:
    """Makes a new, smaller model from a trained one, in one step and without training.

    Use it when you have a trained model and want to choose its shape before you train
    further. The least important parts are cut out of a copy, which is again a stock
    model. Its loss is usually worse than the model's, so train it afterwards. To prune
    during training, use `IdeaPruneCallback`.

    Args:
        model: keras.Model. A built Keras model, as for `compact`. It is not changed.
            "blocks" can be removed from a KerasHub model, and from a functional model
            or `Sequential` whose layers of one class hold other layers. "hidden_dim"
            can be reduced in KerasHub's Mistral, Qwen3, Qwen3Moe, Gemma, Gemma 3 (for
            text) and GptOss.
        targets: dict. Maps an axis to what stays: a number (int >= 1) or a fraction
            (float in (0, 1)). The axes: "neurons" of each FFN; "kv_groups", key/value
            heads of each attention layer, with their query heads; "channels" of
            convolutions; "blocks"; "hidden_dim", features of the residual stream;
            "vocabulary", tokens of a KerasHub `CausalLM` with a tokenizer of byte-level
            BPE or SentencePiece's BPE.
        data: samples as for `keras_idea.methods.Activation`, tuple or None. The
            importance is measured on them. A tuple is `(x, y)` or
            `(x, y, sample_weight)` of arrays. None works for widths, with
            `method="magnitude"`, "random" or one that has its own data. With a target
            for "vocabulary" also texts: a str, or an iterable of str, of which the
            model's preprocessor makes the samples. Defaults to None.
        method: str or `keras_idea.methods.Method`. What ranks neurons and heads: a
            method of `IdeaPruneCallback`, but not "learned_mask". "activation" measures
            the size of activations on the data. "magnitude" measures the norm of the
            weights. "sensitivity" measures |gradient x weight|, its mean over the
            batches; needs a compiled model and targets in the data. Channels are ranked
            by the kernels that read them, or by what these are called on. Defaults to
            "activation".
        refit: bool. Whether to fit what reads the units that stay (down kernels, output
            projections of attention, convolutions) to the wide layer's outputs on the
            data, by ridge least squares, layer after layer. It lowers the new model's
            loss without training, after any `method`. Every fourth sample is held out
            to choose the ridge of each layer. The other three quarters need at least as
            many tokens, or places of images, as a kernel keeps rows. In functional
            models (KerasHub's, for example) and `Sequential`, it runs each block on the
            data twice for one axis and three times for two. A model with its own `call`
            is run once for each layer that is fitted. A method object made with
            `refit=True` has the same effect. Defaults to False.
        blocks_by: str. Which blocks are removed. "influence": those that turn their
            input least. "loss": one after another, the block without which the loss is
            smallest; needs a compiled model and targets in the data. Defaults to
            "influence".
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
        "vocabulary" keeps the tokens that the data use most, with all bytes and special
        tokens, and whatever a kept token is merged from. The new ids are 0, 1, 2, ...
        in the order of the old ones. Every text has tokens, and decodes to itself. A
        text that had only kept tokens has the same ones, with their new ids; their
        logits are the old ones, except that a backend may sum in another order. The
        task has a new preprocessor; the given model keeps its own.

    Source: Minitron (arXiv 2407.14679), ShortGPT (arXiv 2403.03853); for `refit` GRAIL
    (arXiv 2602.23795).
    """
    shape = check_shape(targets)
    check_plain(model)
    limits = {
        "num_samples": check_int("num_samples", num_samples, minimum=1),
        "batch_size": check_int("batch_size", batch_size, minimum=1),
    }
    kept, rest = None, {axis: shape[axis] for axis in shape if axis != VOCABULARY}
    if VOCABULARY in shape:
        counts, data = count_tokens(model, data, num_samples if rest else 0)
        kept = kept_tokens(model, shape[VOCABULARY], counts)
    ranks_by = methods.get(method)
    refit_data = ranks_by.refit_data
    if refit and refit_data is None:
        refit_data = refitting(inputs_of(data), **limits)
    if refit_data is not None:
        _check_refit(shape)
    importance = measure(
        model,
        rest,
        data,
        ranks_by,
        check_choice("blocks_by", blocks_by, ["influence", "loss"]),
        **limits,
    )
    return cut(model, rest, importance, refit_data, kept)


def _check_refit(shape: Shape) -> None:
    if not widths_in(shape):
        raise ArgumentError(
            f"refit=True fits what reads {', '.join(map(repr, KINDS))}, and `targets` "
            f"has none of them. Received: targets={shape!r}. Add one, or leave `refit` "
            "out."
        )


@dataclasses.dataclass(frozen=True)
class Importance:
    """What was measured of a model, once for all shapes.

    Attributes:
        groups: dict, kind -> list of tensors of the units of each group, in the order
            of `groups_of`.
        features: float array of the residual stream's features; empty if it was not
            measured.
        influence: float array of the blocks; empty likewise.
        kept_blocks: dict, number of blocks -> those that stay, where it is not by their
            influence.
    """

    groups: dict[KindName, list[Any]]
    features: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    influence: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    kept_blocks: dict[int, list[int]] = dataclasses.field(default_factory=dict)

    def blocks(self, blocks: Blocks, count: int) -> list[int]:
        """The numbers of the blocks that stay, ascending."""
        if count in self.kept_blocks:
            return self.kept_blocks[count]
        return most_important(self.influence, *blocks.patterns(count))


def measure(
    model: keras.Model,
    shape: Shape,
    data: Any,
    method: Method,
    blocks_by: str,
    num_samples: int,
    batch_size: int,
) -> Importance:
    """What a shape needs to know of a model; the other arguments are `shrink`'s."""
    if data is None and set(shape) - set(KINDS):
        raise ArgumentError(
            "shrink() needs `data` to measure what is important. Give samples of "
            "the model's inputs; or method='magnitude' with targets for 'neurons' "
            f"and 'kv_groups' only. Received: targets={shape!r}, data=None."
        )
    limits = {"num_samples": num_samples, "batch_size": batch_size}
    samples = Calibration(None if data is None else inputs_of(data), **limits)
    groups = groups_of(model, shape)
    check_width_in_code(model, groups)
    prove(model, groups)
    scores = unit_importance(model, groups, method, data, **limits) if groups else []
    by_kind: dict[KindName, list[Any]] = {kind: [] for kind in KINDS}
    for group, score in zip(groups, scores, strict=True):
        by_kind[group.kind].append(score)
    importance = Importance(by_kind)
    if "hidden_dim" in shape:
        features = stream_importance(check_hidden(model), model, samples)
        importance = dataclasses.replace(importance, features=features)
    if "blocks" in shape:
        blocks = find_blocks(model)
        count = size_of("blocks", shape["blocks"], len(blocks), model.name)
        if blocks_by == "loss":
            kept = kept_by_loss(model, blocks, count, data, batch_size)
            importance = dataclasses.replace(importance, kept_blocks={count: kept})
        else:
            influence = block_influence(model, blocks.layers, samples)
            importance = dataclasses.replace(importance, influence=influence)
    return importance


def cut(
    model: Model,
    shape: Shape,
    importance: Importance,
    refit_data: Calibration | None = None,
    tokens: np.ndarray | None = None,
) -> Model:
    """Cuts what is least important out of a copy of a model: see `shrink`.

    `refit_data`: as of a `Method`; if None, nothing is fitted. `tokens`: the ids of
    those that stay; None: all.
    """
    copy = narrowed(model, "shrink()")
    if "blocks" in shape:
        copy = take_out(copy, _kept_blocks(model, shape, importance))
    if "hidden_dim" in shape:
        full = len(importance.features)
        size = size_of("hidden_dim", shape["hidden_dim"], full, model.name)
        order = np.argsort(-importance.features, kind="stable")
        copy = take_features(copy, np.sort(order[:size]))
    if widths_in(shape):
        scores = scores_left(model, shape, importance)
        if refit_data is None:
            zero_unimportant(copy, shape, scores)
        else:
            masks = masks_of(copy, shape, scores)
            check_refit([group for group, _ in masks])
            decisions = [(g, Decision(ops.convert_to_numpy(mask))) for g, mask in masks]
            carry_out_and_refit(copy, decisions, refit_data)
        copy = narrowed(copy, "shrink()")
    if tokens is not None:  # last: data have the old ids
        copy = take_tokens(copy, tokens)
    if getattr(model, "compiled", False):
        compile_like(copy, model)
    return copy


def scores_left(model: keras.Model, shape: Shape, importance: Importance) -> list[Any]:
    """The scores of each group that remains if the shape's blocks are removed.

    `model` is the measured model. The scores are in the order of `groups_of` the model
    without those blocks.
    """
    groups = groups_of(model, shape)
    scores = [score for kind in widths_in(shape) for score in importance.groups[kind]]
    scores = [_of_active(*pair) for pair in zip(scores, groups, strict=True)]
    if "blocks" not in shape:
        return scores
    layers = find_blocks(model).layers
    kept = {id(layers[place]) for place in _kept_blocks(model, shape, importance)}
    gone = {id(part) for b in layers if id(b) not in kept for part in walk(b)}
    stay = [id(group.layer) not in gone for group in groups]
    return list(itertools.compress(scores, stay))


def _of_active(scores: Any, group: FFN) -> Any:
    """Without the scores of units that are masked: the copy is without them."""
    kept = group.kept_neurons()
    if kept.shape[-1] == group.hidden_dim:
        return scores
    return ops.take_along_axis(scores, ops.convert_to_tensor(kept), axis=-1)


def zero_unimportant(model: keras.Model, shape: Shape, scores: list[Any]) -> None:
    """Zeroes, in place, what goes of the groups whose width a shape says."""
    for group, mask in masks_of(model, shape, scores):
        zero_rows(group.cuts(), mask)


def masks_of(
    model: keras.Model, shape: Shape, scores: list[Any]
) -> list[tuple[FFN, Any]]:
    """The groups whose width a shape says, each with a mask of the units that stay."""
    masks = []
    for group, score in zip(groups_of(model, shape), scores, strict=True):
        size = size_of(group.kind, shape[group.kind], group.hidden_dim, group.name)
        masks.append((group, ops.cast(top_k_mask(score, size), "float32")))
    return masks


def widths_in(shape: Shape) -> list[KindName]:
    """The axes of a shape that are widths of groups."""
    return [kind for kind in KINDS if kind in shape]


def _kept_blocks(model: keras.Model, shape: Shape, importance: Importance) -> list[int]:
    blocks = find_blocks(model)
    count = size_of("blocks", shape["blocks"], len(blocks), model.name)
    return importance.blocks(blocks, count)


def groups_of(model: keras.Model, shape: Shape) -> list[FFN]:
    """The groups whose width a shape says; refuses a kind that the model lacks."""
    kinds = widths_in(shape)
    groups = find_groups(model, kinds)
    for kind in kinds:
        if all(group.kind != kind for group in groups):
            raise ArgumentError(
                f"Model '{model.name}' has no {kind!r} that can be cut. "
                f"{why_nothing(model, kind)} Or leave it out of `targets`."
            )
    return groups
