"""Is a narrow model the slice of a masked one? Found in the numbers alone."""

import itertools

import numpy as np

from tests.support.helpers import to_numpy


def assert_sliced(masked, narrow, within):
    """Every variable of the narrow model, and every slot, is the masked one's slice.

    Which units stay is read where a masked variable is not zero, and not asked of the
    package. What has no zeros there (a moment, a moving mean) is sliced as the variable
    it belongs to, or else by any choice of as many units. Scores are not compared: they
    are not measured any more once the model is narrow.
    """
    kept = Kept(masked, narrow)
    for wide, slim in pairs_of(masked, narrow):
        if not wide.path.endswith("/scores"):
            kept.compare(wide, slim, within)
    for wide, slim in zip(
        masked.optimizer.variables, narrow.optimizer.variables, strict=True
    ):
        kept.compare(wide, slim, within, of_optimizer=True)


def pairs_of(masked, narrow):
    """The variables of both; a mask and scores only if the narrow one has them."""
    wide, slim = (
        [v for v in model.variables if "seed" not in v.path]
        for model in (masked, narrow)
    )
    if len(wide) != len(slim):
        wide = [variable for variable in wide if "/neuron_state/" not in variable.path]
    return zip(wide, slim, strict=True)


class Kept:
    """Which units of each axis stay: `(wide, narrow) -> [(path, places)]`."""

    def __init__(self, masked, narrow):
        self.found = {}
        for variable in masked.variables:
            if variable.path.endswith("/neuron_state/mask"):
                places = np.flatnonzero(to_numpy(variable))
                layer = variable.path.removesuffix("/neuron_state/mask")
                sizes = variable.shape[0], len(places)
                self.found.setdefault(sizes, []).append((f"{layer}/mask", places))
        for wide, slim in pairs_of(masked, narrow):
            value = to_numpy(wide)
            for axis in differing(wide, slim):
                places = alive(value, axis, slim.shape[axis])
                if places is not None:
                    sizes = wide.shape[axis], slim.shape[axis]
                    self.found.setdefault(sizes, []).append((wide.path, places))

    def of(self, variable, sizes, value, axis, of_optimizer):
        """The choices of units that may be an axis's."""
        own = None if of_optimizer else alive(value, axis, sizes[1])
        if own is not None:
            return [own]
        found = self.found[sizes]
        if of_optimizer:  # its name has that of its variable
            near = [(p, at) for p, at in found if p.replace("/", "_") in variable.path]
            longest = max((len(p) for p, _ in near), default=0)
            near = [(p, at) for p, at in near if len(p) == longest]
        else:
            layer = variable.path.rpartition("/")[0]
            near = [(p, at) for p, at in found if p.rpartition("/")[0] == layer]
        return [at for _, at in near or found]

    def compare(self, wide, slim, within, of_optimizer=False):
        """Asserts that one variable is a slice of the other."""
        value, expected = to_numpy(wide), to_numpy(slim)
        axes = differing(wide, slim)
        choices = [
            self.of(wide, (wide.shape[a], slim.shape[a]), value, a, of_optimizer)
            for a in axes
        ]
        tried = []
        for places in itertools.product(*choices):
            part = value
            for axis, at in zip(axes, places, strict=True):
                part = taken(part, axis, at)
            tried.append(part)
            if near(part, expected, within):
                return
        np.testing.assert_allclose(
            expected, tried[0], rtol=0, atol=within * size(tried[0]), err_msg=wide.path
        )


def differing(wide, slim):
    """The axes along which two variables have different lengths."""
    pairs = zip(wide.shape, slim.shape, strict=True)
    return [axis for axis, (a, b) in enumerate(pairs) if a != b]


def alive(value, axis, count):
    """Places that are not zero; for experts a row of places each; None: not as many."""
    rows = np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1).any(1)
    if rows.sum() == count:
        return np.flatnonzero(rows)
    if axis > 0 and value.ndim > 1:
        each = [alive(one, axis - 1, count) for one in value]
        if all(one is not None and one.ndim == 1 for one in each):
            return np.stack(each)
    return None


def taken(value, axis, places):
    """The slice of an array; for experts of each its own."""
    if places.ndim == 1:
        return np.take(value, places, axis)
    pairs = zip(value, places, strict=True)
    return np.stack([np.take(one, at, axis - 1) for one, at in pairs])


def size(value):
    """The largest of an array, at least 1e-3."""
    return max(1e-3, float(np.abs(value.astype("float64")).max(initial=0)))


def near(found, expected, within):
    """Whether two arrays are equal, as a share of the largest entry."""
    if found.shape != expected.shape:
        return False
    apart = np.abs(found.astype("float64") - expected).max(initial=0)
    return bool(apart <= within * size(found))


def assert_near(found, expected, within):
    """Two trees of arrays are equal, each as a share of its largest entry."""
    for one, other in zip(flat(found), flat(expected), strict=True):
        limit = within * size(other)
        np.testing.assert_allclose(one, other, rtol=0, atol=limit)


def flat(outputs):
    """The arrays of a model's outputs."""
    import keras

    return [to_numpy(part) for part in keras.tree.flatten(outputs)]
