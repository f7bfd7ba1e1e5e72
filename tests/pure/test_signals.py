"""Signals that are held back come afterwards, each to the function that answers it."""

import os
import signal
import threading

import pytest

from keras_idea._signals import held_back


@pytest.fixture(autouse=True)
def answers():
    """Ctrl-C raises, whatever the tests were begun under; SIGTERM is the tests' own."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, answer in zip(numbers, before, strict=True):
        signal.signal(number, answer)


def interrupt(number=signal.SIGINT):
    os.kill(os.getpid(), number)


def test_it_comes_at_the_end():
    done = []
    with pytest.raises(KeyboardInterrupt):
        with held_back():
            interrupt()
            interrupt()
            done.append("whole")
        done.append("after")
    assert done == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_a_scope_in_a_scope_is_part_of_it():
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        with held_back():
            interrupt()
        done.append("whole")
    assert done == ["whole"]


def test_each_signal_is_answered_in_turn():
    """By the function that answers it, though another one raises."""
    heard = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    with pytest.raises(KeyboardInterrupt), held_back():
        interrupt()
        interrupt(signal.SIGTERM)
        assert not heard
    assert heard == [signal.SIGTERM]


def test_in_another_thread_nothing_is_held_back():
    """Python answers signals in the main thread alone, and only it may set answers."""
    seen = []

    def work():
        with held_back():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
