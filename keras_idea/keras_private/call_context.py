"""What Keras knows of the forward pass that is under way.

Asked here, and not through a `training` argument of `call`: with one, a layer can
not be rematerialized on tensorflow (Keras then passes it to a custom gradient as a
keyword, which tensorflow refuses). Seen with Keras 3.15.1.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.src import backend
from keras.src.backend.common import global_state
from keras.src.backend.common.stateless_scope import get_stateless_scope

_AGAIN = "keras_idea_called_again"
_TRAIN_STEP = "keras_idea_train_step"


def called_again() -> contextlib.AbstractContextManager[None]:
    """A scope of the forward pass that a backward pass repeats.

    There torch and tensorflow call a layer's `call` alone: what is not in a layer of
    its own in it has no context.
    """
    return _flagged(_AGAIN)


@contextlib.contextmanager
def _flagged(name: str) -> Iterator[None]:
    before = global_state.get_global_attribute(name, False)
    global_state.set_global_attribute(name, True)
    try:
        yield
    finally:
        global_state.set_global_attribute(name, before)


def is_training() -> bool:
    """bool, whether the forward pass under way is one that a model is trained by.

    The outermost layer's `training` says so. Where that is None it is inference, as it
    is in Keras; but not in the train step of a model whose `call` takes no `training`,
    see `in_train_step`, nor where a backward pass repeats a layer's `call`. A model
    that is rematerialized as a whole is told a traced value on jax, which says nothing.
    """
    context = _context()
    flag = None if context is None else context.get_value("training")
    if flag is not None and not keras.ops.is_tensor(flag):
        return bool(flag)
    step = global_state.get_global_attribute(_TRAIN_STEP, False)
    again = global_state.get_global_attribute(_AGAIN, False)
    return context is None or bool(step or again)


def in_train_step(train_step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a train step, in which a forward pass is one of training."""
    with _flagged(_TRAIN_STEP):
        return train_step(*args, **kwargs)


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


def call_without_values(model: keras.Model, inputs: Any) -> Any:
    """Calls a model as `model(inputs, training=True)` on `KerasTensor`s alone.

    Of a known shape: for an unknown one Keras may run the model twice. A call with a
    `KerasTensor` would note itself in the model's graph, and `compute_output_spec` of a
    functional model does not call its layers' `call`.
    """
    known = keras.tree.map_structure(
        lambda x: keras.KerasTensor([8 if d is None else d for d in x.shape], x.dtype),
        inputs,
    )
    call = functools.partial(backend.compute_output_spec, model, training=True)
    return in_train_step(call, known)


def _context() -> Any:
    return global_state.get_global_attribute("current_call_ctx")
