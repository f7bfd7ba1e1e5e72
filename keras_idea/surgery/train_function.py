"""When a train function is made anew: it is of the variables that it was made for."""

from keras_idea.keras_private.models import compilation, make_train_function
from keras_idea.keras_private.optimizer_parts import innermost
from keras_idea.surgery.find import find_ffns


def swap_train_function(model, others):
    """Gives a model its train function for another set of optimizer variables.

    Both are kept, so that fits with a pruner and fits without it are compiled once.

    Args:
        model: a Keras model, compiled or not.
        others: what this returned when the set was changed last, or None.

    Returns:
        The present function, with what it was made for.
    """
    compiled = compilation(model)
    present = getattr(model, "train_function", None)
    known = others is not None and others[0] is compiled
    model.train_function = others[1] if known else None
    if model.train_function is None and present is not None:
        make_train_function(model)
    return compiled, present


def at_first_step(model, act):
    """Calls `act` when a model's optimizer is first applied, and so all is built.

    On tensorflow alone `fit` builds a model by tracing its train function.

    Args:
        model: a compiled Keras model that is not built.
        act: function without arguments; it may wrap the optimizer's `apply`.

    Returns:
        Function without arguments that calls it off, if it has not been called.
    """
    optimizer = innermost(model.optimizer)

    def apply(grads, trainable_variables=None):
        import tensorflow as tf

        call_off()
        with tf.init_scope():  # out of the function that is being traced
            if not optimizer.built:
                optimizer.build(list(trainable_variables))
            for ffn in find_ffns(model):
                ffn.state.reset()  # it may get its initial values only later
            act()
        optimizer.apply(grads, trainable_variables)

    def call_off():
        if vars(optimizer).get("apply") is apply:
            del optimizer.apply

    optimizer.apply = apply
    return call_off
