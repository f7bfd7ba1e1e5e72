"""Loss and speed between two points of a curve."""

import dataclasses
import threading
import time

from keras_idea.functional.counts import mean_between


@dataclasses.dataclass(frozen=True)
class Interval:
    """What happened between two points."""

    loss: float | None  # the mean of its batches
    batches_per_second: float | None
    logs: dict[str, float]  # Keras's, of its last batch


class IntervalMeter:
    """Mean loss and speed of the batches between two points, over epochs and pauses.

    Only time in epochs counts, without the first batch, which compiles. Logs may come
    from other threads, late, and in any order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrived: dict[int, tuple[float, dict[str, float]]] = {}
        # (batches, time) of the first batch that ended
        self._first: tuple[int, float] | None = None
        self._running = False  # whether the clock has started there
        self._left = _Sums()  # of earlier epochs, since the last point
        self._base = _Sums()  # of this epoch at the last point

    def begin_epoch(self) -> None:
        """Carries over what the last epoch left after its last point."""
        end = self._sums(self.latest)
        if end is not None and end.batches > self._base.batches:
            self._left = self._left + (end - self._base)
        with self._lock:
            self._arrived = {}
        self._base = _Sums(seconds=time.perf_counter())

    def add(self, batches: int, logs: dict[str, float], now: float) -> None:
        """Takes the logs after so many batches of the epoch; from any thread."""
        with self._lock:
            self._arrived[batches] = (now, logs)
            if self._first is None:
                self._first = (batches, now)

    @property
    def latest(self) -> int:
        """int, the batches of this epoch whose logs have arrived."""
        with self._lock:
            return max(self._arrived, default=0)

    def take(self, batches: int) -> Interval | None:
        """Ends an interval after so many batches of this epoch.

        None: the logs have not arrived yet.
        """
        end = self._sums(batches)
        if end is None:
            return None
        with self._lock:
            _, logs = self._arrived[batches]
            for earlier in [key for key in self._arrived if key < batches]:
                del self._arrived[earlier]
        sums = self._left + (end - self._base)
        self._left, self._base = _Sums(), end
        speed = sums.timed / sums.seconds if sums.timed and sums.seconds > 0 else None
        loss = sums.loss if "loss" in logs and sums.batches else None
        return Interval(loss, speed, logs)

    def _sums(self, batches: int) -> "_Sums | None":
        """The sums of this epoch after so many batches; None: not arrived yet."""
        with self._lock:
            if batches not in self._arrived:
                return None
            now, logs = self._arrived[batches]
            if not self._running:
                # The clock starts when the first batch of all has ended.
                warm, began = self._first or (0, now)
                self._base = dataclasses.replace(
                    self._base, seconds=began, timed=min(warm, batches)
                )
                self._running = True
        return _Sums(float(logs.get("loss", 0.0)), batches, batches, now)


@dataclasses.dataclass(frozen=True)
class _Sums:
    loss: float = 0.0  # the mean of the batches
    batches: int = 0
    timed: int = 0
    seconds: float = 0.0

    def __add__(self, other: "_Sums") -> "_Sums":
        return self - _Sums(other.loss, -other.batches, -other.timed, -other.seconds)

    def __sub__(self, other: "_Sums") -> "_Sums":
        mine, theirs = (self.batches, self.loss), (other.batches, other.loss)
        return _Sums(
            mean_between(theirs, mine) if self.batches != other.batches else 0.0,
            self.batches - other.batches,
            self.timed - other.timed,
            self.seconds - other.seconds,
        )
