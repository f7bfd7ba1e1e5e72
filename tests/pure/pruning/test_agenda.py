"""What is due between two steps comes in its order, and each thing once."""

import math

import pytest

from keras_idea.callbacks.prune.session import Agenda


def first(model, step):
    """An action."""


def second(model, step):
    """Another."""


@pytest.fixture
def agenda():
    return Agenda()


def taken(agenda, step):
    actions = []
    while (action := agenda.take(step)) is not None:
        actions.append(action)
    return actions


def test_by_step_and_then_as_added(agenda):
    agenda.add(7, second)
    agenda.add(5, second)
    agenda.add(7, first)
    assert agenda.due_step == 5
    assert taken(agenda, 4) == []
    assert taken(agenda, 5) == [second]
    assert taken(agenda, 9) == [second, first]
    assert agenda.due_step == math.inf


def test_due_twice_is_done_once_and_what_comes_later_stays(agenda):
    for step in (3, 5, 9):
        agenda.add(step, first)
    agenda.add(4, second)
    assert agenda.is_due(first, 3) and not agenda.is_due(second, 3)
    assert taken(agenda, 6) == [first, second]
    assert first in agenda and not agenda.is_due(first, 8)
    assert taken(agenda, 9) == [first]
    assert first not in agenda


def test_postponed(agenda):
    agenda.add(3, first)
    agenda.add(8, second)
    agenda.postpone(6)
    assert agenda.due_step == 6
    assert taken(agenda, 6) == [first]
    assert agenda.due_step == 8
