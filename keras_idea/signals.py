"""What must be done whole: a signal that comes in the midst of it is answered after it.

Python answers a signal (Ctrl-C) between any two operations of the main thread, mostly
by an exception. In other threads it answers none.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """A scope that no signal interrupts; those that come are answered at its end.

    Signals that Python does not answer (SIGKILL; mostly SIGTERM) end the process as
    ever. It is for what takes seconds at most, and works as a decorator too.

    Example:
    >>> with held_back():
    ...     signal.raise_signal(signal.SIGINT)
    ...     print("whole")
    Traceback (most recent call last):
    KeyboardInterrupt
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held = _Held()
    try:
        held.begin()
        yield
    finally:
        held.end()


class _Held:
    """The signals that Python answers, taken note of in place of that."""

    def __init__(self) -> None:
        self._answers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._came: list[int] = []
        self._over = False

    def begin(self) -> None:
        for number in signal.valid_signals():
            answer = signal.getsignal(number)
            if callable(answer):
                self._answers[number] = answer
                signal.signal(number, self._note)

    def end(self) -> None:
        self._over = True
        try:
            for number, answer in self._answers.items():
                signal.signal(number, answer)
        finally:
            _raise_each(list(dict.fromkeys(self._came)))

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._over:  # it came while the answers were put back
            self._answers[number](number, frame)
        else:
            self._came.append(number)


def _raise_each(numbers: list[int]) -> None:
    """Has each signal answered, though the answer to another one raises."""
    if numbers:
        try:
            signal.raise_signal(numbers[0])
        finally:
            _raise_each(numbers[1:])
