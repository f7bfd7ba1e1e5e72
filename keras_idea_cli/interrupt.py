"""Ctrl-C on the command line: one line and status 130, at any moment.

An exception that is raised in the middle of an import is at times turned into another
one, or swallowed, and one raised in a destructor always is. So the process ends at once
there, as it does at a second Ctrl-C; everywhere else `KeyboardInterrupt` is raised, and
what is being written is cleaned up.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

STATUS = 130
LINE = "keras-idea: interrupted."
# Where a module that is not there yet is loaded.
_IMPORT = ("<frozen importlib._bootstrap>", "_find_and_load")


class _Answer:
    """What is known of the interrupts of this process."""

    #: The standard error as it was at first: TensorFlow is imported without it.
    stderr: int | None = None
    #: Whether `KeyboardInterrupt` was raised already.
    came = False
    #: What the line says besides.
    advice = ""
    unraisable: Any = None


def install() -> None:
    """Answers Ctrl-C from now on, until `remove`.

    Elsewhere than in the main thread, or if SIGINT is handled or ignored already, as
    by `nohup`, nothing changes.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    _Answer.came, _Answer.advice = False, ""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):  # it is closed
            _Answer.stderr = os.dup(2)
    _Answer.unraisable, sys.unraisablehook = sys.unraisablehook, _tell_of_unraisable
    signal.signal(signal.SIGINT, _answer)


def remove() -> None:
    """Has Ctrl-C raise `KeyboardInterrupt` again."""
    if signal.getsignal(signal.SIGINT) is not _answer:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.unraisablehook = _Answer.unraisable
    if _Answer.stderr is not None:
        os.close(_Answer.stderr)
    _Answer.stderr = None


@contextlib.contextmanager
def answered() -> Iterator[None]:
    """A scope in which Ctrl-C is answered; what comes when the process ends is late."""
    install()
    try:
        yield
    finally:
        remove()
        with contextlib.suppress(OSError, ValueError):  # nobody reads it, or closed
            sys.stdout.flush()
        atexit.register(_ignore)


def advise(sentence: str) -> None:
    """Adds a sentence to the line; an empty one takes it away."""
    _Answer.advice = f" {sentence}".rstrip()


def line() -> str:
    """What a user reads."""
    return f"{LINE}{_Answer.advice}"


def came() -> bool:
    """Whether Ctrl-C was pressed since `install`: it may have become another error."""
    return _Answer.came


def _answer(number: int, frame: FrameType | None) -> None:
    if _Answer.came or _importing(frame):
        _leave()
    _Answer.came = True
    raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if (frame.f_code.co_filename, frame.f_code.co_name) == _IMPORT:
            return True
        frame = frame.f_back
    return False


def _tell_of_unraisable(unraisable: Any) -> None:
    if unraisable.exc_type is KeyboardInterrupt:
        _leave()
    _Answer.unraisable(unraisable)


def _ignore() -> None:
    """The command is done; Python has no answer for Ctrl-C while it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave() -> None:
    """Ends the process; nothing else runs."""
    try:
        with contextlib.suppress(OSError):
            os.write(
                2 if _Answer.stderr is None else _Answer.stderr, f"{line()}\n".encode()
            )
    finally:
        os._exit(STATUS)
