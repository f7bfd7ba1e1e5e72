"""The steps of one `fit` at several widths: a train function for each."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea._elastic.reading import FirstNeurons
from keras_idea._elastic.widths import FULL, Sample, Width, draw, neurons_at
from keras_idea._finding.find import FFN, find_ffns
from keras_idea._groups.kinds import NEURONS
from keras_idea._keras.callbacks import evaluate_again, warn_user, why_not_again
from keras_idea._keras.layers import (
    all_layers,
    has_lost_parameters,
    is_built,
    retrack_parameters,
)
from keras_idea._keras.models import (
    compilation,
    instead,
    make_train_function,
    owner_of_train_function,
)
from keras_idea._keras.optimizer_variables import as_int, innermost
from keras_idea._signals import held_back
from keras_idea._step.algorithm import Track
from keras_idea._step.pruner import NeuronPruner
from keras_idea._step.replicas import scope_of
from keras_idea._surgery.checks import check_not_pruning, check_trainable
from keras_idea._surgery.optimizer_state import (
    built_optimizer,
    check_carriable,
    with_slots,
)
from keras_idea._surgery.trial import try_groups
from keras_idea.errors import ArgumentError
from keras_idea.hub.rebuild import check_plain


class Run:
    """Trains a compiled model at the widths that are drawn, from a step on.

    Until then it measures the importance of the neurons; then it sorts them. The
    functions of `before`, the `Run` of the last `fit`, are used again.
    """

    def __init__(
        self,
        model: keras.Model,
        widths: Mapping[str, Width],
        begin_step: int,
        sample: Sample,
        seed: int,
        before: "Run | None" = None,
    ) -> None:
        self._model = model
        #: counts: dict, the neurons of each FFN at each width, "full" among them.
        self._ffns, self.counts = _check_model(model, widths)
        self._reading = FirstNeurons(model, self._ffns)
        names = [name for name in self.counts if name != FULL]
        self._names = sorted(names, key=lambda name: sum(self.counts[name]))
        self._sample, self._seed = sample, seed
        # By the name of a width: its train and test functions; which were checked.
        self._functions: dict[str, Callable] = {}
        self._tests: dict[str, Callable] = {}
        self._checked: set[str] = set()
        self._compiled = id(model), compilation(model), self.counts
        if before is not None and before._compiled == self._compiled:
            self._functions, self._tests = before._functions, before._tests
            self._checked = before._checked
        self._plain: Callable | None = None
        self._next: str | None = None
        #: str, the width of the step that was prepared last.
        self.drawn = FULL
        self._warned = False
        self._scorer: NeuronPruner | None = None
        start = as_int(innermost(model.optimizer).iterations)
        self._sorts = 0 < begin_step and start <= begin_step
        if start < begin_step:
            self._scorer = NeuronPruner([Track(ffn) for ffn in self._ffns])
            self._scorer.attach(model)
        elif not self._sorts and begin_step and not any(map(_is_sorted, self._ffns)):
            warn_user(
                f"The optimizer has taken {start} steps, more than "
                f"begin_step={begin_step}, so the neurons are not sorted. Set a later "
                "begin_step, or 0 if they need not be sorted."
            )

    @property
    def begun(self) -> bool:
        """Whether steps are at the widths that are drawn."""
        return self._plain is not None

    def begin(self, model: keras.Model) -> bool:
        """Replaces the model's train function; returns whether it sorted the neurons.

        On JAX with a mesh, a step takes the variables' values. So the functions of all
        widths are made now, between two steps.
        """
        self._end_scoring(model)
        if self._sorts:
            sort_neurons(model, self._ffns)
        if model.train_function is None:  # in a loop by `train_on_batch`
            make_train_function(model)
        self._plain = model.train_function
        for name in self._names:
            if name not in self._functions:
                make_train_function(model)
                self._functions[name] = model.train_function
        model.train_function = self.step
        return self._sorts

    def end(self, model: keras.Model) -> None:
        """Restores the model's train function."""
        self._end_scoring(model)
        if self._plain is not None:
            if run_of(model) is self:
                model.train_function = self._plain
            self._plain = None

    def prepare(self, step: int, stride: int) -> None:
        """Draws the width of the train function's next call."""
        if self._next is not None:
            raise ArgumentError(
                "The model's train function was not called since the last "
                "`on_train_batch_begin`: a custom step ignores the drawn width. Train "
                "by `fit` or `model.train_on_batch`."
            )
        self._next = draw(self._sample, self._names, self._seed, step, stride)
        self.drawn = self._next

    def step(self, *args: Any) -> Any:
        """Takes a step at the drawn width, in place of the model's train function.

        If no callback has prepared it, in a `fit` after an exception, it restores the
        model's function.
        """
        name, self._next = self._next, None
        plain: Any = self._plain
        if name is None:
            self.end(self._model)
        if name is None or name == FULL:
            return plain(*args)
        with self._reading.at(self.counts[name]):  # it may be traced here
            returned = self._functions[name](*args)
        if name not in self._checked:
            self._reading.check_read()
            self._checked.add(name)
        return returned

    def validate(self, model: keras.Model) -> dict[str, float]:
        """Returns the logs of each narrower width on the held-out data of `fit`."""
        why_not = why_not_again(model)
        if why_not is not None:
            if not self._warned:
                warn_user(
                    "The validation data cannot be used again for each width: "
                    f"{why_not}. Give arrays or a dataset."
                )
            self._warned = True
            return {}
        logs: dict[str, float] = {}
        for name in self._names:
            with instead(model, "test_function", self._tests.get(name)):
                with self._reading.at(self.counts[name]):
                    if name not in self._tests:
                        self._tests[name] = _test_function(model)
                    found = evaluate_again(model)
            logs |= {f"val_{name}_{key}": value for key, value in found.items()}
        return logs

    def _end_scoring(self, model: keras.Model) -> None:
        if self._scorer is not None:
            self._scorer.detach(model)
            self._scorer = None


