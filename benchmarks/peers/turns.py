"""Training runs that take turns in one process, and the clock that each is given."""

import threading
import time


class Clock:
    """What a run calls after each step; it notes the step and ends the run's turn.

    Attributes:
        losses: list of float, the loss of each step.
        widths: list of float, neurons of an FFN's arrays after each step, their mean.
        cpu: list of float, seconds of process time of each step; whatever was done
            before the first step belongs to it.
        wall: list of float, seconds on the wall.
        rest: pair of float, both kinds of seconds from the last step to the run's end.
        error: the exception that ended the run, or None.
    """

    def __init__(self, steps_per_turn):
        self.losses, self.widths, self.cpu, self.wall = [], [], [], []
        self.rest = (0.0, 0.0)
        self.error = None
        self._steps_per_turn = steps_per_turn
        self._mine, self._others = threading.Semaphore(0), threading.Semaphore(0)

    def step(self, loss, width):
        """Notes a step, waiting for its loss, and waits if the turn is over."""
        loss = float(loss)
        cpu, wall = self._since()
        self.cpu.append(cpu)
        self.wall.append(wall)
        self.losses.append(loss)
        self.widths.append(float(width))
        if len(self.losses) % self._steps_per_turn == 0:
            self._others.release()
            self._mine.acquire()
        self._start = _now()

    def begin(self):
        """Waits for the first turn."""
        self._mine.acquire()
        self._start = _now()

    def end(self):
        """Ends the last turn."""
        self.rest = self._since()
        self._others.release()

    def give_turn(self):
        """Lets the run go on, and waits until its turn is over."""
        self._mine.release()
        self._others.acquire()

    def _since(self):
        return tuple(b - a for a, b in zip(self._start, _now(), strict=True))


def _now():
    return time.process_time(), time.perf_counter()


class _Runner(threading.Thread):
    """One run in a thread of its own; never two of them compute at a time."""

    def __init__(self, run, clock):
        super().__init__(daemon=True)
        self._run, self.clock = run, clock
        self.ended, self.result = False, None

    def run(self):
        """Carries the run out, turn by turn."""
        self.clock.begin()
        try:
            self.result = self._run(self.clock)
        except Exception as error:
            self.clock.error = error
        self.ended = True
        self.clock.end()


def carry_out(runs, steps_per_turn):
    """Carries out several runs turn by turn, so that a busy machine slows all of them.

    Args:
        runs: dict of name to function that trains a model, given a `Clock` whose `step`
            it calls after each step.
        steps_per_turn: int, steps of a turn.

    Returns:
        dict of name to pair: its `Clock`, and what its function returned; None if an
        exception ended it, which the clock then holds.
    """
    runners = {name: _Runner(run, Clock(steps_per_turn)) for name, run in runs.items()}
    for runner in runners.values():
        runner.start()
    while going := [runner for runner in runners.values() if not runner.ended]:
        for runner in going:
            runner.clock.give_turn()
    return {name: (runner.clock, runner.result) for name, runner in runners.items()}
