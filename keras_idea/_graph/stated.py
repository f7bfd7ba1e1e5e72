"""FFNs that are known without following the data: this package's, and KerasHub's."""

import operator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea._graph.group import FFN, Axes
from keras_idea._graph.layers import name_of
from keras_idea._groups.cut import Axis, Role
from keras_idea._groups.kinds import NEURONS
from keras_idea._keras.layers import stored_kernel
from keras_idea._layers.ffn import FFNLayer, Prunable
from keras_idea.functional.by_numbers import why_not_each_number
from keras_idea.hub.families import UNTRACED, class_of_hub, is_backbone, why_refused


def stated_ffns(layers: Sequence[keras.layers.Layer]) -> list[FFN]:
    """Returns the FFNs of this package among layers, and those that a table lists."""
    found: list[FFN] = []
    for layer in layers:
        if isinstance(layer, FFNLayer) and layer.built and why_not_ours(layer) is None:
            found.append(_of_ours(layer))
        elif is_backbone(layer):
            found += _of_backbone(layer)
    return found


def why_not_ours(layer: FFNLayer) -> str | None:
    """Why the neurons of an FFN of this package cannot be pruned; None: they can."""
    if isinstance(layer, Prunable):
        return None
    why_not = why_not_each_number(layer.activation, (2, layer.hidden_dim))
    return f"its activation {name_of(layer.activation)} {why_not}" if why_not else None


def _of_ours(layer: FFNLayer) -> FFN:
    kernels = [getattr(layer, f"{name}_kernel") for name in layer.matrices]
    biases = [getattr(layer, f"{name}_bias") for name in layer.matrices[:-1]]
    found = _stated(layer.path or layer.name, [layer] * len(kernels), kernels, biases)
    if not layer.gated:
        zero = ops.convert_to_numpy(layer.activation(ops.zeros((1,))))
        found.preserves_zero = not zero.any()
    return found


def _of_backbone(backbone: Any) -> list[FFN]:
    """Returns the FFNs of the blocks of a backbone that `UNTRACED` knows."""
    row, found = UNTRACED.get(class_of_hub(backbone)), []
    if row is None or why_refused(backbone) is not None:
        return []
    names = row.names.split()
    for block in backbone.transformer_layers:
        if not row.experts:
            layers = [operator.attrgetter(name)(block) for name in names]
            kernels = [stored_kernel(layer) for layer in layers]
            biases = [layer.bias for layer in layers[:-1]]
            ffn = _stated(block.path, layers, kernels, biases)
            ffn.shown = False
            found.append(ffn)
            continue
        holder, _, bank = row.inside.rpartition(".")
        owner = getattr(operator.attrgetter(holder)(block), bank, None)
        if owner is not None:  # else a block without experts
            kernels = [vars(owner)[name] for name in names]
            biases = [vars(owner).get(f"{name}_bias") for name in names[:-1]]
            layers = [owner] * len(names)
            found.append(_stated(owner.path, layers, kernels, biases, row.packing))
    return found


def _stated(
    name: str,
    layers: Sequence[keras.layers.Layer],
    kernels: Sequence[keras.Variable],
    biases: Sequence[keras.Variable | None],
    packing: str = "",
) -> FFN:
    """Returns an FFN of kernels, the last of which reads what the others make.

    They are `(D, F)`, or two of these in one, `(D, 2 F)`, and `(F, D)`; of experts
    there is an axis before these. `layers` hold them, and biases, or None, of those
    that make neurons. `packing`: see `Untraced`.
    """
    reader, units = kernels[-1], np.arange(kernels[-1].shape[-2])
    experts = 0 if len(reader.shape) > 2 else None

    def axis(variable: keras.Variable, at: int, role: Role, layer: Any) -> Axis:
        along = len(variable.shape) + at
        matrices = variable.shape[along] // len(units)
        spread = np.repeat if packing == "pairs" else np.tile
        labels = spread(units, matrices)
        return Axis(variable, along, role, [layer], labels, experts, matrices)

    held = list(zip(kernels[:-1], biases, layers, strict=False))
    axes = [axis(kernel, -1, "makes", layer) for kernel, _, layer in held]
    axes.append(axis(reader, -2, "reads", layers[-1]))
    axes += [axis(b, -1, "own", layer) for _, b, layer in held if b is not None]
    return FFN(NEURONS, axes, units, Axes(axes), layers[0], True, name=name)
