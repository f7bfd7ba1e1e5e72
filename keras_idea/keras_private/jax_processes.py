"""The processes of one jax computation. Seen with jax 0.10.2.

The key-value store that jax starts its processes with is private, and it is the one
way to talk of which a process that does not answer cannot make all others hang.
"""

import sys
from typing import Any


def client() -> Any:
    """What the processes talk through, or None where there is but one."""
    module = sys.modules.get("jax._src.distributed")
    return None if module is None else module.global_state.client


def place() -> tuple[int, int]:
    """Pair of int: the number of this process, and how many there are.

    `jax.process_index` would start the devices, which must come later.
    """
    state = sys.modules["jax._src.distributed"].global_state
    return state.process_id, state.num_processes


def devices_started() -> bool:
    """Whether jax has computed something, so that no process can be joined any more."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def gathered(value: Any) -> Any:
    """Returns the whole of an array whose parts lie in several processes.

    All of them must call it. What a process holds whole is returned as it is.
    """
    if getattr(value, "is_fully_addressable", True):
        return value
    if value.is_fully_replicated:
        return value.addressable_data(0)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(value, tiled=True)
