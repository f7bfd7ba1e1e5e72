"""Delays signals such as Ctrl-C until a change of the model is whole."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Delays the signals that Python handles until the end of the block.

    Use it for work of a few seconds at most; it is a decorator, too. Signals that
    Python does not handle (SIGKILL, usually SIGTERM) still end the process. Outside of
    the main thread, where Python handles none, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: set[int] = set()

    def put_back(number: int, handler: Any) -> None:
        signal.signal(number, handler)
        if number in came:
            signal.raise_signal(number)

    with contextlib.ExitStack() as stack:  # calls every `put_back`, if one raises too
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):
                stack.callback(put_back, number, handler)
                signal.signal(number, lambda number, frame: came.add(number))
        yield
