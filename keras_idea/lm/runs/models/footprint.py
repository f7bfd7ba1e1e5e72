"""What a model of one width takes of a device while it trains."""

import dataclasses
import math
from collections.abc import Mapping

import keras

from keras_idea.finding.find import FFN, find_groups
from keras_idea.finding.work_count import attention_width, multiply_adds
from keras_idea.keras_private.attention import query_heads
from keras_idea.keras_private.optimizer_variables import (
    apply_count,
    build_without_values,
)
from keras_idea.lm.distribution import kernel_layouts
from keras_idea.lm.runs.config import RunConfig
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.models.compiling import make_optimizer, transformer_blocks
from keras_idea.lm.runs.models.outlines import Outlines
from keras_idea.shapes.blocks import find_blocks

_FLOAT32 = 4
# Held at most over what is kept, where XLA compiles nothing. Small Llamas, measured on
# a CPU: 1.25 to 1.8 on torch, 1.8 to 2.1 on TensorFlow, a teacher's 1.0 and 1.8.
_AT_MOST = {"torch": 1.5, "tensorflow": 2.0}
_AT_MOST_BY_TEACHER = {"tensorflow": 2.0}


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Bytes of one device while a model of given sizes trains."""

    sizes: Sizes
    parameters: int  # of the whole model
    multiply_adds: int  # of a token in a forward pass
    weights: int  # the model's variables; exact
    gradients: int  # one for each weight that trains; exact
    optimizer: int  # the optimizer's variables; exact
    # Scores and masks, beside the model and in its optimizer; exact but for what a
    # method measures, and of a mesh at most.
    pruning: int
    # What the forward pass keeps for the backward pass: an estimate, of what the
    # compiler fuses nothing is left out.
    activations: int
    # Of all devices together; exact but for the names in it.
    checkpoint: int
    # Held at most while this model becomes narrower: it trains no step then, and its
    # variables are cut one after another.
    narrowing: int

    @property
    def total(self) -> int:
        """int, all of it together: at most, for not all is there at once."""
        held = self.weights + self.gradients + self.optimizer + self.pruning
        return held + self.activations


def footprint(
    config: RunConfig, outline: Outlines, sizes: Sizes, pruned: bool = False
) -> Footprint:
    """The `Footprint` of a run's model of given sizes; nothing is allocated for it.

    `pruned`: the pruning is over, and its part of the optimizer is given up.

    Raises:
        ConfigError: if the mesh does not divide the model.
    """
    parts = config.distribution.size[1]
    model, optimizer = outline.make(sizes), make_optimizer(config)
    build_without_values(optimizer, model.trainable_variables)
    layouts = kernel_layouts(model, parts) if parts > 1 else {}
    state = [*model.variables, *optimizer.variables]
    weights = _bytes(model.variables, layouts, parts)
    slots = _bytes(optimizer.variables, layouts, parts)
    groups = find_groups(model, config.model.pruned_kinds)
    scores = _pruning_state(config.pruning.row_reduce, groups)
    if not pruned:
        # The optimizer has scores, masks and a count of steps while it prunes.
        count = _bytes([apply_count(optimizer)], {}, 1)
        units = sum(group.hidden_dim for group in groups)
        scores += scores - _FLOAT32 * units + count
    return Footprint(
        sizes=sizes,
        parameters=model.count_params(),
        multiply_adds=multiply_adds(model, config.model.sequence_length),
        weights=weights,
        gradients=_bytes(model.trainable_variables, layouts, parts),
        optimizer=slots,
        pruning=scores,
        activations=_activations(config, model, sizes.neurons, parts),
        checkpoint=_bytes(state, {}, 1) + scores,
        narrowing=weights
        + slots
        + scores
        + max(_bytes([v], layouts, parts) for v in state),
    )


def _pruning_state(row_reduce: str, groups: list[FFN]) -> int:
    """Of each unit the scores of its matrices, a mask and its number."""
    by_weight = row_reduce == "max"
    numbers = 0
    for group in groups:
        cuts = group.kernel_cuts()
        row = max(cut.weights for cut in cuts) if by_weight else 1
        matrices = sum(cut.matrices for cut in cuts)
        numbers += group.hidden_dim * (matrices * row + 2)
    return _FLOAT32 * numbers


@dataclasses.dataclass(frozen=True)
class TeacherFootprint:
    """Bytes of one device of a teacher beside the model."""

    parameters: int
    multiply_adds: int  # of a token
    weights: int  # exact
    # Its logits and what the divergence from them keeps: an estimate, without what the
    # compiler fuses.
    activations: int

    @property
    def total(self) -> int:
        """int, all of it together."""
        return self.weights + self.activations


def teacher_footprint(config: RunConfig, teacher: keras.Model) -> TeacherFootprint:
    """The `TeacherFootprint` of a run's teacher, which needs no values."""
    size = _FLOAT32 if config.teacher_dtype == "float32" else _FLOAT32 // 2
    # A preset's outline is a backbone, which returns no logits.
    embedding = getattr(teacher, "token_embedding", None)
    vocabulary = teacher.output_shape[-1] if embedding is None else embedding.input_dim
    top_k = config.distillation.top_k
    # Counted on torch: two softmaxes, their quotient and its logarithm are kept. Of the
    # likeliest tokens they are small, and the gradient of having chosen them is not.
    kept = 4 if top_k is None or top_k >= vocabulary else 1
    compared = 0
    if config.distillation.features:  # each output, and in float32 what is left of both
        blocks = find_blocks(teacher).layers
        compared = sum(b.output.shape[-1] for b in blocks) * (size + _FLOAT32)
    return TeacherFootprint(
        teacher.count_params(),
        multiply_adds(teacher, config.model.sequence_length),
        _bytes(teacher.variables, {}, 1),
        _at_most(
            config,
            _AT_MOST_BY_TEACHER,
            vocabulary * (size + kept * _FLOAT32) + compared,
        ),
    )


