"""A model's kernels over a mesh of devices, and which rows of a batch are whose."""

from keras_idea.lm.distribution.layouts import kernel_layouts
from keras_idea.lm.distribution.mesh import (
    Distribution,
    distribution_of,
    local_rows,
)

__all__ = ["Distribution", "distribution_of", "kernel_layouts", "local_rows"]
