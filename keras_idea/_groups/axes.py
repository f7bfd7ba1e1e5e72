"""Axes that number the same things, joined while a model is followed.

The neurons of a feed-forward network are the columns of its up kernel, the last axis of
what it computes from them, and the rows of its down kernel. Whatever acts on each
neuron alone joins the axis of what it is given to that of what it makes; anything else
settles them: these neurons are not to be pruned, for this reason.
"""

from collections.abc import Hashable


class Axes:
    """Sets of axes that are one, and why some of them must stay as they are.

    Example:
    >>> axes = Axes()
    >>> axes.join("columns of up", "hidden")
    >>> axes.join("hidden", "rows of down")
    >>> axes.settle("logits", "it is an output of the model")
    >>> axes.sets()
    [['columns of up', 'hidden', 'rows of down'], ['logits']]
    >>> axes.reason("rows of down"), axes.reason("logits")
    (None, 'it is an output of the model')
    """

    def __init__(self) -> None:
        self._parent: dict[Hashable, Hashable] = {}
        self._reasons: dict[Hashable, str] = {}

    def join(self, one: Hashable, other: Hashable) -> None:
        """Makes two axes one."""
        first, second = self._root(one), self._root(other)
        if first == second:
            return
        self._parent[second] = first
        reason = self._reasons.pop(second, None)
        if reason is not None:
            self._reasons.setdefault(first, reason)

    def settle(self, axis: Hashable, reason: str) -> None:
        """Has an axis, and those it is joined to, stay; the first reason is kept."""
        self._reasons.setdefault(self._root(axis), reason)

    def reason(self, axis: Hashable) -> str | None:
        """Why an axis must stay as it is; None if it need not."""
        return self._reasons.get(self._root(axis))

    def sets(self) -> list[list[Hashable]]:
        """The axes, those that are one together, in the order of their first."""
        found: dict[Hashable, list[Hashable]] = {}
        for axis in list(self._parent):
            found.setdefault(self._root(axis), []).append(axis)
        return list(found.values())

    def _root(self, axis: Hashable) -> Hashable:
        parent = self._parent.setdefault(axis, axis)
        while parent != axis:
            # Halves the way for those who come after.
            self._parent[axis] = self._parent[parent]
            axis, parent = parent, self._parent[parent]
        return axis
