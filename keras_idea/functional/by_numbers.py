"""Tests numerically whether a function acts on each number, or neuron, alone.

Keras's symbolic tensors cannot pass through a backend's own functions, and a list of
names is never complete. So a function is called on arrays: its result for one number
must not depend on the others, on its place, or on chance.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_idea._validation import what_was_raised
from keras_idea.errors import ArgumentError

_Some: TypeAlias = Sequence[np.ndarray]
_Arrays: TypeAlias = Callable[[_Some], _Some]
#: Steps that measure slopes at the numbers of a pruned neuron, and the largest slope:
#: an infinite gradient times 0 is NaN.
_STEPS, _STEEP = (1e-36, 1e-30), 1e4
#: The most places along each axis except that of the neurons, to save memory.
_PLACES = 8


#: Keras's activations of each number alone.
_ACTIVATIONS = {
    getattr(keras.activations, name, None)
    for name in """celu elu exponential gelu hard_shrink hard_sigmoid hard_silu
    hard_tanh leaky_relu linear log_sigmoid mish relu relu6 selu sigmoid silu
    soft_shrink softplus softsign sparse_plus sparse_sigmoid squareplus tanh
    tanh_shrink""".split()
}


def why_not_each_number(function: Callable, shape: Sequence[int]) -> str | None:
    """Says why a function does not act on each number alone; None if it does.

    It is called on a few places of arrays of this shape, and changes no state of
    Keras's. Most of Keras's own activations are known.

    Example:
    >>> why_not_each_number(keras.ops.relu, (2, 8))
    >>> why_not_each_number(lambda x: x / keras.ops.max(x), (2, 8))
    'does not act on each number alone'
    """
    if any(function is known for known in _ACTIVATIONS):
        return None
    rng, shape = np.random.default_rng(0), _few(shape)
    array = rng.normal(size=shape) * rng.choice([1e-3, 1.0, 30.0], shape)
    array = np.where(rng.random(shape) < 0.2, 0.0, array).astype("float32")
    order, half = rng.permutation(array.size), rng.random(shape) < 0.5
    others = np.where(half, array, array[::-1, ..., ::-1] + 1).astype("float32")
    few = (slice(0, 1), ..., slice(0, -(-shape[-1] // 2)))
    zeros = np.zeros(shape, "float32")
    try:
        with _on_arrays(function) as call:
            (made,) = call([array])
            if made.shape != array.shape or made.dtype.kind != "f":
                return "returns another shape or dtype than it is given"
            if not _equal(call([array])[0], made):
                return "makes other numbers each time"
            shuffled = call([array.reshape(-1)[order].reshape(shape)])[0]
            of_zeros = call([zeros])[0]
            alone = (
                _equal(shuffled, made.reshape(-1)[order].reshape(shape))
                and _equal(call([others])[0][half], made[half])
                and _equal(call([array[few]])[0], made[few])
                and _equal(of_zeros, np.full_like(zeros, of_zeros.flat[0]))
                and _equal(made[array == 0], of_zeros[array == 0])
            )
    # Whatever a function raises for numbers that it was not made for.
    except Exception as error:
        return f"cannot be called on numbers ({what_was_raised(error)})"
    return None if alone else "does not act on each number alone"


class PrunedNumbers:
    """Follows the numbers of pruned neurons through functions, by the tensors.

    Every second neuron of an array is pruned: 0 at first. The others are random.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, np.ndarray] = {}
        self._rng = np.random.default_rng(0)

    def make(
        self,
        function: Callable[..., Any],
        inputs: Sequence[keras.KerasTensor],
        outputs: Sequence[keras.KerasTensor],
    ) -> str | None:
        """Says why a function does not act on each neuron alone; None if it does.

        For fewer neurons, in another order, it must return the same numbers.
        """
        given = [self._array(tensor) for tensor in inputs]
        why_not, made = self._made(function, given)
        if [array.shape for array in made] != [
            _few(tensor.shape) for tensor in outputs
        ]:
            # Its code holds a number of places, or it was not for their number.
            given = [_on_all(*pair) for pair in zip(given, inputs, strict=True)]
            why_not, made = self._made(function, given)
        if why_not is None:
            for tensor, array in zip(outputs, made, strict=True):
                some = tuple(slice(size) for size in _few(array.shape))
                self._arrays[id(tensor)] = array[some]
        return why_not

    def _made(
        self, function: Callable[..., Any], given: _Some
    ) -> tuple[str | None, _Some]:
        """Returns why a function does not, and what it makes of arrays."""
        try:
            with _on_arrays(function) as call:
                made = call(given)
                return self._why_not(call, given, made), made
        # As above.
        except Exception as error:
            return f"cannot be called on numbers ({what_was_raised(error)})", []

    def _why_not(self, call: _Arrays, given: _Some, made: _Some) -> str | None:
        width = given[0].shape[-1]
        some = self._rng.permutation(width)[: -(-width // 2)]
        orders = [np.arange(width)[::-1], some]
        others = "does not act on each neuron alone"
        if width < 2 or any(array.shape[-1:] != (width,) for array in made):
            return others
        if not all(map(_equal, call(given), made)):
            return "makes other numbers each time"
        for order in orders:
            try:
                few = call([array[..., order] for array in given])
            except Exception as error:
                return f"cannot be called on fewer neurons ({what_was_raised(error)})"
            if not all(map(_equal, few, [array[..., order] for array in made])):
                return others
        if not all(np.isfinite(a[..., _pruned(a)]).all() for a in made):
            return "makes what is not finite of a pruned neuron"
        for sign in (1, -1):
            near, far = (
                list(map(_change, call(_moved(given, sign * step)), made))
                for step in _STEPS
            )
            for a, b in zip(near, far, strict=True):
                # A step, as of `sign`, has the same change; its slope counts as 0.
                if not ((abs(a) <= _STEEP * _STEPS[0]) | (a == b)).all():
                    return "has no finite slope for a pruned neuron"
        return None

    def _array(self, tensor: keras.KerasTensor) -> np.ndarray:
        if id(tensor) not in self._arrays:
            array: np.ndarray = 2 * self._rng.normal(size=_few(tensor.shape))
            array[..., _pruned(array)] = 0
            if tensor.dtype == "bool":
                array = array > 0
            whole = not keras.backend.is_float_dtype(tensor.dtype)
            dtype = tensor.dtype if whole else "float32"
            self._arrays[id(tensor)] = array.astype(dtype)
        return self._arrays[id(tensor)]


class _Watching(keras.StatelessScope):
    """Notes whether a variable was read, which training would change."""

    reads = False

    def get_current_value(self, variable: keras.Variable) -> Any:
        # A seed has integers.
        self.reads |= keras.backend.is_float_dtype(variable.dtype)
        return super().get_current_value(variable)


@contextlib.contextmanager
def _on_arrays(function: Callable) -> Iterator[_Arrays]:
    """Wraps a function for arrays; what it changes lasts for the scope."""
    with _Watching(collect_losses=True) as scope:

        def call(arrays: _Some) -> _Some:
            made = function(*map(keras.ops.convert_to_tensor, arrays))
            if scope.losses:
                raise ArgumentError("it adds a loss")
            if scope.reads:
                raise ArgumentError("it reads a variable")
            tensors = [leaf for leaf in keras.tree.flatten(made) if leaf is not None]
            return list(map(keras.ops.convert_to_numpy, tensors))

        yield call


def _few(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns a shape with all neurons, and a few places."""
    return (*(min(size, _PLACES) for size in shape[:-1]), *shape[-1:])


def _on_all(array: np.ndarray, tensor: keras.KerasTensor) -> np.ndarray:
    """Repeats the numbers at a few places at all places of a tensor."""
    sizes = zip(array.shape, tensor.shape, strict=True)
    return array[np.ix_(*(np.arange(size) % few for few, size in sizes))]


def _pruned(array: np.ndarray) -> np.ndarray:
    return np.arange(array.shape[-1]) % 2 == 0


def _change(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Returns how far the numbers of pruned neurons have moved."""
    new, old = (array[..., _pruned(array)].astype("float64") for array in (new, old))
    return new - old


def _moved(arrays: Sequence[np.ndarray], step: float) -> list[np.ndarray]:
    """Moves the numbers of pruned neurons by a step, if they are floats."""
    return [
        np.where(_pruned(array), array + np.float32(step), array)
        if array.dtype.kind == "f"
        else array
        for array in arrays
    ]


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    # torch's gelu of a number differs by up to 1.2e-6 with the number's place among
    # those that are computed at once.
    return one.shape == other.shape and np.allclose(
        one, other, rtol=1e-4, atol=1e-5, equal_nan=True
    )
