"""Small models with the structure of keras.io's examples, and what a reader counts.

The models are written anew, with few numbers; no code is copied. They are not trained
here: they are models to find things in. `results/examples.md` says how each example is
written, and what pruning, saving and compacting gave (2026-11-26).
"""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

#: The modules of this package that have models.
AREAS = tuple(
    """vit videos vit_layers vit_models mixers contrastive vision text translation
    structured generative densities graph rl""".split()
)
#: Rows of all inputs.
BATCH = 4


@dataclasses.dataclass(frozen=True)
class Built:
    """A model and one batch of what its training takes.

    `parts` are pairs of a layer and its inputs: what of the model is used after
    training. None: the model itself, called on `x`.
    """

    model: Any
    x: Any
    parts: list[tuple[Any, Any]] | None = None

    def used(self) -> list[tuple[Any, Any]]:
        """Pairs of a layer and one batch of its inputs."""
        return [(self.model, self.x)] if self.parts is None else self.parts

    def called(self) -> "Built":
        """This, once every layer that has a `call` was called."""
        if type(self.model).call is not keras.Model.call and not self.model.built:
            self.model(self.x)
        for layer, x in self.used():
            layer(x, training=False)
        return self


@dataclasses.dataclass(frozen=True)
class Example:
    """A model, and how many hidden Dense layers a reader would prune.

    The outputs of such a layer reach other Dense layers alone, through what acts on
    each neuron.
    """

    name: str
    pairs: int
    build: Callable[[], Built]


EXAMPLES: dict[str, Example] = {}


def example(name: str, pairs: int) -> Callable:
    """Notes a function that builds the model of an example, as "vision/cct"."""

    def note(build: Callable[[], Built]) -> Callable[[], Built]:
        assert name not in EXAMPLES, name
        EXAMPLES[name] = Example(name, pairs, build)
        return build

    return note


def all_examples() -> dict[str, Example]:
    """Every example, in the order of the files."""
    for area in AREAS:
        importlib.import_module(f"{__package__}.{area}")
    return EXAMPLES


class Holder(keras.Model):
    """Holds the models that its `train_step` would train, and has no `call`."""

    def __init__(self, **held):
        super().__init__()
        for name, layer in held.items():
            setattr(self, name, layer)


def chain(*inner: Any, name: str | None = None) -> keras.Sequential:
    """Layers one after the other."""
    return keras.Sequential(list(inner), name=name)


def ffn(hidden: int, out: int, activation: Any = "relu", name: str | None = None):
    """Two Dense layers."""
    return chain(
        layers.Dense(hidden, activation=activation), layers.Dense(out), name=name
    )


def normal(*shape: int) -> np.ndarray:
    """Random inputs."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(BATCH, *shape)).astype("float32")


def images(size: int = 8, channels: int = 3) -> np.ndarray:
    """Random images."""
    return np.random.default_rng(0).random((BATCH, size, size, channels), "float32")


def integers(most: int, *shape: int) -> np.ndarray:
    """Random tokens or labels, below `most`."""
    return np.random.default_rng(1).integers(0, most, (BATCH, *shape)).astype("int32")


def backend_gelu() -> Any:
    """The backend's own function, as in `activation=tf.nn.gelu`."""
    backend = keras.backend.backend()
    module = importlib.import_module(
        {"torch": "torch.nn.functional", "jax": "jax.nn"}.get(backend, "tensorflow.nn")
    )
    return module.gelu
