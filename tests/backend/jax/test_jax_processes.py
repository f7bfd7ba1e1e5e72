"""What jax's processes are known to talk through."""

import os
import subprocess
import sys

import pytest

TALK = """
import jax, socket
from keras_idea.keras_private.jax_processes import client, devices_started, place

assert client() is None and not devices_started()
with socket.socket() as found:
    found.bind(("localhost", 0))
    address = f"localhost:{found.getsockname()[1]}"
jax.distributed.initialize(address, 1, 0)
assert place() == (0, 1) and not devices_started()
client().key_value_set("name", "value")
assert client().blocking_key_value_get("name", 1000) == "value"
jax.devices()
assert devices_started()
"""


@pytest.mark.daily()
def test_client_and_place():
    command = [sys.executable, "-c", TALK]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
