"""The callback that trains several widths of a model in one `fit`."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_idea.elastic.draw import Sample, check_sample
from keras_idea.elastic.fit_checks import check_length, check_peers, check_restoring
from keras_idea.elastic.run import Run, run_of
from keras_idea.elastic.sliced import sliced
from keras_idea.elastic.widths import FULL, Width, check_widths
from keras_idea.errors import ArgumentError
from keras_idea.finding.find import find_groups
from keras_idea.keras_private.layers import student_of
from keras_idea.keras_private.optimizer_variables import as_int, innermost
from keras_idea.step.pruner import end_pruning
from keras_idea.step.rate_log import StepCount
from keras_idea.surgery.checks import check_compiled
from keras_idea.validation import check_choice, check_int, check_number


class ElasticCallback(keras.callbacks.Callback):
    """Trains a model and narrower ones inside it, of its first neurons, in one `fit`.

    Use it where one run is to give models of several sizes. Up to `begin_step` the
    model trains at full width, and the importance of its neurons is measured. Then the
    neurons of each FFN are sorted by importance, once: the model computes what it did.
    From then on each optimizer step is at a width that is drawn. A step at a width is
    the step of `ki.sliced(model, width)`, and costs what that one costs.

    With neurons 1 to F of an FFN, in the order of importance, width f computes

        down[:f] activation(up[:, :f] x)

    and the gradients of all other neurons are zeros. The optimizer does what it does to
    these: their moments decay and still move them, and weight decay shrinks them.

    Afterwards `callback.sliced("small")` is a stock model. The model itself stays as
    wide as it was. Attention heads keep their number.

    The logs of an epoch gain `small_loss`, the mean loss of the training steps at that
    width (`full_loss`, of those at full width), and with validation data
    `val_small_loss` and its metrics: the data is evaluated again at each width. `loss`
    is the mean of all steps; `val_loss` is that of full width. Put callbacks that
    watch a width (EarlyStopping, with mode="min") or log it (TensorBoard) after this
    one.

    Args:
        widths: dict. Name -> width: an int (neurons of each FFN), a float in (0, 1)
            (the share of them), or a dict of either by the names that `ki.find_ffns`
            shows. "full" is the name of the whole model.
        begin_step: int >= 0. The last optimizer step at full width alone, as
            `optimizer.iterations` counts. 0 sorts nothing, which is right for a model
            that begins at random; for a trained one, give it steps to measure in.
            Defaults to 0.
        sample: str or dict. Which width a step computes. "turn": full and each width in
            turn, from the narrowest on. A dict: with a probability for each name, which
            sum to 1: {"small": 0.3, "full": 0.7}. "sandwich": full, the narrowest and
            one between, in each step, whose loss is their mean; at equal FLOPs it was
            worse in our study (docs/costs_and_benefits.md). Defaults to "turn".
        teacher: "self" or None. "self": narrower widths also follow the logits of the
            full one; from nothing and at equal FLOPs, worse in our study. For another
            model as teacher, fit `ki.distiller(teacher, model)` and leave it None.
            Defaults to None.
        teacher_weight: float in [0, 1]. Share of the teacher in the loss of a narrower
            width: (1 - w) * loss + w * KL(full || narrow), the mean over the outputs.
            Defaults to 0.5.
        seed: int >= 0. A step's width is a function of this and of the optimizer's step
            alone, in each process, and in a run that is resumed. Defaults to 0.

    Raises:
        ValueError: If an argument is outside its range. When `fit` begins: if the model
            has no FFN whose neurons are found, is not compiled, or is not built; if two
            widths are equal or one is wider than an FFN; if another callback prunes in
            the same `fit`, or may restore weights from before the sorting; if an FFN
            is frozen, holds pruned neurons, or has constraints or BatchNormalization
            on its neurons; if a teacher "self" has no logits of classes, or
            "sandwich" or "self" meet rematerialization.

    Example:
    >>> elastic = ki.ElasticCallback({"small": 0.25, "medium": 0.5}, begin_step=1)
    >>> history = model.fit(data, epochs=2, callbacks=[elastic], verbose=0).history
    >>> sorted(history)
    ['full_loss', 'loss', 'medium_loss', 'small_loss']
    >>> [ffn.hidden_dim for ffn in ki.find_ffns(elastic.sliced("small"))]
    [2, 2]

    Notes:
        Where the optimizer looks at a whole matrix, a step at a width differs from the
        sliced model's step, as its moments are of all neurons: after four steps at full
        width, a step at a quarter by 0.86 of its size with Muon, by 0.14 with Lamb.
        With `steps_per_execution`, one width is drawn for the steps that are executed
        at once; under gradient accumulation, for all batches of an optimizer step. Each
        width is compiled once, for training and for validation. The losses of a
        "sandwich" by width are those of validation alone. An epoch without a step at a
        width has no loss of it.
        BatchNormalization outside of FFNs keeps one mean of all widths.

        Loops of your own: call `model.train_on_batch` between the hooks, as another
        step would know no width. On a mesh of jax, and in replicas of TensorFlow's
        MirroredStrategy, all devices draw the same width.

    Source: MatFormer (arXiv 2310.07707); for "sandwich", Universally Slimmable
        Networks (arXiv 1903.05134).
    """

    # Nothing that runs at the end of a batch touches the model: Keras need not wait.
    async_safe = True

    def __init__(
        self,
        widths: Mapping[str, Width],
        begin_step: int = 0,
        sample: Sample = "turn",
        teacher: str | None = None,
        teacher_weight: float = 0.5,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.widths = check_widths(widths)
        self.begin_step = check_int("begin_step", begin_step, minimum=0)
        self.sample = check_sample(sample, list(self.widths))
        if isinstance(teacher, keras.Model):
            raise ArgumentError(
                "`teacher` must be 'self' or None. Received: a model. Fit "
                "`ki.distiller(teacher, model)` with this callback, and leave "
                "teacher=None."
            )
        self.teacher = check_choice("teacher", teacher, ("self", None))
        self.teacher_weight = check_number("teacher_weight", teacher_weight, 0.0, 1.0)
        self.seed = check_int("seed", seed, minimum=0)
        self._run: Any = None  # the `Run` of the `fit` under way
        self._last: Run | None = None  # that of the `fit` before

    @property
    def drawn(self) -> tuple[str, ...]:
        """Tuple of str, the names of the widths that the last step computed."""
        return (FULL,) if self._last is None else self._last.drawn

    def set_model(self, model: keras.Model) -> None:
        """Sets the model. Raises an error if another callback prunes it."""
        super().set_model(model)
        check_peers(self)

    def sliced(self, name: str) -> keras.Model:
        """Returns a stock model of one of the widths, as `ki.sliced`.

        Args:
            name: str. A name of `widths`.

        Returns:
            A new model; where the model is a Distiller, of its student.

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

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Checks everything that can fail, and begins to measure."""
        model = self.model
        check_compiled(model)
        left = run_of(model)  # by a fit that an exception has ended
        if left is not None:
            left.end(model)
        end_pruning(model, find_groups(model))
        check_restoring(self)
        check_length(self)
        given = self.begin_step, self.sample, self.teacher, self.teacher_weight
        self._run = self._last = Run(model, self.widths, *given, self.seed, self._last)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Reads the optimizer's step once: for each batch it would cost time."""
        model = self.model
        self._count, self._stride = StepCount(model), model.steps_per_execution
        self._run.losses.begin_epoch()

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Draws the width of the step; sorts the neurons first, where that is due."""
        step = self._count.after(batch)
        if not self._run.begun and step >= self.begin_step:
            model = self.model  # on jax this syncs the variables
            # float16 skips steps, so the count of batches may run ahead.
            if as_int(innermost(model.optimizer).iterations) >= self.begin_step:
                self._run.begin(model)
        if self._run.begun:
            self._run.prepare(step, max(1, self._stride // self._count.per_step))

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds the losses of each width to the logs."""
        if logs is None or not self._run.begun:
            return
        logs.update(self._run.losses.logs())
        if "val_loss" in logs:
            logs.update(self._run.validate(self.model))

    def on_train_end(self, logs: dict | None = None) -> None:
        """Leaves the model as it was, with its neurons sorted."""
        if self._run is not None:
            self._run.end(self.model)
            self._run = None
