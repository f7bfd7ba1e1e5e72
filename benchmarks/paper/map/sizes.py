"""How many parameters a cell has, on average over its tokens."""

from benchmarks.paper.flops import physical_widths
from benchmarks.paper.plan import plan
from benchmarks.paper.scale import VOCABULARY_SIZE
from keras_idea.functional.counts import ffn_parameters


def parameters(scale, width) -> int:
    """Parameters of the decoder at a width, as Keras counts them."""
    d, layers = scale.model_dim, scale.num_layers
    # Two norms a block and one behind the last.
    block = 4 * d * d + ffn_parameters(d, width) + 2 * d
    return 2 * VOCABULARY_SIZE * d + layers * block + d


def average_parameters(cell, scale) -> float:
    """Parameters that are not masked, averaged over the steps of a run."""
    widths = [
        width
        for stage in plan(cell, scale)
        for width in physical_widths(stage, "cubic")
    ]
    return sum(parameters(scale, width) for width in widths) / len(widths)
