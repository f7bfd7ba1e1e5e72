"""One call that pairs a student with its teacher."""

import itertools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_idea.distillation.losses import BlockOutputs, FloatLogits
from keras_idea.errors import ArgumentError
from keras_idea.keras_private.flat_model import flat_model
from keras_idea.keras_private.models import Functional, compile_arguments
from keras_idea.keras_private.weighted_distiller import WeightedDistiller
from keras_idea.shapes.blocks import find_blocks
from keras_idea.validation import check_int, check_number, plural

_WITHOUT = "Pass features=False to compare the logits alone."


def distiller(
    teacher: keras.Model,
    student: keras.Model,
    *,
    temperature: float = 1.0,
    weight: float = 0.5,
    features: bool | Sequence[int] = True,
    top_k: int | None = None,
) -> WeightedDistiller:
    """Pairs a student with a teacher: Keras's `Distiller`, ready to fit.

    The loss of a step is

        (1 - weight) * labels + weight * (logits + blocks)

    where `labels` is the loss that the student was compiled with; `logits` is
    temperature**2 times the Kullback-Leibler divergence of the student's tokens from
    the teacher's; and `blocks` is the sum, over the blocks, of the mean squared error
    of a block's output divided by the mean square of the teacher's. Regularizers of the
    student are added. Sample weights count in each of the losses.

    The student's layers are the pair's: what is trained, pruned and narrowed by a
    callback in `pair.fit` is `student` itself, so save it afterwards as before. The
    teacher is frozen, and never pruned.

    Args:
        teacher: keras.Model. A model of the same inputs and of the same logits, as the
            wide model before it was pruned.
        student: keras.Model. A functional model, `Sequential` or KerasHub task. With
            `features=False` any model. If it is compiled, the pair has its optimizer,
            loss, weighted metrics and `jit_compile`, and is ready; else compile the
            pair.
        temperature: float > 0. Of the softmax of both logits. Defaults to 1.0.
        weight: float in [0, 1]. Of the teacher. With 1.0, labels have no effect; then
            an untouched copy has no gradient, so "sensitivity" cannot rank its neurons.
            Defaults to 0.5.
        features: bool or list of int. Whether outputs of blocks are compared. True
            compares the blocks of the same number; if the student has fewer, because
            `ki.shrink` has just taken some out, those whose values are equal. A list
            gives, for each block of the student, the number of the teacher's (from 0,
            ascending). Hidden sizes must be equal. Defaults to True.
        top_k: int >= 1 or None. Of how many of the teacher's likeliest tokens the
            logits are compared; less memory than all, and another loss. Defaults to
            None (all).

    Returns:
        `keras.distillation.Distiller`, with `teacher`, `student` (of a task, its layers
        as one graph) and `source` (the student that was given).

    Raises:
        ValueError: For wrong arguments, or if the models share variables; with
            `features`, if a model is subclassed, calls its nested model on other
            tensors than its own inputs, or if the blocks differ in number or size.

    Example:
    ```python
    >>> import keras
    >>> import keras_idea as ki
    >>> def make():
    ...     x = inputs = keras.Input((8,))
    ...     for _ in range(2):
    ...         ffn = [keras.layers.Dense(16, "relu"), keras.layers.Dense(8)]
    ...         x = keras.layers.Add()([x, keras.Sequential(ffn)(x)])
    ...     return keras.Model(inputs, keras.layers.Dense(4)(x))
    >>> wide, student = make(), make()
    >>> student.set_weights(wide.get_weights())
    >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    >>> student.compile("adamw", loss)
    >>> pair = ki.distiller(wide, student)
    >>> x, y = keras.random.normal((64, 8)), keras.ops.arange(64) % 4
    >>> prune = ki.IdeaPruneCallback(0.5, begin_step=0, prune_steps=4)
    >>> history = pair.fit(x, y, batch_size=8, callbacks=[prune], verbose=0)
    >>> student.count_params() < wide.count_params()
    True

    ```

    Source: Hinton, Vinyals and Dean, 2015, "Distilling the Knowledge in a Neural
    Network"; block outputs as in Jiao et al., 2020, "TinyBERT".
    """
    _check_models(teacher, student)
    _check_temperature(temperature)
    check_number("weight", weight, 0.0, 1.0)
    if top_k is not None:
        check_int("top_k", top_k, 1)
    losses: list[Any] = [FloatLogits(float(temperature), top_k)]
    weights = [1.0]
    theirs, ours = teacher, student
    if features is not False:
        blocks = _paired_blocks(teacher, student, features)
        theirs, ours = flat_model(teacher), flat_model(student)
        losses += [BlockOutputs(wide.name, narrow.name) for wide, narrow in blocks]
        weights += [1.0] * len(blocks)
    pair = WeightedDistiller(
        theirs,
        ours,
        losses,
        weights,
        student_loss_weight=1.0 - weight,
    )
    pair.hold(student)
    if student.compiled and student.optimizer is not None:
        _compile_alike(pair, student)
    return pair