def _test_function(model: keras.Model) -> Callable:
    """Makes a test function that shares no trace: jax caches by equal methods."""
    with instead(model, "test_step", functools.partial(model.test_step)):
        model.make_test_function(force=True)
    made: Callable = model.test_function
    return made


def run_of(model: keras.Model) -> Run | None:
    """Returns the `Run` that has a model's train function, or None."""
    owner = owner_of_train_function(model)
    return owner if isinstance(owner, Run) else None


@held_back()
def sort_neurons(model: keras.Model, ffns: Sequence[FFN]) -> None:
    """Sorts the neurons of each FFN by importance, in place, the greatest first.

    The optimizer's slots, scores and masks are sorted too. The model computes what it
    did, up to the order of sums. Neurons of equal importance keep their order.
    """
    importances = [ops.convert_to_numpy(ffn.importance()) for ffn in ffns]
    for ffn, importance in zip(ffns, importances, strict=True):
        if not importance.any() or not np.isfinite(importance).all():
            raise ArgumentError(
                f"The neurons of {ffn.name} have no scores by which they could be "
                "sorted. Restore a `keras_idea.Checkpoint`, or set a later begin_step."
            )
    optimizer = built_optimizer(model)
    for ffn, importance in zip(ffns, importances, strict=True):
        order = np.argsort(-importance, axis=-1, kind="stable")
        for cut in [*ffn.held_cuts(), *ffn.state.cuts()]:
            for each in with_slots(optimizer, cut):
                each.variable.assign(each.take(order))


def _is_sorted(ffn: FFN) -> bool:
    order = ffn.original_indices
    return bool((order != np.arange(order.shape[-1])).any())


def _check_model(
    model: keras.Model, widths: Mapping[str, Width]
) -> tuple[list[FFN], dict[str, list[int]]]:
    """Returns the FFNs that some width narrows, and the neurons of each at each width.

    Raises if a step at a width would silently not be the step of the narrow model.
    """
    check_plain(model)
    if is_built(model) and not model.optimizer.built:
        with scope_of(model):
            model.optimizer.build(model.trainable_variables)
    ffns = find_ffns(model)
    if not ffns:
        check_trainable(model, ffns, None, [NEURONS])  # says which
    counts = {FULL: [ffn.hidden_dim for ffn in ffns]}
    for name, width in widths.items():
        counts[name] = neurons_at(f"widths[{name!r}]", width, ffns)
    narrowed = [
        place
        for place, ffn in enumerate(ffns)
        if any(n[place] < ffn.hidden_dim for n in counts.values())
    ]
    ffns = [ffns[place] for place in narrowed]
    counts = {name: [n[place] for place in narrowed] for name, n in counts.items()}
    for ffn in ffns:
        why_not = _why_not(ffn)
        if why_not:
            raise ArgumentError(
                f"ElasticCallback does not support {ffn.name}: {why_not}. Change it, "
                'or name the other FFNs in `widths`, such as {"small": {"NAME": 0.5}}.'
            )
    check_trainable(model, ffns, None, [NEURONS])
    check_not_pruning(model, "ElasticCallback")
    check_carriable(model.optimizer)
    try_groups(model, ffns)
    if has_lost_parameters(model):
        retrack_parameters(all_layers(model))
    return ffns, counts


def _why_not(ffn: FFN) -> str:
    """Says why an FFN cannot be trained at several widths; "" if it can."""
    if not all(kernel.trainable for kernel in ffn.kernels):
        return "it is frozen, so steps at a width do not train its neurons"
    if ffn.width < ffn.hidden_dim:
        return "some of its neurons are pruned; train ki.compact(model)"
    for layer in ffn.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            return f"'{layer.path}' would have statistics of several widths"
    if any(cut.variable.constraint is not None for cut in ffn.held_cuts()):
        return "its constraint sees the neurons of all widths at once"
    return ""
