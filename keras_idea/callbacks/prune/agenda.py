"""What a pruning run does between two steps, and after which of them."""

import bisect
import operator
from collections.abc import Callable
from typing import TypeAlias

import keras

#: A function of the fitted model and the optimizer steps taken.
Action: TypeAlias = Callable[[keras.Model, int], None]


class Agenda:
    """A queue of actions, by the optimizer step after which they are due.

    Example:
    >>> agenda = Agenda()
    >>> agenda.add(20, print)
    >>> agenda.due_step, agenda.take(19), agenda.take(20) is print, agenda.due_step
    (20, None, True, inf)
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, Action]] = []

    @property
    def due_step(self) -> float:
        """The step after which the next action is due; inf if there is none."""
        return self._entries[0][0] if self._entries else float("inf")

    def __contains__(self, action: Action) -> bool:
        return any(action == other for _, other in self._entries)

    def add(self, step: int, action: Action) -> None:
        """Adds an action, behind all that are due after the same step."""
        bisect.insort(self._entries, (step, action), key=operator.itemgetter(0))

    def is_due(self, action: Action, step: int) -> bool:
        """Whether an action is due after so many steps."""
        return any(action == other for due, other in self._entries if due <= step)

    def take(self, step: int) -> Action | None:
        """Takes the next action that is due, if any; one due twice is taken once."""
        if step < self.due_step:
            return None
        _, action = self._entries[0]
        stay = [e for e in self._entries if e[0] > step or e[1] != action]
        self._entries = stay
        return action

    def postpone(self, step: int) -> None:
        """Lets nothing be due before `step`."""
        self._entries = [(max(due, step), action) for due, action in self._entries]

    def clear(self) -> None:
        """Leaves nothing to do."""
        self._entries = []
