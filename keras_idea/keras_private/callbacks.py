"""The callbacks of the `fit` under way."""

import inspect

import keras


def peers(callback: keras.callbacks.Callback) -> list[keras.callbacks.Callback]:
    """The callbacks of the list that has called this one, itself among them.

    `CallbackList` gives each callback the model and the parameters, not the list: it
    is found among the callers. Seen with Keras 3.15.1.

    Args:
        callback: a Keras callback, in one of whose hooks this is called.

    Returns:
        list, empty where no `CallbackList` has called it.
    """
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.callbacks.CallbackList):
            if any(own is callback for own in caller.callbacks):
                return caller.callbacks
        frame = frame.f_back
    return []
