"""A model's train step on jax: its state, its jitted function and how it is called.

Keras jits `train_step` inside `make_train_function`, and hands the result to
`_make_function`, which makes of it what `fit` calls. Seen with Keras 3.15.1.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras


def state_variables(model: keras.Model) -> tuple[list[keras.Variable], ...]:
    """The variables whose values a train step is called with, in its four lists."""
    return (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )


def owner_of_train_function(model: keras.Model) -> Any:
    """The object whose method is in place of a model's train function, or None."""
    return getattr(getattr(model, "train_function", None), "__self__", None)


def has_own_train_step(model: keras.Model) -> bool:
    """Whether a model's train step is neither Keras's nor KerasHub's.

    Theirs apply the optimizer once for each batch.
    """
    step = vars(model).get("train_step", type(model).train_step)
    module = getattr(_original(step), "__module__", "")
    return module.partition(".")[0] not in ("keras", "keras_hub")


def _original(step: Any) -> Any:
    while isinstance(step, functools.partial):
        step = step.args[0] if step.args else step.func
    return step


class TrainStep:
    """A jitted train step that may have been compiled before it is called."""

    def __init__(self, jitted: Any) -> None:
        self._jitted = jitted
        self._compiled: Any = None
        self._find: Callable[[Any], Any] | None = None
        #: The batch that it was first called with, as shapes, or None.
        self.data: Any = None

    def look_up(self, find: Callable[[Any], Any]) -> None:
        """Asks, when it is first called, for a program that is compiled already.

        `find` gives for a `jax.stages.Lowered` a `Compiled` of the same, or None.
        """
        self._find = find

    def __call__(self, state: Any, data: Any) -> Any:
        """As the train step: the logs and the new state."""
        if self.data is None:
            self._begin(state, data)
        # The last batch of an epoch may have fewer rows than it was compiled for.
        if self._compiled is not None and _shapes(data) == self.data:
            return self._compiled(state, data)
        return self._jitted(state, data)

    def _begin(self, state: Any, data: Any) -> None:
        self.data = _shapes(data)
        if self._find is not None:
            self._compiled = self._find(self._jitted.lower(state, data))
            self._find = None


def _shapes(data: Any) -> Any:
    """A batch as shapes; its sharding only where it lies on a run's mesh.

    Of one device's array it would be written into the program, which `fit`'s does not
    say: before Keras 3.15 a batch is such an array.
    """
    import jax

    spread = keras.distribution.distribution() is not None
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(
            x.shape, x.dtype, sharding=getattr(x, "sharding", None) if spread else None
        ),
        data,
    )


def with_train_step(make: Callable[[Any], Callable], jitted: Any) -> Callable:
    """What `_make_function` makes, of a `TrainStep` that `train_step_of` finds."""
    if not hasattr(jitted, "lower"):  # the model is run eagerly
        return make(jitted)
    step = TrainStep(jitted)
    function: Any = make(step)
    function.step = step
    return function


def train_step_of(model: keras.Model) -> TrainStep | None:
    """The `TrainStep` of a model whose train function we made, or None."""
    return getattr(getattr(model, "train_function", None), "step", None)


def lower(model: keras.Model, data: Any) -> Any:
    """A model's train step as a `jax.stages.Lowered`, from its variables' shapes now.

    The model is compiled, its optimizer built, its state in sync; `data` is the batch,
    as `TrainStep.data`.
    """
    import jax

    spread = keras.distribution.distribution() is not None

    def spec(variable: keras.Variable) -> Any:
        sharding = variable.value.sharding if spread else None
        shape = tuple(variable.shape)
        return jax.ShapeDtypeStruct(shape, variable.dtype, sharding=sharding)

    state = tuple([spec(v) for v in group] for group in state_variables(model))
    shardings = (None, jax.tree.map(lambda s: s.sharding, state)) if spread else None
    # A new function: jax takes equal ones for one, and would find an older trace.
    step = functools.partial(model.train_step)
    jitted = jax.jit(step, donate_argnums=0, out_shardings=shardings)
    return jitted.lower(state, data)
