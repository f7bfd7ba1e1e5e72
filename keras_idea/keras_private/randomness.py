"""Keras's own random number generator."""

import keras
from keras.src.random.seed_generator import global_seed_generator


def global_seed() -> keras.Variable:
    """The state of what `keras.random` draws from where it is given no seed.

    Made, where nothing has drawn yet, by a number of Python's `random`.
    `keras.utils.set_random_seed` sets it; nothing public reads it. Seen with Keras
    3.15.1.
    """
    return global_seed_generator().state
