"""What an optimizer knows of its variables: counters, order, keys, exclusions.

The public interface shows `variables` in one row, `iterations` in whole steps and
`learning_rate` as a number; the rest is asked and changed here. "Part": an optimizer
without those that it wraps, see `parts`. Seen with Keras 3.15.1.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras.src.utils.tracking import DotNotTrackScope

from keras_idea._keras.variables import without_values


# `LossScaleOptimizer.inner_optimizer` and `MultiOptimizer.optimizers` are public; it is
# here because its neighbours need it.
def innermost(optimizer: keras.Optimizer) -> keras.Optimizer:
    """The optimizer itself, without the loss scaling around it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def parts(optimizer: keras.Optimizer) -> list[keras.Optimizer]:
    """The optimizer and those it wraps, outermost first."""
    found = [optimizer]
    inner = getattr(optimizer, "inner_optimizer", None)
    wrapped = getattr(optimizer, "optimizers", [])
    for part in [inner] if inner is not None else wrapped:
        found += parts(part)
    return found


def apply_count(optimizer: keras.Optimizer) -> keras.Variable:
    """The variable that counts the calls of `apply`.

    `iterations` counts steps: under gradient accumulation it is that divided by the
    calls of a step, rounded down, and no variable.
    """
    return optimizer._iterations


def as_int(count: Any) -> int:
    """A counter's value, which waits for the device."""
    return int(_as_number(count))


def _as_number(value: Any) -> Any:
    # Not the variable itself, of which TensorFlow may hold a copy on each replica.
    if isinstance(value, keras.Variable):
        value = value.value
    return keras.ops.convert_to_numpy(value)


class StepCount:
    """The optimizer step at every batch of an epoch, read once: reading it takes long.

    A guess: float16 skips steps, and a custom train step may take more or fewer.
    """

    def __init__(self, model: keras.Model) -> None:
        optimizer = innermost(model.optimizer)
        self._calls = as_int(apply_count(optimizer))
        self.per_step = optimizer.gradient_accumulation_steps or 1

    def after(self, batches: int) -> int:
        """Returns the optimizer steps taken after so many batches of the epoch."""
        return (self._calls + batches) // self.per_step


def rate_source(optimizer: keras.Optimizer) -> keras.Variable | Callable[..., Any]:
    """The learning rate as it was given: a variable, a schedule or a function.

    `learning_rate` is its present value.
    """
    return optimizer._learning_rate


def trained_variables(part: keras.Optimizer) -> list[keras.Variable]:
    """The variables that an optimizer trains, in its order; empty if not built.

    `variables` are the optimizer's own.
    """
    return part._trainable_variables


def variable_key(part: keras.Optimizer, variable: keras.Variable) -> Any:
    """What an optimizer knows a variable by.

    On tensorflow it is of the backend's variable, which a change of shape renews.
    """
    return part._var_key(variable)


def accumulated_gradient(
    optimizer: keras.Optimizer, variable: keras.Variable
) -> keras.Variable:
    """The sum of a variable's gradients in an accumulated step under way."""
    index = optimizer._get_variable_index(variable)
    return optimizer._accumulated_gradients[index]


def untrack_variable(optimizer: keras.Optimizer, variable: keras.Variable) -> None:
    """Takes a variable of its own away from an optimizer; there is only `add`."""
    optimizer._untrack_variable(variable)
    config = optimizer._tracker.config
    belongs, held = config["variables"]
    _renew(optimizer, "_variables", list(held))
    config["variables"] = belongs, optimizer._variables


def build_without_values(
    optimizer: keras.Optimizer, variables: Sequence[keras.Variable]
) -> None:
    """Builds an optimizer of models that were made in `without_values`.

    Slots of matrices have no values either. Those of vectors have: Adafactor makes
    numbers for them in a way that Keras refuses in such a scope. On tensorflow an
    optimizer knows a variable by the backend's, which these lack.
    """
    for part in parts(optimizer):
        part._var_key = id
    optimizer.build(_MatricesWithoutValues(variables))


class _MatricesWithoutValues(list):
    """Variables of which an optimizer makes slots while it goes through them."""

    def __iter__(self) -> Iterator[keras.Variable]:
        for variable in super().__iter__():
            with contextlib.ExitStack() as scope:
                if len(variable.shape) > 1:
                    scope.enter_context(without_values())
                yield variable


def rename_key(part: keras.Optimizer, old_key: Any, new_key: Any) -> None:
    """Has an optimizer know a variable by its new key, see `variable_key`."""
    if old_key == new_key:
        return
    # The last one is a MultiOptimizer's: which of its optimizers trains the variable.
    for name in ("_trainable_variables_indices", "_var_to_optimizer_idx"):
        keyed = vars(part).get(name, {})
        if old_key in keyed:
            named = {new_key if key == old_key else key: keyed[key] for key in keyed}
            _renew(part, name, named)
    excluded = _excluded(part)
    if old_key in excluded:
        excluded.remove(old_key)
        excluded.add(new_key)
    if vars(part).get("_exclude_from_weight_decay_cache"):
        _renew(part, "_exclude_from_weight_decay_cache", {})


def copy_decay_exclusions(
    source: keras.Optimizer,
    target: keras.Optimizer,
    pairs: Sequence[tuple[keras.Variable, keras.Variable]],
) -> None:
    """Copies what `exclude_from_weight_decay` was told, which is in no config.

    `pairs` are variables of the source's model and of the target's, which is not built.
    """
    if hasattr(source, "_exclude_from_weight_decay"):
        told = _excluded(source)
        excluded = [new for old, new in pairs if source._var_key(old) in told]
        pattern = source._exclude_from_weight_decay_pattern
        target.exclude_from_weight_decay(excluded, pattern and [pattern.pattern])


def _excluded(part: keras.Optimizer) -> set:
    return vars(part).get("_exclude_from_weight_decay", set())


def _renew(part: keras.Optimizer, name: str, value: list | dict) -> None:
    """Gives an optimizer a new list or dict in place of one that is changed.

    One that something was taken out of can never be saved again on tensorflow, by
    `model.export` or `tf.train.Checkpoint`.
    """
    # Keras would track what is in it, the model's variables too.
    with DotNotTrackScope():
        setattr(part, name, value)
