"""FFNs of stock Dense layers, where tests also use the layers of this package."""

import keras


def dense_gated(hidden_dim, name, activation="silu", **arguments):
    """As a `PrunableGatedFFN`, of three Dense layers: a function of a tensor."""
    arguments = {"use_bias": False, **arguments}

    def call(x):
        up = keras.layers.Dense(hidden_dim, activation, name=f"{name}_up", **arguments)
        gate = keras.layers.Dense(hidden_dim, name=f"{name}_gate", **arguments)
        return _down(x, name, arguments)(up(x) * gate(x))

    return call


def dense_ungated(hidden_dim, name, activation="silu", **arguments):
    """As a `PrunableFFN`, of two Dense layers: a function of a tensor."""
    arguments = {"use_bias": False, **arguments}

    def call(x):
        up = keras.layers.Dense(hidden_dim, activation, name=f"{name}_up", **arguments)
        return _down(x, name, arguments)(up(x))

    return call


def _down(x, name, arguments):
    return keras.layers.Dense(x.shape[-1], name=f"{name}_down", **arguments)
