"""Networks whose channels are pruned in a short `fit`, and how they are compared."""

import keras
import numpy as np

import keras_idea as ki
from tests.support.conv_nets import drawn
from tests.support.helpers import to_numpy

RANDOM = ("Dropout", "Noise")


def compiled(make, scaled=False, as_made=False):
    keras.utils.set_random_seed(0)
    model = make() if as_made else drawn(make())
    optimizer = keras.optimizers.SGD(1e-3, momentum=0.9)
    if scaled:  # Keras's first scale overflows, and such steps score nothing
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0)
    model.compile(optimizer, "mse")
    return model


def _sizes(tensor):
    return [8 if size is None else size for size in tensor.shape[1:]]


def _specs(x):
    specs = [keras.KerasTensor(each.shape) for each in x]
    return specs if len(specs) > 1 else specs[0]


def data(model, count=16):
    """Random inputs, and targets of the shapes of what it makes of them."""
    rng = np.random.default_rng(1)

    def drawn_like(shape):
        return rng.normal(size=(count, *shape)).astype("float32")

    x = [drawn_like(_sizes(tensor)) for tensor in model.inputs]
    made = keras.tree.flatten(model.compute_output_spec(_specs(x)))
    y = [drawn_like(tensor.shape[1:]) for tensor in made]
    return (x if len(x) > 1 else x[0]), (y if len(y) > 1 else y[0])


def pruned(model, compact="off", **arguments):
    x, y = data(model)
    prune = ki.IdeaPruneCallback(
        targets={"channels": 0.5},
        begin_step=1,
        prune_steps=2,
        compact=compact,
        **arguments,
    )
    model.fit(x, y, 4, 1, 0, [prune], shuffle=False)
    return model


def widths(model):
    return [group.width for group in ki.find_groups(model, ["channels"])]


def assert_same(some, others, tolerance=1e-6):
    some, others = (to_numpy(part).astype("float64") for part in (some, others))
    size = np.abs(others).max()
    assert size > 0
    np.testing.assert_allclose(some / size, others / size, rtol=0, atol=tolerance)


def is_random(model):
    names = [type(layer).__name__ for layer in model.layers]
    return any(word in name for name in names for word in RANDOM)
