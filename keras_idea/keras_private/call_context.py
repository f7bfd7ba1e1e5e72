"""What Keras knows of the forward pass that is under way.

Asked here, and not through a `training` argument of `call`: with one, a layer can
not be rematerialized on tensorflow (Keras then passes it to a custom gradient as a
keyword, which tensorflow refuses).
"""

from keras.src.backend.common import global_state
from keras.src.backend.common.stateless_scope import get_stateless_scope


def in_forward_pass():
    """bool, whether a layer is being called."""
    return _context() is not None


def training_flag():
    """Bool or None, the `training` that the outermost layer was called with."""
    context = _context()
    return None if context is None else context.get_value("training")


def current_pass():
    """An object that stands for the forward pass under way, or None.

    On jax that is the scope of `stateless_call`, in which each layer of the model is
    called as if it were the outermost.
    """
    return get_stateless_scope() or _context()


def _context():
    return global_state.get_global_attribute("current_call_ctx")
