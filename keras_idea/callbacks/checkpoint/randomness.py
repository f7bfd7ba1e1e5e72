"""The random number generators of a process: their state, and putting it back."""

import json
import random
import sys
from collections.abc import Mapping

import keras
import numpy as np

from keras_idea.keras_private.randomness import global_seed


def random_state() -> dict[str, np.ndarray]:
    """The state of Python's, NumPy's, Keras's and torch's global generators.

    Layers that draw numbers have generators of their own, which are variables of the
    model; but for dropout on torch, which draws from torch's.
    """
    # First: making it, where nothing has yet, draws from Python's.
    seed = global_seed()
    kind, words, *position = np.random.get_state()
    host = json.dumps([random.getstate(), [kind, *position]])
    state = {
        "keras": np.asarray(keras.ops.convert_to_numpy(seed.value)),
        "numpy": np.asarray(words),
        "host": np.frombuffer(host.encode(), "uint8"),
    }
    if keras.backend.backend() == "torch":
        # Not imported: the package names no backend, and Keras has loaded this one.
        torch = sys.modules["torch"]
        state["torch"] = torch.get_rng_state().numpy()
        for i, device in enumerate(torch.cuda.get_rng_state_all()):
            state[f"torch_cuda_{i}"] = device.numpy()
    return state


def set_random_state(state: Mapping[str, np.ndarray]) -> None:
    """Puts the generators back to a `random_state`, of any backend."""
    global_seed().assign(state["keras"])
    (version, words, gauss), (kind, *position) = json.loads(state["host"].tobytes())
    np.random.set_state((kind, state["numpy"], *position))
    random.setstate((version, tuple(words), gauss))
    if keras.backend.backend() == "torch" and "torch" in state:
        torch = sys.modules["torch"]
        torch.set_rng_state(torch.from_numpy(state["torch"].copy()))
        for i in range(torch.cuda.device_count()):
            if f"torch_cuda_{i}" in state:
                device = torch.from_numpy(state[f"torch_cuda_{i}"].copy())
                torch.cuda.set_rng_state(device, i)
