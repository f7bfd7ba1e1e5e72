"""Pretrain wide, prune while training, recover: in one `model.fit`."""

try:
    import keras as _keras  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        f"Keras cannot be imported: {error}. If that is its backend, choose one that "
        "is installed with the environment variable KERAS_BACKEND=jax, tensorflow or "
        "torch (tensorflow where it is not set), or install it: "
        "pip install 'keras-idea[jax]', '[tensorflow]' or '[torch]'."
    ) from error

from keras_idea import functional, methods
from keras_idea.callbacks import Checkpoint, IdeaPruneCallback, Monitor
from keras_idea.layers import GatedFFN, PrunableGatedFFN
from keras_idea.schedules import (
    CosineDecay,
    CubicWidth,
    StagedSchedule,
    WarmupStableDecay,
)
from keras_idea.surgery import compact, find_ffns, make_prunable, strip

__version__ = "0.1.0"

__all__ = [
    "Checkpoint",
    "CosineDecay",
    "CubicWidth",
    "GatedFFN",
    "IdeaPruneCallback",
    "Monitor",
    "PrunableGatedFFN",
    "StagedSchedule",
    "WarmupStableDecay",
    "compact",
    "find_ffns",
    "functional",
    "make_prunable",
    "methods",
    "strip",
]
