"""The processes of one run: which one this is, and how they agree.

There are several on jax alone, each with devices of its own, all running the same
program; elsewhere, and in most runs, there is one, and everything here is free.
"""

import contextlib
import importlib.metadata
import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from keras_idea import errors
from keras_idea.errors import ConfigError, KerasIdeaError, ProcessError
from keras_idea.keras_private.jax_processes import client, devices_started, place

T = TypeVar("T")
#: Seconds within which all processes must have come, and after which one is dead.
PATIENCE = 40
# Of what one process does while the others wait: a token cache may take a day.
_VERY_LONG = 7 * 24 * 3600
_VARIABLES = tuple(
    f"KERAS_DISTRIBUTION_{name}"
    for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")
)
_turns = itertools.count()
_alone: list[bool] = []


def count() -> int:
    """int, the processes of the run."""
    return 1 if _alone or client() is None else place()[1]


def index() -> int:
    """Int in [0, count()), the number of this process."""
    return 0 if _alone or client() is None else place()[0]


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """A scope of the first process, in which it does without the others."""
    _alone.append(True)
    try:
        yield
    finally:
        _alone.pop()


def is_first() -> bool:
    """bool, whether this is the process that writes."""
    return index() == 0


def announced() -> bool:
    """bool, whether Keras's environment variables tell of several processes."""
    return os.environ.get(_VARIABLES[1], "1") != "1"


def join() -> None:
    """Joins the other processes of the run, if there are any.

    By Keras's environment variables `KERAS_DISTRIBUTION_JOB_ADDRESSES`,
    `..._NUM_PROCESSES` and `..._PROCESS_ID`, else by what jax finds out itself (Slurm,
    GKE, TPU pods). To be called before anything is computed, on jax.

    Raises:
        ConfigError: if only some of the variables are set, or not to numbers.
        ProcessError: if the others do not come.
    """
    if client() is not None:  # by the caller, or an earlier run
        return
    import jax

    patience: dict[str, Any] = {
        "initialization_timeout": PATIENCE,
        "heartbeat_timeout_seconds": PATIENCE,
        "shutdown_timeout_seconds": PATIENCE,
    }
    environment = {name: os.environ.get(name) for name in _VARIABLES}
    if not any(environment.values()):
        if devices_started():  # a program that has begun alone
            return
        try:
            jax.distributed.initialize(**patience)
        except ValueError:  # jax has found nothing: there is but this process
            return
        except RuntimeError as error:
            raise _nobody_came(error) from error
        return
    address, number, own = _addressed(environment)
    if devices_started():
        raise ProcessError(
            "jax has computed something already, so the other processes of the run "
            "cannot be joined. Begin the program with it, or call "
            "keras.distribution.initialize() first."
        )
    try:
        jax.distributed.initialize(address, number, own, **patience)
    except RuntimeError as error:
        raise _nobody_came(error) from error


def exchange(text: str) -> list[str]:
    """What each process has to say, in their order; all must call it."""
    if count() == 1:
        return [text]
    turn = next(_turns)
    client().key_value_set(_key(turn, index()), text)
    return [_wait_for(_key(turn, number)) for number in range(count())]


def from_first(make: Callable[[], Any]) -> Any:
    """What `make` returns in the first process, which alone calls it.

    The others wait for it. It must be what JSON can hold; an error of the first is
    raised in all.
    """
    if count() == 1:
        return make()
    key = _key(next(_turns), 0)
    if not is_first():
        state, value = json.loads(_wait_for(key))
        if state == "error":
            raise _error(value, 0)
        return value
    try:
        value = make()
    # Whatever it is: the others wait for a word.
    except BaseException as error:
        client().key_value_set(key, json.dumps(["error", _failure_text(error)]))
        raise
    client().key_value_set(key, json.dumps(["value", value]))
    return value


def on_each(make: Callable[[], T]) -> T:
    """What `make` returns, once it has returned in every process.

    It needs nothing of the other processes; what it raises in one is raised in all.
    """
    try:
        made = make()
    except BaseException as error:
        exchange(_failure_text(error))
        raise
    for number, failure in enumerate(exchange("")):
        if failure:
            raise _error(failure, number)
    return made


def check_same(facts: dict[str, Any]) -> None:
    """Refuses processes that do not run the same program on the same data.

    Args:
        facts: dict that JSON can hold: what must be the same in all. The versions of
            the packages are added.
    """
    if count() == 1:
        return
    packages = ("keras-idea", "keras", "jax", "numpy")
    versions = {name: importlib.metadata.version(name) for name in packages}
    facts_of_all = list(map(json.loads, exchange(json.dumps({**versions, **facts}))))
    for number, other in enumerate(facts_of_all):
        for name, value in facts_of_all[0].items():
            if other.get(name) != value:
                raise ProcessError(
                    f"The processes of a run must be given the same. Of {name} process "
                    f"0 has {value!r} and process {number} has {other.get(name)!r}."
                )


def _addressed(environment: dict[str, str | None]) -> tuple[str, int, int]:
    """The address of the first process, how many there are, and which this is."""
    missing = [name for name, value in environment.items() if not value]
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} is not set, though others of Keras's variables "
            "are. A run in several processes needs all three in each of them."
        )
    address, number, own = (str(value) for value in environment.values())
    try:
        total, this = int(number), int(own)
        if not 0 <= this < total:
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"{_VARIABLES[1]} must be a whole number, and {_VARIABLES[2]} one below "
            f"it. Received: {number!r} and {own!r}."
        ) from None
    return address.split(",")[0], total, this


def _nobody_came(error: Exception) -> ProcessError:
    reason = " ".join(str(error).split())
    return ProcessError(
        f"The processes of the run have not come together within {PATIENCE} seconds. "
        f"Start as many as there should be, all at once, each with its own number: "
        f"see {', '.join(_VARIABLES)}. jax says: {reason}"
    )


def _key(turn: int, number: int) -> str:
    return f"keras_idea/{turn}/{number}"


def _wait_for(key: str) -> str:
    # If the process is dead jax ends this one too, within PATIENCE seconds.
    return client().blocking_key_value_get(key, _VERY_LONG * 1000)


def _failure_text(error: BaseException) -> str:
    # Those of the operating system have many names, this package's own have one.
    foreign = isinstance(error, OSError) and not isinstance(error, KerasIdeaError)
    name = "OSError" if foreign else type(error).__name__
    return json.dumps([name, str(error)])


def _error(failure: str, number: int) -> Exception:
    name, message = json.loads(failure)
    kind = OSError if name == "OSError" else getattr(errors, name, None)
    if kind is None:  # none of ours: only that process can show where it came from
        return ProcessError(f"process {number} has failed: {name}: {message}")
    return kind(f"process {number}: {message}")
