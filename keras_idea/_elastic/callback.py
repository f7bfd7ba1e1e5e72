"""The callback that trains several widths of a model in one `fit`."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea._callbacks import IdeaPruneCallback
from keras_idea._callbacks.run import begin_with
from keras_idea._elastic.reading import FirstNeurons, sliced
from keras_idea._elastic.widths import (
    FULL,
    Sample,
    Width,
    check_sample,
    check_widths,
    draw,
    neurons_at,
)
from keras_idea._graph.group import FFN
from keras_idea._groups.kinds import NEURONS
from keras_idea._keras.callbacks import (
    evaluate_again,
    forget_best,
    peers,
    warn_user,
    why_not_again,
)
from keras_idea._keras.layers import student_of
from keras_idea._keras.models import (
    compilation,
    instead,
    make_train_function,
    owner_of_train_function,
)
from keras_idea._keras.optimizer_variables import StepCount, as_int, innermost
from keras_idea._signals import held_back
from keras_idea._step.algorithm import Track
from keras_idea._step.pruner import NeuronPruner
from keras_idea._surgery.checks import check_trainable
from keras_idea._surgery.optimizer_state import (
    built_optimizer,
    check_carriable,
    with_slots,
)
from keras_idea._surgery.trial import try_groups
from keras_idea._validation import check_choice, check_int
from keras_idea.errors import ArgumentError


class ElasticCallback(keras.callbacks.Callback):
    """Trains a model, and narrower ones of its first neurons, in one `fit`.

    Use it if one run should give models of several sizes. Up to `begin_step` the model
    trains at full width, and the importance of its neurons is measured. Then the
    neurons of each FFN are sorted by importance, once. From then on, each optimizer
    step is at a width that is drawn. It is the step of `ki.sliced(model, width)`, and
    costs as much. With neurons 1 to F in the order of importance, width f computes

        down[:f] activation(up[:, :f] x)

    and the gradients of the other neurons are zeros: the optimizer's moments and weight
    decay still change them.

    Afterwards `callback.sliced("small")` is a stock model. The model itself stays wide.
    With validation data, the logs of an epoch have `val_small_loss` and its metrics:
    the data is evaluated again at each width. Put callbacks that read them after this
    one. `loss` is the mean of all steps; `val_loss` is that of full width.

    Args:
        widths: dict. Name -> width: an int (neurons of each FFN), a float in (0, 1)
            (the share of them), or a dict of either by the names that `ki.find_ffns`
            shows. "full" is the name of the whole model.
        begin_step: int >= 0. The last optimizer step at full width only, as
            `optimizer.iterations` counts. 0 sorts nothing, which is right for a model
            that is not trained. Defaults to 0.
        sample: "turn" or dict. "turn" takes one width after another. A dict gives the
            probability of each name, "full" among them. Defaults to "turn".
        seed: int >= 0. The width of a step is a function of the seed and the step, in
            each process and in a resumed run. Defaults to 0.

    Raises:
        ValueError: If an argument is outside its range. When `fit` begins: if the model
            has no FFN whose neurons are found, is not compiled, or is not built; if a
            width is wider than an FFN; if an FFN is frozen, holds pruned neurons, or
            has constraints or BatchNormalization on its neurons.

    Example:
    >>> elastic = ki.ElasticCallback({"small": 0.25, "medium": 0.5}, begin_step=1)
    >>> _ = model.fit(data, epochs=2, callbacks=[elastic], verbose=0)
    >>> [ffn.hidden_dim for ffn in ki.find_ffns(elastic.sliced("small"))]
    [2, 2]

    Notes:
        If the optimizer looks at a whole matrix (Muon, Lamb), a step at a width differs
        from the sliced model's step.
        With `steps_per_execution` or gradient accumulation, one width is drawn for all
        batches of an optimizer step or execution. In your own loop, call
        `model.train_on_batch` between the hooks.

    Source: MatFormer (arXiv 2310.07707).
    """

    # What runs at the end of a batch touches nothing of the model.
    async_safe = True

    def __init__(
        self,
        widths: Mapping[str, Width],
        begin_step: int = 0,
        sample: Sample = "turn",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.widths = check_widths(widths)
        self.begin_step = check_int("begin_step", begin_step, minimum=0)
        self.sample = check_sample(sample, list(self.widths))
        self.seed = check_int("seed", seed, minimum=0)
        #: str, the name of the width of the last step.
        self.drawn = FULL
        # Train and test functions by the name of a width, and the names that were
        # checked: of a model as it is compiled, in each `fit`.
        self._compiled: tuple = ()
        self._functions: dict[str, Callable] = {}
        self._tests: dict[str, Callable] = {}
        self._checked: set[str] = set()
        # The model's own train function while steps are at the widths that are drawn;
        # the width of the next one; what measures importance until then.
        self._plain: Callable | None = None
        self._next: str | None = None
        self._scorer: NeuronPruner | None = None

    def sliced(self, name: str) -> keras.Model:
        """Returns a stock model of one of the widths, as `ki.sliced`.

        Args:
            name: str. A name of `widths`.

        Returns:
            A new model; of a Distiller's student, if the model is a Distiller.

        Raises:
            ValueError: If there is no such width, or `fit` was not called yet.
        """
        check_choice("name", name, list(self.widths))
        if self.model is None:
            raise ArgumentError(
                "The callback has no model yet. Call `fit` with it first, or "
                "`ki.sliced(model, width)`."
            )
        return sliced(student_of(self.model), self.widths[name])

    def set_model(self, model: keras.Model) -> None:
        """Sets the model; raises if another callback changes its width too."""
        super().set_model(model)
        kinds = (IdeaPruneCallback, ElasticCallback)
        if any(isinstance(peer, kinds) and peer is not self for peer in peers(self)):
            raise ArgumentError(
                "One `fit` takes one ElasticCallback or IdeaPruneCallback. Prune "
                "first, then train the widths of the narrow model in a second `fit`."
            )

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Checks the model, and begins to measure the importance of its neurons."""
        model = self.model
        left = owner_of_train_function(model)
        if isinstance(left, ElasticCallback):  # of a `fit` that an exception has ended
            left._end(model)
        self._plain = self._next = self._scorer = None
        #: counts: dict, the neurons of each FFN at each width, "full" among them.
        self._ffns, self._counts = _check_model(model, self.widths)
        self._reading = FirstNeurons(model, self._ffns)
        names = [name for name in self._counts if name != FULL]
        self._names = sorted(names, key=lambda name: sum(self._counts[name]))
        compiled = id(model), compilation(model), self._counts
        if compiled != self._compiled:
            self._compiled, self._functions, self._tests = compiled, {}, {}
            self._checked = set()
        start = as_int(innermost(model.optimizer).iterations)
        self._sorts = 0 < self.begin_step and start <= self.begin_step
        if start < self.begin_step:
            self._scorer = NeuronPruner([Track(ffn) for ffn in self._ffns])
            self._scorer.attach(model)
        elif start > self.begin_step > 0 and not any(map(_is_sorted, self._ffns)):
            warn_user(
                f"The optimizer has taken {start} steps, more than "
                f"begin_step={self.begin_step}, so the neurons are not sorted. Set a "
                "later begin_step, or 0 if they need not be sorted."
            )

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Reads the optimizer's step, once: each batch would wait for the device."""
        model = self.model
        self._count, self._stride = StepCount(model), model.steps_per_execution

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Draws the width of the step; sorts the neurons first, when it is time."""
        step = self._count.after(batch)
        if self._plain is None and step >= self.begin_step:
            model = self.model  # on jax this syncs the variables
            # float16 skips steps, so the count of batches may run ahead.
            if as_int(innermost(model.optimizer).iterations) >= self.begin_step:
                self._begin(model)
        if self._plain is None:
            return
        if self._next is not None:
            raise ArgumentError(
                "The model's train function was not called since the last "
                "`on_train_batch_begin`: a custom step ignores the drawn width. Train "
                "by `fit` or `model.train_on_batch`."
            )
        stride = max(1, self._stride // self._count.per_step)
        self.drawn = draw(self.sample, self._names, self.seed, step, stride)
        self._next = self.drawn

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds the validation of each width to the logs."""
        if logs is None or self._plain is None or "val_loss" not in logs:
            return
        model = self.model
        why_not = why_not_again(model)
        if why_not is not None:
            warn_user(
                f"The validation data cannot be used again for each width: {why_not}. "
                "Give arrays or a dataset."
            )
            return
        for name in self._names:
            with instead(model, "test_function", self._tests.get(name)):
                with self._reading.at(self._counts[name]):
                    if name not in self._tests:
                        self._tests[name] = _test_function(model)
                    found = evaluate_again(model)
            logs |= {f"val_{name}_{key}": value for key, value in found.items()}

    def on_train_end(self, logs: dict | None = None) -> None:
        """Restores the model's train function; its neurons stay sorted."""
        self._end(self.model)

    def _end(self, model: keras.Model) -> None:
        self._end_scoring(model)
        if self._plain is not None and owner_of_train_function(model) is self:
            model.train_function = self._plain
        self._plain = None

    def _end_scoring(self, model: keras.Model) -> None:
        if self._scorer is not None:
            self._scorer.detach(model)
            self._scorer = None

    def _begin(self, model: keras.Model) -> None:
        """Sorts the neurons, and replaces the model's train function.

        On JAX with a mesh, a step takes the variables' values. So the functions of all
        widths are made now, between two steps.
        """
        self._end_scoring(model)
        if self._sorts:
            _sort_neurons(model, self._ffns)
            forget_best(self)  # of weights in the old order
        if model.train_function is None:  # in a loop by `train_on_batch`
            make_train_function(model)
        self._plain = model.train_function
        for name in self._names:
            if name not in self._functions:
                make_train_function(model)
                self._functions[name] = model.train_function
        model.train_function = self._step

    def _step(self, *args: Any) -> Any:
        """Takes a step at the drawn width, in place of the model's train function.

        If no hook has drawn one, in a `fit` after an exception, it restores the model's
        function.
        """
        name, self._next = self._next, None
        plain: Any = self._plain
        if name is None:
            self._end(self._model)  # `model` would sync it, on jax
        if name is None or name == FULL:
            return plain(*args)
        with self._reading.at(self._counts[name]):  # it may be traced here
            returned = self._functions[name](*args)
        if name not in self._checked:
            self._reading.check_read()
            self._checked.add(name)
        return returned


def _test_function(model: keras.Model) -> Callable:
    """Makes a test function that shares no trace: jax caches by equal methods."""
    with instead(model, "test_step", functools.partial(model.test_step)):
        model.make_test_function(force=True)
    made: Callable = model.test_function
    return made


@held_back()
def _sort_neurons(model: keras.Model, ffns: Sequence[FFN]) -> None:
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
    ffns = [group for group in begin_with(model) if group.kind == NEURONS]
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
    check_carriable(model.optimizer)
    try_groups(model, ffns)
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
