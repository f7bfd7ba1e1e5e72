"""What Keras knows of the forward pass that is under way.

Asked here, and not through a `training` argument of `call`: with one, a layer can
not be rematerialized on tensorflow (Keras then passes it to a custom gradient as a
keyword, which tensorflow refuses). Seen with Keras 3.15.1.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
from keras.src import backend
from keras.src.backend.common import global_state
from keras.src.backend.common.stateless_scope import get_stateless_scope

_AGAIN = "keras_idea_called_again"


def in_forward_pass() -> bool:
    """bool, whether a layer is being called, in a backward pass again too."""
    again = global_state.get_global_attribute(_AGAIN, False)
    return _context() is not None or bool(again)


@contextlib.contextmanager
def called_again() -> Iterator[None]:
    """A scope of the forward pass that a backward pass repeats.

    There torch and tensorflow call a layer's `call` alone: what is not in a layer of
    its own in it has no context.
    """
    before = global_state.get_global_attribute(_AGAIN, False)
    global_state.set_global_attribute(_AGAIN, True)
    try:
        yield
    finally:
        global_state.set_global_attribute(_AGAIN, before)


def training_flag() -> bool | None:
    """Bool or None, the `training` that the outermost layer was called with."""
    context = _context()
    return None if context is None else context.get_value("training")


def current_pass() -> Any:
    """An object that stands for the forward pass under way, or None.

    On jax that is the scope of `stateless_call`, in which each layer of the model is
    called as if it were the outermost.
    """
    return get_stateless_scope() or _context()


def mask_of(x: Any) -> Any:
    """Keras's mask of a tensor, or None, without a `mask` argument of `call`.

    With one, a layer is given it by name, which one in its place must then take too.
    """
    return backend.get_keras_mask(x)


def call_without_values(model: keras.Model, inputs: Any, training: bool) -> Any:
    """Calls a model as `model(inputs, training=training)` on shapes alone.

    A call with a `KerasTensor` would note itself in the model's graph, and
    `compute_output_spec` of a functional model does not call its layers' `call`.

    Args:
        model: a built Keras model.
        inputs: `KerasTensor`s, nested as its inputs are.
        training: bool.

    Returns:
        `KerasTensor`s of its outputs.
    """
    return backend.compute_output_spec(model, inputs, training=training)


def _context() -> Any:
    return global_state.get_global_attribute("current_call_ctx")
