"""Training widths jointly: nested FFNs, one width a step; a member cut out of them."""

import dataclasses

import keras
import numpy as np
from keras import ops

import keras_idea as ki
from benchmarks.paper.build import cross_entropy, new_model, new_optimizer
from benchmarks.paper.checkpoint import Checkpoint, take_checkpoint
from benchmarks.paper.family_plan import SCORES, Family
from benchmarks.paper.flops import step_flops
from benchmarks.paper.initial import initialise
from benchmarks.paper.plan import Stage
from benchmarks.paper.run_stage import run_stage
from keras_idea.models import decoder

#: The share of the FLOPs for which the widest member trains alone, before sorting.
ALONE = 0.25


class NestedFFN(ki.GatedFFN):
    """A gated FFN that computes with its first neurons: in training each width in turn.

    Args:
        widths: tuple of int, descending; the first is `hidden_dim`.
        **layer: `name`, `dtype`.
    """

    def __init__(self, widths, **layer):
        super().__init__(widths[0], **layer)
        self._widths = widths

    def build(self, input_shape):
        """Makes the count of training steps."""
        super().build(input_shape)
        self.turn = self.add_weight(
            shape=(), dtype="int32", initializer="zeros", trainable=False, name="turn"
        )

    def call(self, inputs, training=None):
        """Output, of the shape of `inputs`."""
        width = ops.take(ops.convert_to_tensor(self._widths, "int32"), self.turn)
        if training:
            self.turn.assign((self.turn + 1) % len(self._widths))
        else:
            width = self._widths[0]
        mask = ops.cast(ops.arange(self._widths[0]) < width, inputs.dtype)
        hidden = ops.silu(inputs @ self.up_kernel) * (inputs @ self.gate_kernel)
        return (hidden * mask) @ self.down_kernel


def importance_order(model) -> list[np.ndarray]:
    """For each FFN its neurons, the most important first."""
    found = [ops.convert_to_numpy(ffn.importance()) for ffn in ki.find_ffns(model)]
    return [np.argsort(-values, kind="stable") for values in found]


def reordered(arrays, orders):
    """The kernels of FFNs (up, gate, down by turns) with their neurons in an order."""
    made = []
    for i, order in enumerate(orders):
        up, gate, down = arrays[3 * i : 3 * i + 3]
        made += [up[:, order], gate[:, order], down[order]]
    return made


def kernels(model):
    """The kernels of all FFNs: up, gate, down by turns."""
    blocks = [layer for layer in model.layers if layer.name.startswith("block_")]
    ffns = [block.ffn for block in blocks]
    return [k for f in ffns for k in (f.up_kernel, f.gate_kernel, f.down_kernel)]


def joint_steps(family: Family, flops: float) -> int:
    """Steps, each width in turn, that so many FLOPs pay for."""
    costs = [step_flops(family.scale, width) for width in family.widths]
    return round(flops / (sum(costs) / len(costs)))


def train_jointly(name, family, corpus, seed, judge, is_sorted) -> dict[str, dict]:
    """Bits per byte of every width of one joint training, as `family.carry_out`."""
    scale, widths = family.scale, family.widths
    paid = family.flops(family.together(family.steps))
    spent = ALONE * paid if is_sorted else 0.0
    alone = round(spent / step_flops(scale, widths[0]))
    steps = joint_steps(family, paid - alone * step_flops(scale, widths[0]))
    rate = dataclasses.replace(
        family.scratch(widths[0], paid).rate, total=alone + steps
    )
    first = Stage("enlarge", widths[0], alone, 0, rate, "adamw", scores=SCORES)
    keras.utils.set_random_seed(seed)
    model = decoder(
        scale.decoder_config(widths[0]),
        ffn=lambda hidden_dim, **layer: NestedFFN(widths, **layer),
        dtype=scale.dtype,
    )
    initialise(model, scale, seed)
    begun = run_stage(first, scale, corpus, seed) if is_sorted else None
    curve = dataclasses.replace(rate, first=alone + 1).schedule(0)
    model.compile(optimizer=new_optimizer(first, scale, curve), loss=cross_entropy())
    if begun is not None:
        _sorted_into(model, begun, first, scale)
    model.fit(
        corpus.batches(
            seed=seed,
            batch_size=scale.batch_size,
            length=scale.sequence_length,
            start_step=alone,
        ),
        steps_per_epoch=steps,
        shuffle=False,
        verbose=0,
    )
    tokens = (alone + steps) * scale.tokens_a_step
    return {
        f"{width} neurons, {name}": {
            "bits": judge(narrowed(model, scale, width)),
            "width": width,
            "tokens": tokens,
            "flops": paid,
        }
        for width in widths
    }


def _sorted_into(model, begun: Checkpoint, stage, scale) -> None:
    """Gives a nested model what the widest member learned alone, neurons sorted."""
    wide = new_model(scale, stage.width, SCORES)
    optimizer = new_optimizer(stage, scale, stage.rate.schedule())
    wide.compile(optimizer=optimizer, loss=cross_entropy())
    begun.restore(wide)
    orders = importance_order(wide)
    of_kernel = {id(kernel): i for i, kernel in enumerate(kernels(wide))}

    def brought(sources, targets, like):
        """Copies a number for each weight, those of the FFNs in their new order."""
        arrays = [ops.convert_to_numpy(source) for source in sources]
        places = [of_kernel.get(id(variable)) for variable in like]
        found = sorted(
            (place, i) for i, place in enumerate(places) if place is not None
        )
        for (_, i), array in zip(
            found, reordered([arrays[i] for _, i in found], orders), strict=True
        ):
            arrays[i] = array
        for target, array in zip(targets, arrays, strict=True):
            target.assign(array)

    weights = wide.trainable_variables
    brought(weights, model.trainable_variables, weights)
    model.optimizer.build(model.trainable_variables)
    for slot in ("_momentums", "_velocities"):
        brought(getattr(wide.optimizer, slot), getattr(model.optimizer, slot), weights)


def narrowed(model, scale, width: int) -> Checkpoint:
    """The member of a width, as `Evaluator` takes it."""
    narrow = new_model(scale, width)
    narrow.compile(optimizer="sgd", loss=cross_entropy())
    ours = {id(kernel) for kernel in kernels(model)}
    for own, variable in zip(
        narrow.trainable_variables, model.trainable_variables, strict=True
    ):
        array = ops.convert_to_numpy(variable)
        if id(variable) in ours:
            array = (
                array[:, :width] if array.shape[1] != own.shape[1] else array[:width]
            )
        own.assign(array)
    return take_checkpoint(narrow, width, {})
