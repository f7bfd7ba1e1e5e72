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
    return embedding_parameters(scale) + layers * block + d


def embedding_parameters(scale) -> int:
    """Those of the token embedding and of the output matrix, which no width changes."""
    return 2 * VOCABULARY_SIZE * scale.model_dim


def size_note(scale, enlargement: float) -> str:
    """What is said once a page of the models' sizes."""
    narrow, wide = (
        parameters(scale, scale.width(units)) for units in (1.0, enlargement)
    )
    return (
        f"The narrow model has {narrow:,} parameters, {embedding_parameters(scale):,} "
        "of them in the embedding and the output matrix: with FFNs enlarged "
        f"{enlargement:.3g}×, the wide model has {wide / narrow:.2f}× the parameters."
    )


def average_parameters(cell, scale) -> float:
    """Parameters that are not masked, averaged over the steps of a run."""
    widths = [
        width
        for stage in plan(cell, scale)
        for width in physical_widths(stage, "cubic")
    ]
    return sum(parameters(scale, width) for width in widths) / len(widths)
