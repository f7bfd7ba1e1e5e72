"""What the pruning callback refuses when `fit` begins, or after the first step."""

import keras

from keras_idea.surgery.find import find_ffns


def innermost(optimizer):
    """The optimizer itself, without the loss scaling around it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def prunable_ffns(model):
    """The FFNs of a compiled model.

    Args:
        model: the Keras model that is fitted.

    Returns:
        Non-empty list of `FFN` handles.

    Raises:
        ValueError: if the model has no optimizer or no FFN to prune.
    """
    if getattr(model, "optimizer", None) is None:
        raise ValueError(
            f"Model '{model.name}' is not compiled with an optimizer. Call "
            "`model.compile(optimizer=..., loss=...)` before `fit`."
        )
    ffns = find_ffns(model)
    if not ffns:
        raise ValueError(
            f"Model '{model.name}' has no prunable FFN. Use "
            "`keras_idea.PrunableGatedFFN` for its feed-forward layers (and build "
            "the model first, if it makes them in `build`), or convert a KerasHub "
            "model with `keras_idea.make_prunable(model)`."
        )
    optimizer = innermost(model.optimizer)
    trained = {id(v) for v in getattr(optimizer, "_trainable_variables", [])}
    states = [v for ffn in ffns for v in ffn.state.overwritten if v.trainable]
    if optimizer.built and not trained.issuperset(map(id, states)):
        raise ValueError(
            f"The optimizer of model '{model.name}' was built before its FFNs became "
            "prunable. Compile the model again, or call `make_prunable` on the model "
            "that is compiled."
        )
    paths = [ffn.layer.path for ffn in ffns if ffn.layer.built]
    same = {path for path in paths if paths.count(path) > 1}
    if same and keras.backend.backend() == "torch":
        # Keras on torch finds parameters by path: the gradients of one of the two
        # would never be set back.
        raise ValueError(
            f"Several layers have the path {', '.join(map(repr, sorted(same)))}. Give "
            "each FFN a name of its own: on torch Keras tells parameters apart by path."
        )
    return ffns


def check_ffn(ffn, target):
    """Refuses an FFN that cannot be pruned to `target` neurons.

    Args:
        ffn: `FFN` handle.
        target: int, the neurons to keep.

    Raises:
        ValueError: if it is narrower already, compacted already, or frozen.
    """
    if target > ffn.width:
        raise ValueError(
            "`target_dim` must be at most the width of each FFN. Received: a target "
            f"that keeps {target} neurons, but {ffn.name} has {ffn.width} alive."
        )
    if not ffn.state.tracking and target < ffn.hidden_dim:
        raise ValueError(
            f"{ffn.name} was compacted to {ffn.hidden_dim} neurons and tracks no "
            f"scores any more; it cannot be pruned to {target}. To prune in two "
            "stages use compact='off' in the first."
        )
    if not all(variable.trainable for variable in ffn.state.overwritten):
        raise ValueError(
            f"{ffn.name} is frozen (trainable=False), so it has no gradients to "
            "rank its neurons by. Unfreeze it and compile the model again."
        )


def check_length(model, params, end_step, reason, first_epoch=0):
    """Refuses pruning that would not end within the run, if its length is known.

    Args:
        model: the Keras model that is fitted.
        params: dict, the callback's `params`: epochs, and batches an epoch.
        end_step: int, the optimizer step at which pruning is done.
        reason: str, why then, for the message.
        first_epoch: int, the epoch that `fit` begins with.

    Raises:
        ValueError: if the run is too short.
    """
    batches, epochs = params.get("steps"), params.get("epochs")
    if batches is None or epochs is None:
        return
    epochs -= first_epoch
    optimizer = innermost(model.optimizer)
    every = optimizer.gradient_accumulation_steps or 1
    last = (int(optimizer._iterations) + batches * epochs) // every
    if end_step > last:
        raise ValueError(
            f"Pruning must end within the run: {reason}{end_step}, but the optimizer "
            f"will have taken {last} steps when this `fit` ends. Train "
            "for longer, or lower begin_step or prune_steps."
        )


def check_counts(model, start):
    """After the first steps: each FFN must have counted exactly the steps.

    Args:
        model: the Keras model that is fitted, its variables in sync.
        start: int, `optimizer.iterations` when `fit` began.

    Returns:
        bool, whether there was a step to count.

    Raises:
        RuntimeError: if an FFN counted another number.
    """
    steps = int(model.optimizer.iterations)
    for ffn in find_ffns(model):
        if ffn.state.tracking and ffn.state.ticks != steps:
            raise RuntimeError(
                f"{ffn.name} counted {ffn.state.ticks - start} backward passes in "
                f"{steps - start} optimizer steps, so its scores are wrong. Each "
                "prunable FFN must be called exactly once in a forward pass and lie "
                "on the way to the loss; a custom train step must apply the "
                "gradients of all trainable variables through the Keras optimizer."
            )
    return steps > start
