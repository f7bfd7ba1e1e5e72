"""What a method that decides once does in a run: it is checked, and it decides."""

from collections.abc import Sequence

import keras

from keras_idea._finding.find import FFN
from keras_idea._keras.layers import student_of
from keras_idea._signals import held_back
from keras_idea._step.replicas import replicas_of
from keras_idea._surgery.refit import (
    carry_out_and_refit,
    carry_out_decision,
    check_data,
    check_refit,
)
from keras_idea.methods.method import Decision, Method, keep_largest


def check_method(
    method: Method, model: keras.Model, targets: Sequence[tuple[FFN, int]]
) -> None:
    """Refuses, before the first step, groups or data that a method cannot use."""
    groups = [ffn for ffn, _ in targets]
    method.check(groups)
    if method.refit_data is not None:
        check_refit(groups, model.optimizer, replicas_of(model))
        check_data(student_of(model), targets, method.refit_data)


def decide(
    method: Method,
    model: keras.Model,
    targets: Sequence[tuple[FFN, int]],
    learned: Sequence[Decision] | None = None,
) -> None:
    """Masks all units but those that a method keeps; `learned`: what it has learned."""
    student, groups = student_of(model), [ffn for ffn, _ in targets]
    if learned is None:
        learned = keep_largest(targets, method.importance(student, groups, None))
    decisions = list(zip(groups, learned, strict=True))
    if method.refit_data is not None:
        carry_out_and_refit(student, decisions, method.refit_data)
        return
    with held_back():
        for ffn, decision in decisions:
            carry_out_decision(ffn, decision)
