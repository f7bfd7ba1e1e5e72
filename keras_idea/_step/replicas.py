"""One decision for all replicas of a TensorFlow strategy.

Each replica of a `MirroredStrategy` calls the optimizer's `apply` with the gradient of
its own share of the batch. The neurons are scored by their sum, and masks are made
once, for all copies. On a mesh of jax, and under torch's DistributedDataParallel, the
optimizer is given the gradient of the whole batch already.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_idea._keras.layers import all_layers
from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError

# The strategies that are known: others may give `apply` something else.
_KNOWN = ("MirroredStrategy", "OneDeviceStrategy", "_DefaultDistributionStrategy")


def replicas_of(model: keras.Model) -> int:
    """The replicas that a model is trained in; rejects ways that were not tried."""
    strategy = _strategy(model)
    name = "OneDeviceStrategy" if strategy is None else type(strategy).__name__
    if keras.backend.backend() == "torch":
        # FSDP makes each module one of a class of its own: its rows are on all devices.
        kinds = {cls for layer in all_layers(model) for cls in type(layer).__mro__}
        sharded = {cls.__name__ for cls in kinds} & {"FSDPModule"}
        name = sharded.pop() if sharded else name
    if name not in _KNOWN:
        raise ArgumentError(
            f"Pruning was not tried under {name}, and scores may be wrong there. Use "
            "tf.distribute.MirroredStrategy, torch's DistributedDataParallel, or jax "
            "with keras.distribution."
        )
    return 1 if strategy is None else strategy.num_replicas_in_sync


def scope_of(model: keras.Model) -> contextlib.AbstractContextManager:
    """The scope in which a model's variables are made, one copy a replica."""
    strategy = _strategy(model)
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def sums_over_replicas(gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    """Adds up the gradients of all replicas, as Keras has scaled each one's loss."""
    context = _several_replicas()
    if context is None:
        return gradients
    import tensorflow as tf

    return context.all_reduce(tf.distribute.ReduceOp.SUM, list(gradients))


def once_for_all_replicas(act: Callable[..., None], tensors: Sequence[Any]) -> None:
    """Calls `act` with tensors that are the same in each replica.

    It assigns variables: all their copies. A tensor may be a list of them.
    """
    context = _several_replicas()
    if context is None:
        act(*tensors)
        return

    def merged(strategy: Any, *copies: Any) -> None:
        def first(of_each: Any) -> Any:
            return strategy.experimental_local_results(of_each)[0]

        act(*keras.tree.map_structure(first, copies))

    context.merge_call(merged, args=tuple(tensors))


def wait_for_gradients(
    gradients: Sequence[Tensor],
) -> contextlib.AbstractContextManager:
    """A scope in which an optimizer's step waits for gradients.

    Where data of unknown length end, Keras on tensorflow calls the train function once
    more, in which the optimizer would count a step that nothing is trained in.
    """
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    import tensorflow as tf

    return tf.control_dependencies(gradients)


def _strategy(model: keras.Model) -> Any:
    tensorflow = keras.backend.backend() == "tensorflow"
    return getattr(model, "distribute_strategy", None) if tensorflow else None


def _several_replicas() -> Any:
    """TensorFlow's context of one of several replicas that step, or None."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context if context and context.num_replicas_in_sync > 1 else None
