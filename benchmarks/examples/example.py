"""One of keras.io's examples: how it is written, and a small model of its structure.

The models are described in our own words, with few numbers; no code is copied. This
file and those of the models import Keras alone: a fresh process loads what was saved.
"""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

#: Where the models are.
PACKAGE = "benchmarks.examples"
AREAS = tuple(
    """vit videos vit_layers vit_models mixers contrastive vision text translation
    structured generative densities graph rl""".split()
)
#: Each model has so many examples: four batches per epoch.
COUNT, BATCH, EPOCHS = 16, 4, 3


@dataclasses.dataclass(frozen=True)
class Part:
    """A layer that is saved, and one batch of inputs of its call."""

    layer: Any
    inputs: tuple


@dataclasses.dataclass(frozen=True)
class Built:
    """A compiled model, what `fit` is given, and what of it is used after training.

    `parts` maps a name to a `Part`. None: the model itself, called on `x`. `groups` is
    what the callback is told where it asks for it.
    """

    model: Any
    x: Any
    y: Any = None
    parts: dict[str, Part] | None = None
    groups: Callable[[Any], bool] | None = None

    def used(self) -> dict[str, Part]:
        """What is saved, loaded and compacted."""
        if self.parts is not None:
            return self.parts
        return {"model": Part(self.model, (self.first(),))}

    def first(self) -> Any:
        """The first batch of inputs."""
        return keras.tree.map_structure(lambda array: array[:BATCH], self.x)


@dataclasses.dataclass(frozen=True)
class Example:
    """What a reader of an example would say of it.

    Attributes:
        name: str. The example on keras.io: "vision/cct".
        written: str. How its model is written.
        pairs: int. How many hidden layers have neurons that a reader would prune: their
            outputs reach other Dense layers alone, through what acts on each neuron.
        others: str. Why the other Dense layers have no such neurons.
        build: function. Makes the compiled model.
        backend: str or None. The one backend on which Keras alone trains it: on the
            others, `fit` needs a `call`, and layers that take every batch size.
    """

    name: str
    written: str
    pairs: int
    others: str
    build: Callable[[], Built]
    backend: str | None = None


EXAMPLES: dict[str, Example] = {}


def example(
    name: str, written: str, pairs: int, others: str, backend: str | None = None
) -> Callable:
    """Notes a function that builds the model of an example."""

    def note(build: Callable[[], Built]) -> Callable[[], Built]:
        assert name not in EXAMPLES, name
        EXAMPLES[name] = Example(name, written, pairs, others, build, backend)
        return build

    return note


def all_examples() -> dict[str, Example]:
    """Every example, in the order of the files."""
    for area in AREAS:
        importlib.import_module(f"{PACKAGE}.{area}")
    return EXAMPLES


def compiled(model: Any, loss: Any = None, **more: Any) -> Any:
    """The model, compiled with Adam."""
    model.compile(keras.optimizers.Adam(1e-2), loss, **more)
    return model


SPARSE = "sparse_categorical_crossentropy"


def of_logits() -> keras.losses.Loss:
    """The loss of most classifiers."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def normal(*shape: int) -> np.ndarray:
    """Random inputs."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(COUNT, *shape)).astype("float32")


def images(size: int = 8, channels: int = 3) -> np.ndarray:
    """Random images."""
    return np.random.default_rng(0).random((COUNT, size, size, channels), "float32")


def integers(most: int, *shape: int) -> np.ndarray:
    """Random tokens or labels, below `most`."""
    return np.random.default_rng(1).integers(0, most, (COUNT, *shape)).astype("int32")
