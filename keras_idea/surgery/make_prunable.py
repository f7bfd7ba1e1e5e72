"""Unmodified KerasHub models: made prunable in place, and stock again.

Source: IDEA Prune (arXiv 2503.05920), Algorithm 1.
"""

from typing import Literal, TypeVar

import keras

from keras_idea.hub.families import is_backbone
from keras_idea.hub.ffn import HubFFN, hub_ffns
from keras_idea.hub.rebuild import (
    check_rebuildable,
    tell_no_more,
    tell_when_saved,
)
from keras_idea.keras_private.layer_walk import walk
from keras_idea.keras_private.models import forget_layer
from keras_idea.surgery.condition import check_at_rest, check_convertible
from keras_idea.surgery.row_ops import zero_rows
from keras_idea.surgery.shrink import refresh

Model = TypeVar("Model", bound=keras.layers.Layer)
Reduction = Literal["mean", "max"]


def make_prunable(
    model: Model,
    ema_decay: float = 0.4,
    row_reduce: Reduction = "mean",
    matrix_reduce: Reduction = "max",
) -> Model:
    """Makes the gated FFNs of a KerasHub model prunable, in place.

    Each FFN gets a mask and scores, as `PrunableGatedFFN` has. The model computes
    what it computed, bit for bit, and is trained as it was. An `IdeaPruneCallback`
    prunes it, `compact` returns a narrow model of the same stock class, and `strip`
    undoes the conversion.

    Load weights before the conversion: a file of the stock model has no masks. Saved
    whole (`.keras`, a preset, `pickle`), the model is a stock one that answers as this
    one does, and a warning says so where neurons were masked.

    Args:
        model: a KerasHub backbone or task (`CausalLM`, ...), or a Keras model around
            one, of a family in `keras_idea.hub.families.FAMILIES`, trained or not.
        ema_decay: float in [0, 1), weight of the past in the scores. Default 0.4.
        row_reduce: "mean" (default) or "max", over the weights of a neuron's row; of a
            mixture's experts "mean".
        matrix_reduce: "mean" or "max" (default), over up, gate and down.

    Returns:
        `model` itself.

    Raises:
        ValueError: if the model holds no KerasHub backbone, the family is not known
            or cannot be pruned, a layer is quantized or has LoRA enabled, an FFN is
            prunable already, or a backbone could not be made again at another width,
            as `compact` must. The model is then as it was.

    Example:
    >>> lm = make_prunable(lm)  # a keras_hub.models.Llama3CausalLM, for example
    >>> prune = ki.IdeaPruneCallback(target_dim=4, begin_step=1, prune_steps=2)
    >>> _ = lm.fit([text] * 4, batch_size=1, callbacks=[prune], verbose=0)
    >>> ki.compact(lm).save_to_preset("narrow")
    """
    backbones = [layer for layer in walk(model) if is_backbone(layer)]
    if not backbones:
        raise ValueError(
            f"{type(model).__name__} '{model.name}' holds no KerasHub backbone. In "
            "models of your own use `keras_idea.PrunableGatedFFN` for the FFNs; they "
            "need no conversion."
        )
    ffns = {id(ffn.owner): ffn for b in backbones for ffn in hub_ffns(b)}.values()
    for ffn in ffns:
        ffn.check_convertible(row_reduce)
    check_convertible(model)
    for backbone in backbones:
        check_rebuildable(backbone)
    for ffn in ffns:
        ffn.convert(
            ema_decay=ema_decay, row_reduce=row_reduce, matrix_reduce=matrix_reduce
        )
    for backbone in backbones:
        tell_when_saved(backbone)
    refresh(model)
    return model


def strip(model: Model) -> Model:
    """Undoes `make_prunable` without narrowing, in place.

    The rows of pruned neurons become zeros in all three matrices, so that the stock
    model computes what the masked one computed. Nothing of this package stays in
    it, and nothing keeps the zeros: if it is trained on, moments of the optimizer
    may move them.

    Args:
        model: a model that `make_prunable` has converted, pruned or not.

    Returns:
        `model` itself.

    Raises:
        ValueError: if nothing in the model was converted, or it is being pruned.

    Example:
    >>> strip(make_prunable(lm)).save_to_preset("wide")
    """
    found = check_at_rest(model, "strip()")
    ffns = [ffn for ffn in found if isinstance(ffn.weights, HubFFN)]
    if not ffns:
        raise ValueError(
            f"{type(model).__name__} '{model.name}' has no FFN that "
            "`keras_idea.make_prunable` has converted, so there is nothing to undo."
        )
    for ffn in ffns:
        zero_rows(ffn.cuts(), ffn.mask.value)
        ffn.weights.restore()
        forget_layer(model, ffn.state)
    for backbone in {
        id(ffn.weights.backbone): ffn.weights.backbone for ffn in ffns
    }.values():
        tell_no_more(backbone)
    refresh(model)
    return model
