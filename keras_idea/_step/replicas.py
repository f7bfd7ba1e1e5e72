"""One decision for all replicas of a TensorFlow strategy.

Each replica of a `MirroredStrategy` calls the optimizer's `apply` with the gradient of
its own share of the batch. The neurons are scored by their sum, which is what the
optimizer takes its step with, and masks are made once, for all copies. On a mesh of
jax, and under torch's DistributedDataParallel, the gradient that reaches the optimizer
is that of the whole batch already: nothing is summed there.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras

from keras_idea._keras.layers import all_layers
from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError

# The strategies that are known: others may give `apply` something else.
_KNOWN = ("MirroredStrategy", "OneDeviceStrategy", "_DefaultDistributionStrategy")


def replicas_of(model: keras.Model) -> int:
    """The replicas that a model is trained in; refuses ways that were not tried."""
    _refuse_fsdp(model)
    strategy = _strategy(model)
    if strategy is None:
        return 1
    name = type(strategy).__name__
    if name not in _KNOWN:
        raise ArgumentError(
            f"{name} is not one that pruning was tried under, and what cannot be "
            "scored exactly is not supported. Use tf.distribute.MirroredStrategy on "
            "one host, or jax with keras.distribution on several."
        )
    return strategy.num_replicas_in_sync


def scope_of(model: keras.Model) -> AbstractContextManager:
    """The scope in which a model's variables are made, one copy a replica."""
    strategy = _strategy(model)
    return nullcontext() if strategy is None else strategy.scope()


def sums_over_replicas(gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    """Gradients as the step is made with them: of all replicas together.

    Keras has scaled each replica's loss by their number.
    """
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


def _refuse_fsdp(model: keras.Model) -> None:
    if keras.backend.backend() != "torch":
        return
    # It makes each module one of a class of its own.
    kinds = {cls for layer in all_layers(model) for cls in type(layer).__mro__}
    if "FSDPModule" in {cls.__name__ for cls in kinds}:
        raise ArgumentError(
            f"The parameters of model '{model.name}' are sharded by torch (FSDP), "
            "where pruning was not tried: a neuron's rows lie on several devices. Use "
            "DistributedDataParallel, or jax with keras.distribution."
        )


def _strategy(model: keras.Model) -> Any:
    if keras.backend.backend() != "tensorflow":
        return None
    return getattr(model, "distribute_strategy", None)


def _several_replicas() -> Any:
    """TensorFlow's context of one of several replicas that step, or None."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context if context and context.num_replicas_in_sync > 1 else None
