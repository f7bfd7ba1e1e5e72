"""Warnings that point at the user's line, not at one of ours or of Keras."""

import inspect
import types
import warnings

# The last one's frames are those of functions that a scope is around.
_INSIDE = ("keras_idea", "keras", "keras_hub", "contextlib")


def warn_user(message: str) -> None:
    """Warns, at the line outside of Keras and this package that led here."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and _is_inside(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def _is_inside(frame: types.FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE
