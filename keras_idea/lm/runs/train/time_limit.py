"""How long what follows the training of a run may take, and what shows it."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

import rich.progress

from keras_idea.lm.runs.train.recorder import Recorder

#: Seconds, and the share of the training's own time: the longer of the two.
LEAST, SHARE = 30.0, 0.1


class TimeLimit:
    """Seconds that are left, from when it is made.

    Attributes:
        seconds: float, at first.

    Example:
    >>> limit = TimeLimit(60.0)
    >>> limit.allows(1.0), limit.allows(61.0)
    (True, False)
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._start = time.perf_counter()

    @property
    def spent(self) -> float:
        """float, the seconds that have passed."""
        return time.perf_counter() - self._start

    def allows(self, seconds: float) -> bool:
        """Whether what takes so many seconds would end in time."""
        return self.spent + seconds < self.seconds


def time_limit(recorders: Sequence[Recorder]) -> TimeLimit:
    """For what follows these trainings, as far as their time is known."""
    trained = sum(recorder.seconds for recorder in recorders)
    return TimeLimit(max(LEAST, SHARE * trained))


@contextlib.contextmanager
def shown(limit: TimeLimit) -> Iterator[Callable[[str], None]]:
    """Shows how much of a limit is spent; gives a function that takes what is done."""
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TextColumn(f"of at most {limit.seconds:,.0f} s"),
    )
    with rich.progress.Progress(*columns, transient=True) as progress:
        task = progress.add_task("", total=limit.seconds)
        yield lambda doing: progress.update(
            task, description=doing, completed=min(limit.spent, limit.seconds)
        )
