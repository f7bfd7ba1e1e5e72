"""Pretrain wide, prune while training, recover: in one `model.fit`."""

from typing import Any as _Any

try:
    import keras as _keras  # noqa: F401
except (ModuleNotFoundError, ValueError) as error:  # of a backend that it does not know
    from os import environ as _environ

    from keras_idea._validation import did_you_mean as _did_you_mean

    _backends = ("jax", "tensorflow", "torch")
    raise ImportError(
        f"Keras cannot be imported: {error}. If that is its backend, choose one that "
        "is installed with the environment variable KERAS_BACKEND=jax, tensorflow or "
        "torch (tensorflow where it is not set), or install it: "
        "pip install 'keras-idea[jax]', '[tensorflow]' or '[torch]'."
        f"{_did_you_mean(_environ.get('KERAS_BACKEND'), _backends)}"
    ) from error

from keras_idea import functional, methods
from keras_idea._callbacks import Checkpoint, IdeaPruneCallback, Monitor
from keras_idea._distillation import distiller
from keras_idea._elastic import ElasticCallback, sliced
from keras_idea._layers import GatedFFN, PrunableFFN, PrunableGatedFFN, UngatedFFN
from keras_idea._schedules import CosineDecay, StagedSchedule, WarmupStableDecay
from keras_idea._settings import recommended
from keras_idea._shapes import shrink
from keras_idea._surgery import (
    FFN,
    as_functional,
    compact,
    explain,
    find_ffns,
    find_groups,
)
from keras_idea.errors import KerasIdeaError
from keras_idea.functional.width import CubicWidth

__version__ = "0.1.0"

__all__ = [
    "FFN",
    "Checkpoint",
    "CosineDecay",
    "CubicWidth",
    "ElasticCallback",
    "GatedFFN",
    "IdeaPruneCallback",
    "KerasIdeaError",
    "Monitor",
    "PrunableFFN",
    "PrunableGatedFFN",
    "StagedSchedule",
    "UngatedFFN",
    "as_functional",
    "WarmupStableDecay",
    "compact",
    "data",
    "distiller",
    "explain",
    "find_ffns",
    "find_groups",
    "functional",
    "methods",
    "recommended",
    "shrink",
    "sliced",
]

#: Modules of the application, loaded when they are first used.
_FACES = ("data", "evaluation", "export", "hub")


def __getattr__(name: str) -> _Any:
    if name in _FACES:
        from importlib import import_module

        return import_module(f"keras_idea.{name}")
    raise AttributeError(f"module 'keras_idea' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_FACES, "__version__"})
