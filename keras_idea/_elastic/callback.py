"""The callback that trains several widths of a model in one `fit`."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_idea._callbacks import IdeaPruneCallback
from keras_idea._elastic.reading import sliced
from keras_idea._elastic.run import Run, run_of
from keras_idea._elastic.widths import FULL, Sample, Width, check_sample, check_widths
from keras_idea._finding.find import find_groups
from keras_idea._keras.callbacks import forget_best, peers
from keras_idea._keras.layers import student_of
from keras_idea._keras.optimizer_variables import StepCount, as_int, innermost
from keras_idea._step.pruner import end_pruning
from keras_idea._surgery.checks import check_compiled
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
        self._run: Any = None  # the `Run` of the `fit` under way
        self._last: Run | None = None  # that of the `fit` before

    @property
    def drawn(self) -> str:
        """The name of the width of the last step."""
        return FULL if self._last is None else self._last.drawn

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
        """Checks the model, and begins to measure."""
        model = self.model
        check_compiled(model)
        left = run_of(model)  # by a `fit` that an exception has ended
        if left is not None:
            left.end(model)
        end_pruning(model, find_groups(model))
        given = self.widths, self.begin_step, self.sample, self.seed
        self._run = self._last = Run(model, *given, self._last)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Reads the optimizer's step, once: each batch would wait for the device."""
        model = self.model
        self._count, self._stride = StepCount(model), model.steps_per_execution

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Draws the width of the step; sorts the neurons first, when it is time."""
        step = self._count.after(batch)
        if not self._run.begun and step >= self.begin_step:
            model = self.model  # on jax this syncs the variables
            # float16 skips steps, so the count of batches may run ahead.
            if as_int(innermost(model.optimizer).iterations) >= self.begin_step:
                if self._run.begin(model):
                    forget_best(self)  # of weights in the old order
        if self._run.begun:
            self._run.prepare(step, max(1, self._stride // self._count.per_step))

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds the validation of each width to the logs."""
        if logs is not None and self._run.begun and "val_loss" in logs:
            logs.update(self._run.validate(self.model))

    def on_train_end(self, logs: dict | None = None) -> None:
        """Restores the model's train function; its neurons stay sorted."""
        if self._run is not None:
            self._run.end(self.model)
            self._run = None