def _at_most(config: RunConfig, factors: Mapping[str, float], per_token: int) -> int:
    """Bytes that the backend holds for a part of a batch, of those kept per token."""
    compiled = config.run.jit_compile
    factor = 1.0 if compiled else factors.get(keras.backend.backend(), 1.0)
    return round(config.tokens_at_once * per_token * factor)


def _bytes(
    variables: list[keras.Variable], layouts: Mapping[str, tuple], parts: int
) -> int:
    # An optimizer's slot has the path of its variable in its name, and its layout.
    cut = {path.replace("/", "_") for path in layouts}
    total = 0
    for variable in variables:
        size = math.prod(variable.shape) * _size(variable.dtype)
        name = variable.path.rpartition("/")[2]
        of_cut = variable.path in layouts or any(name.startswith(path) for path in cut)
        total += size // parts if of_cut and len(variable.shape) > 1 else size
    return total


def _size(dtype: str) -> int:
    """Bytes of a number: float16, bfloat16, uint32, int64, bool, ..."""
    bits = "".join(character for character in dtype if character.isdigit())
    return int(bits or 8) // 8


def _activations(config: RunConfig, model: keras.Model, width: int, parts: int) -> int:
    """What blocks without fusions keep.

    A token, in numbers: eight of the residual stream's width (norms, projections,
    sums), four of the queries', four of the FFN's, each head's row of weights, twice.
    """
    length = config.model.sequence_length
    size = _FLOAT32 if config.run.dtype == "float32" else _FLOAT32 // 2
    blocks = transformer_blocks(model)
    layers = len(blocks)
    backbone = getattr(model, "backbone", None)
    dim = getattr(backbone, "hidden_dim", None) or config.model.model_dim
    heads = query_heads(backbone, blocks[0])
    queries = attention_width(model) // layers
    attention = heads * length * (size + _FLOAT32)
    block = size * (8 * dim + (4 * queries + 4 * width) // parts) + attention // parts
    vocabulary = model.output_shape[-1]
    logits = vocabulary * (size + 2 * _FLOAT32) // parts
    kept = layers * block
    if config.run.rematerialize:
        kept = layers * size * dim + block
    return _at_most(config, _AT_MOST, kept + logits)
