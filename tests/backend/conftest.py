"""What one backend alone has: the others' files are not even read."""

import keras

collect_ignore = [
    name for name in ("jax", "tensorflow", "torch") if name != keras.backend.backend()
]