def _check_models(teacher: Any, student: Any) -> None:
    for name, model in (("teacher", teacher), ("student", student)):
        if not isinstance(model, keras.Model):
            raise ArgumentError(
                f"`{name}` must be a Keras model. Received: {type(model).__name__}."
            )
        if not model.built:
            raise ArgumentError(
                f"`{name}` must be built: call it once, on a batch. Received: a model "
                f"without variables, '{model.name}'."
            )
        if len(keras.tree.flatten(getattr(model, "outputs", None) or [0])) > 1:
            raise ArgumentError(
                f"`{name}` must have one output, the logits. Received: '{model.name}' "
                f"with {len(model.outputs)} outputs."
            )
    ours = {id(variable) for variable in student.variables}
    shared = [v.path for v in teacher.variables if id(v) in ours]
    if shared:
        raise ArgumentError(
            "`teacher` and `student` must not share variables: the teacher is frozen. "
            f"Received: {plural(len(shared), 'shared variable')}, {shared[0]} first. "
            "Load the model twice, or copy it with keras.models.clone_model and "
            "set_weights."
        )


def _check_temperature(temperature: Any) -> None:
    if check_number("temperature", temperature) == 0.0:
        raise ArgumentError(
            f"`temperature` must be greater than 0. Received: {temperature!r}."
        )


def _paired_blocks(
    teacher: keras.Model, student: keras.Model, features: Any
) -> list[tuple[keras.layers.Layer, keras.layers.Layer]]:
    for name, model in (("teacher", teacher), ("student", student)):
        if not isinstance(model, (Functional, keras.Sequential)):
            raise ArgumentError(
                f"`features` reads outputs of blocks in a graph, and `{name}`, "
                f"{type(model).__name__} '{model.name}', is subclassed. {_WITHOUT}"
            )
    wide, narrow = (find_blocks(m, _WITHOUT).layers for m in (teacher, student))
    numbers = _numbers(wide, narrow, features)
    pairs = [(wide[i], block) for i, block in zip(numbers, narrow, strict=True)]
    for theirs, ours in pairs:
        sizes = [_size_of(block) for block in (theirs, ours)]
        if sizes[0] != sizes[1]:
            raise ArgumentError(
                f"`features` compares blocks of one size. Received: {theirs.name} of "
                f"{sizes[0]} features, {ours.name} of {sizes[1]}. {_WITHOUT}"
            )
    return pairs


def _size_of(block: keras.layers.Layer) -> int:
    if not isinstance(block.output, keras.KerasTensor):
        raise ArgumentError(
            "`features` compares blocks that return one tensor. Received: "
            f"{block.name}, of {plural(len(block.output), 'tensor')}. {_WITHOUT}"
        )
    return block.output.shape[-1]


def _numbers(wide: list[Any], narrow: list[Any], features: Any) -> list[int]:
    """Which block of the teacher each block of the student follows."""
    counts = (
        f"{plural(len(narrow), 'block')} of the student, {len(wide)} of the teacher"
    )
    if features is not True:
        if not isinstance(features, Sequence | np.ndarray):
            raise ArgumentError(
                "`features` must be True, False, or a list: a number of the teacher's "
                f"blocks for each block of the student. Received: {features!r}."
            )
        numbers = [
            check_int("features", number, 0, len(wide) - 1) for number in features
        ]
        if len(numbers) != len(narrow) or numbers != sorted(set(numbers)):
            raise ArgumentError(
                "`features` must have an ascending number for each block of the "
                f"student. Received: {numbers}, with {counts}."
            )
        return numbers
    if len(narrow) == len(wide):
        return list(range(len(wide)))
    numbers, places = [], iter(range(len(wide)))
    for block in narrow:
        number = next((i for i in places if _same_values(wide[i], block)), None)
        if number is None:
            raise ArgumentError(
                f"Which blocks follow which is unknown: {counts}, and {block.name} has "
                "the values of none that is left. Pass features=[0, 2, ...], the "
                f"numbers of the teacher's blocks that they follow. {_WITHOUT}"
            )
        numbers.append(number)
    return numbers


def _same_values(wide: keras.layers.Layer, narrow: keras.layers.Layer) -> bool:
    """Whether the kernels of one shape in both blocks are equal, and there are any."""
    pairs = [
        (keras.ops.convert_to_numpy(a), keras.ops.convert_to_numpy(b))
        for a, b in itertools.zip_longest(wide.variables, narrow.variables)
        if a is not None and b is not None and a.shape == b.shape and len(a.shape) > 1
    ]
    return bool(pairs) and all(np.array_equal(a, b) for a, b in pairs)


def _compile_alike(pair: WeightedDistiller, student: keras.Model) -> None:
    given = compile_arguments(student)
    options = ("run_eagerly", "steps_per_execution", "jit_compile", "auto_scale_loss")
    order = [id(variable) for variable in student.trainable_variables]
    if [id(variable) for variable in pair.trainable_variables] != order:
        raise ArgumentError(
            f"The optimizer of '{student.name}' knows its variables in another order "
            "than the pair. Compile the pair, not the student, with a new optimizer."
        )
    pair.compile(
        optimizer=student.optimizer,
        loss=given["loss"],
        weighted_metrics=given["weighted_metrics"],
        **{name: given[name] for name in options if name in given},
    )
