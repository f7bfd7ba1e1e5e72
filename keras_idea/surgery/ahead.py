"""Programs that will be needed, compiled in the background; on jax.

Which program runs never depends on time: one that is not ready when its step comes is
waited for, and one that turns out not to be the very program that is needed, character
by character, is never used. Nor is one that calls Python, which its text does not show.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

# `pure_callback`, `io_callback` and `debug.print`, on CPUs, GPUs and TPUs.
_CALLS_PYTHON = ("callback", "stablehlo.send", "stablehlo.recv")


class Ahead:
    """Compiles programs one after the other, beside the run."""

    def __init__(self) -> None:
        self._programs: dict[str, Future] = {}
        self._newest: Future | None = None

    @property
    def idle(self) -> bool:
        """bool, whether nothing is being compiled."""
        return self._newest is None or self._newest.done()

    def compile(self, lowered: Any) -> None:
        """Has a program, a `jax.stages.Lowered`, compiled in the background."""
        text = lowered.as_text()
        if any(word in text for word in _CALLS_PYTHON):
            return
        thread = ThreadPoolExecutor(1, thread_name_prefix="keras_idea-compile")
        self._newest = thread.submit(lowered.compile)
        thread.shutdown(wait=False)  # it ends with the program
        self._programs[text] = self._newest

    def find(self, lowered: Any) -> Any:
        """The compiled program that is just this one, or None.

        It waits for one that is being compiled.
        """
        program = self._programs.pop(lowered.as_text(), None)
        # One that failed fails once more where it is needed, and says why.
        return None if program is None or program.exception() else program.result()
