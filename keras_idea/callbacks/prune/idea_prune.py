"""The pruning callback: pruning by schedule, and compaction in mid-run."""

import functools
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from keras_idea import methods
from keras_idea.callbacks.monitor.monitor import Monitor
from keras_idea.callbacks.prune.compile_ahead import should_compile_ahead
from keras_idea.callbacks.prune.log_dir import LogDir, call_after, monitor_for
from keras_idea.callbacks.prune.messages import (
    Narrowed,
    warn_of_jumps,
    warn_of_unfinished,
)
from keras_idea.callbacks.prune.other_optimizers import OtherOptimizers
from keras_idea.callbacks.prune.peers import check_kept_weights, check_peers
from keras_idea.callbacks.prune.run_checks import (
    check_end,
    check_progress,
    check_run,
    has_variables,
)
from keras_idea.callbacks.prune.session import Session
from keras_idea.finding.budget import Budget
from keras_idea.finding.find import FFN, find_groups
from keras_idea.finding.targets import Targets, check_groups, check_targets
from keras_idea.functional.milestones import COMPACT, Compact
from keras_idea.keras_private.callbacks import peers
from keras_idea.keras_private.optimizer_variables import as_int
from keras_idea.keras_private.train_step import has_own_train_step
from keras_idea.signals import held_back
from keras_idea.step.pruner import end_pruning
from keras_idea.step.rate_log import RateLog, StepCount
from keras_idea.step.train_function import at_first_batch, at_first_step
from keras_idea.surgery.checks import Groups, check_compiled
from keras_idea.validation import check_choice, check_int


class IdeaPruneCallback(keras.callbacks.Callback):
    """Prunes the FFNs of a model while `fit` trains it, then narrows it.

    Use it to get a narrow model from one training run. In the wide stage, up to
    `begin_step`, the model trains at full width. In the pruning stage, over the next
    `prune_steps`, the width falls by a cubic to `target_dim`: the compiled step masks
    the least important neurons. With `compact="end"`, the next batch then narrows the
    model. Kernels and optimizer state are sliced in place, and later steps are fast.

    `compact="progressive"` also narrows the model at milestones during pruning. It
    prunes the same neurons, with the same losses, in less time. It is slower if steps
    are cheaper than compilations. Neurons and losses differ if `Dropout` acts on hidden
    activations: it draws other numbers for fewer neurons.

    The logs of every batch and epoch gain `width` (mean number of active neurons per
    FFN), `sparsity` (fraction of the neurons pruned) and `learning_rate`. If heads are
    pruned, they gain `kv_groups` (mean number of active key/value heads per attention
    layer); if channels are, `channels` (mean number per group). Later callbacks see
    these values.

    If a run stops during pruning (EarlyStopping, Ctrl-C), the model stays masked at its
    present width, and `keras_idea.compact(model)` gives that width. After an exception,
    Keras calls no hook: call `on_train_end()` before you train the same model without
    the callback, or pruning continues. Ctrl-C during the narrowing takes effect after
    it.

    In your own train step, the callback scores what the model's optimizer applies. In a
    model without `call` (a VAE, for one) it prunes inside each model that the train
    step calls. For your own loops see docs/guides/your_own_training_loop.py.

    Args:
        target_dim: int >= 1, float in (0, 1) or None. Neurons to keep in each FFN, or
            the fraction of those before any narrowing, as far as this process or a
            `Checkpoint` knows. Defaults to None.
        begin_step: int >= 0. The last step at full width. Steps are optimizer steps, as
            `optimizer.iterations` counts them since the optimizer was made. Required.
        prune_steps: int >= 1. Steps from full width to the target. Required.
        method: str or `Method`. How neurons are chosen: "sensitivity", "magnitude",
            "random", "learned_mask" or an object of `keras_idea.methods`, such as
            `Activation(data)`. "random" and `Activation` prune all at once after
            `begin_step`; "learned_mask" learns for `prune_steps` steps, then prunes.
            Defaults to "sensitivity".
        compact: str. When the model is narrowed. "end": when pruning is done.
            "progressive": at milestones too, at most 8 (on eager torch 64). "off":
            never, so the model stays masked. Defaults to "end".
        update_every: int >= 1. Steps between two masks. Defaults to 1.
        round_to: int >= 1. Rounds the FFN width to a multiple of this number: fractions
            to the nearest, budgets down. An integer `target_dim` must already be a
            multiple. Defaults to 1.
        log_dir: path, `Monitor` or None. Folder for the TensorBoard logs of a `Monitor`
            (extra `tensorboard`), or your own `Monitor`. Defaults to None.
        compile_ahead: bool or None. Whether JAX compiles narrower steps in the
            background. No number changes. Defaults to None: unless CPUs run the steps.
        targets: dict or None. What each kind keeps, in place of `target_dim` (which is
            the target of "neurons"): {"neurons": 0.4, "kv_groups": 0.5}. Units of
            "kv_groups" are key/value heads with their query heads, of "channels" those
            of convolutions; see `keras_idea.find_groups`. Defaults to None.
        groups: function or None. Takes an `FFN` handle, as from `keras_idea.find_ffns`,
            and returns whether to prune it. None prunes all. Defaults to None.
        target_parameters: int >= 1 or None. A budget: the parameters that the narrow
            model may have. The teacher of Keras's `Distiller` does not count; that of
            another class does. Defaults to None.
        target_bytes: int >= 1 or None. A budget: bytes in `target_dtype`. Defaults to
            None.
        target_flops: int >= 1 or None. A budget: operations per token in a forward
            pass, two per weight in a matrix; of a model with convolutions per sample,
            two per weight at each place where it is used (heights and widths that the
            model leaves open count as 128). Defaults to None.
        target_dtype: str. "float32", "bfloat16", "float16" or "int8". Defaults to
            "float32".
        kinds: list of str. The kinds that a budget prunes. If there are several, each
            keeps the same fraction. Defaults to ("neurons",).

    Raises:
        ValueError: If an argument is outside its range. When `fit` begins: if the model
            has no prunable FFN or is not compiled, or if the target is wider than an
            FFN or cannot be met, or is a fraction of a width that is not known. If the
            steps do not fit in the run, the optimizer's state cannot be carried over,
            or the method cannot work there.

    Example:
    >>> prune = IdeaPruneCallback(target_dim=4, begin_step=1, prune_steps=2)
    >>> _ = model.fit(data, callbacks=[prune], verbose=0)
    >>> [ffn.hidden_dim for ffn in ki.find_ffns(model)]
    [4, 4]

    Notes:
        The logs of an epoch are read from the model; those of a batch follow from the
        schedule and the step count. The two are compared when an epoch ends and before
        the model is narrowed; if they differ, the run stops. The logs of a batch omit
        values that need a wait for the device. If the model has its own train step,
        these are all values. If a later callback sets the learning rate per batch, or
        the rate is a plain function, they omit the rate.

        The scores forget old steps. So if nothing is compiled or the wide stage is very
        long, they are not updated from step 10 until shortly before `begin_step`
        (without a `Monitor`).

    Source: IDEA Prune (arXiv 2503.05920), Algorithm 1.
    """

    # Nothing that runs at the end of a batch touches the model: Keras need not wait.
    async_safe = True

    def __init__(
        self,
        target_dim: int | float | None = None,
        begin_step: int | None = None,
        prune_steps: int | None = None,
        method: str | methods.Method = "sensitivity",
        compact: Compact = "end",
        update_every: int = 1,
        round_to: int = 1,
        log_dir: LogDir = None,
        compile_ahead: bool | None = None,
        *,
        targets: Mapping[str, int | float] | None = None,
        groups: Groups = None,
        target_parameters: int | None = None,
        target_bytes: int | None = None,
        target_flops: int | None = None,
        target_dtype: str = "float32",
        kinds: Sequence[str] = ("neurons",),
    ) -> None:
        super().__init__()
        self.round_to = check_int("round_to", round_to, minimum=1)
        limits = target_parameters, target_bytes, target_flops
        self.budget = Budget(*limits, target_dtype)
        #: dict, kind -> what is kept of it; None where a budget says it.
        self.targets: Targets = check_targets(
            target_dim, targets, kinds, self.round_to, self.budget
        )
        self.begin_step = check_int("begin_step", begin_step, minimum=0)
        self.prune_steps = check_int("prune_steps", prune_steps, minimum=1)
        self.method = methods.get(method)
        self.compact = check_choice("compact", compact, COMPACT)
        self.update_every = check_int("update_every", update_every, minimum=1)
        self.groups = check_groups(groups)
        self.compile_ahead, self._monitor = compile_ahead, monitor_for(log_dir)
        if self._monitor is not None:
            call_after(self, self._monitor)
        self._reset()

    def _reset(self) -> None:
        self._session: Any = None  # the `Session` of the `fit` under way
        self._last: Session | None = None  # that of the `fit` before, of this model
        self._model_ref: Callable[[], keras.Model | None] = lambda: None
        self._cancel_deferred_start: Callable[[], None] | None = None

    def __reduce__(self) -> tuple:
        """A copy, or a pickle, begins without a run, and without a model."""
        span = (None, self.begin_step, self.prune_steps)
        how = (self.method, self.compact, self.update_every, self.round_to)
        rest: dict[str, Any] = {"groups": self.groups, **self.budget.arguments()}
        rest |= {"kinds": tuple(self.targets)} if self.budget else {}
        rest |= {} if self.budget else {"targets": self.targets}
        make = functools.partial(type(self), **rest)
        return make, (*span, *how, self._monitor, self.compile_ahead)

    @property
    def end_step(self) -> int:
        """int, the optimizer step at which pruning is done."""
        return self.method.end_step(self.begin_step, self.prune_steps)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Checks everything that can fail, and starts the method."""
        self._session, self._cancel_deferred_start = None, None
        self._outer = id(sys.exc_info()[1])  # `fit` may be called in an `except`
        check_compiled(self.model)
        self._others = OtherOptimizers(self.model)
        if keras.backend.backend() == "tensorflow" and not has_variables(self.model):
            check_peers(self)
            stock = isinstance(self.model, keras.Sequential)
            if stock and not has_own_train_step(self.model):
                begin, at_first = self._begin_at_first_batch, at_first_batch
            else:
                begin = functools.partial(self._begin, self.model, tracing=True)
                at_first = at_first_step
            self._cancel_deferred_start = at_first(self.model, begin)
        else:
            self._begin(self.model)

    def _begin_at_first_batch(self) -> None:
        self._begin(self.model)
        self.on_train_batch_begin(0)  # nothing had begun when the batch did

    def _begin(self, model: keras.Model, tracing: bool = False) -> None:
        if self._model_ref() is not model:
            self._reset()
            self._model_ref = weakref.ref(model)
        found = find_groups(model)
        end_pruning(model, found)  # of a fit that an exception has ended
        targets = check_run(self, model, found)
        start, self._batches = as_int(model.optimizer.iterations), 0
        if not tracing:  # else the epoch has begun, with its callbacks
            self._count_epoch(model)
        span = (self.begin_step, self.prune_steps, self.update_every)
        session = Session(self.method, targets, *span, self._last)
        eager = keras.backend.backend() == "torch" and not model.jit_compile
        session.plan_narrowing(
            self.compact, start, eager, should_compile_ahead(self.compile_ahead)
        )
        self._session, self._last = session, session
        self._narrowed = Narrowed(model, [ffn for ffn, _ in targets])
        if session.has_work:
            check_peers(self)
            warn_of_jumps(session.tracks, self.begin_step, start)
        elif self.compact != "off":
            return
        # A model that stays masked is scored to the end, after a kill too.
        session.begin(model, start, tracing)

    def on_test_begin(self, logs: dict | None = None) -> None:
        """Evaluates the deterministic masks, if masks are being learned."""
        if self._session is not None and self._session.learns:
            self._session.show_masks(self.model, deterministic=True)

    def on_test_end(self, logs: dict | None = None) -> None:
        """Goes back to the masks to train by."""
        if self._session is not None and self._session.learns:
            self._session.show_masks(self.model, deterministic=False)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Reads the optimizer's step once: for each batch it would cost time."""
        self.on_test_end()
        self._count_epoch(self.model)
        self._batches = 0
        if self._session is not None:
            self._stop_on_error(check_kept_weights, self, self._session)

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Does what is due between two batches, such as narrowing the model."""
        if batch == 0:  # all callbacks have begun the epoch, and may have set the rate
            self._count_epoch(self.model)
            if self._session is not None and self._count.known:
                watched = any(isinstance(peer, Monitor) for peer in peers(self))
                watched |= self._monitor is not None
                self._session.pause_until_needed(
                    self.model, self._count.after(0), watched
                )
        elif not self._others.checked:
            self._stop_on_error(self._others.check, self._ffns())
        self._advance(batches=batch)
        self._rate.note(batch)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Adds width, sparsity and learning rate to the logs of the batch."""
        self._batches = batches = batch + 1
        if logs is None or self._session is None or not self._count.known:
            return  # what has not begun is told when the epoch ends
        logs.update(self._session.planned(self._count.after(batches)))
        rate = self._rate.of(batches)
        if rate is not None:
            logs["learning_rate"] = rate

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds the same to the logs; narrows the model if pruning ended here."""
        model = self.model
        batches = self._count.batches(model.optimizer)
        self._stop_on_error(self._others.check, self._ffns())
        self._check(model, begun=True)
        self._advance(batches)
        self._stop_on_error(
            check_end, self._session, as_int(model.optimizer.iterations)
        )
        if logs is not None:
            logs.update(self._session.actual_logs())
            rate = self._rate.at_end(self._batches)
            if rate is not None:  # Keras's callbacks that set it tell it themselves
                logs.setdefault("learning_rate", rate)
        self.on_test_begin()  # for files that later callbacks write

    def on_train_end(self, logs: dict | None = None) -> None:
        """Ends pruning, with the masks of the last step.

        Warns if training ended before pruning did.
        """
        if self._cancel_deferred_start is not None:
            self._cancel_deferred_start()
        if self._session is None:  # it has not begun, or was ended before
            return
        with held_back():
            session, self._session = self._session, None
            done = session.end(self.model)
        if self.compact == "off":
            self._narrowed.tell_masked((self.params or {}).get("verbose", 0))
        if not done and id(sys.exc_info()[1]) == self._outer:  # no error says more
            step = as_int(self.model.optimizer.iterations)
            ffns = [track.ffn for track in session.tracks]
            warn_of_unfinished(ffns, self.begin_step, self.end_step, step)

    def _count_epoch(self, model: keras.Model) -> None:
        self._count = StepCount(model)
        self._rate = RateLog(model, self._count, peers(self), self)

    def _advance(self, batches: int) -> None:
        """Does what must be done after so many batches of this epoch."""
        session = self._session
        if session is None:  # nothing is built before the first step
            return
        step = self._count.after(batches)
        if step < session.due_step:
            if session.ahead.ready(self._model_ref(), step):
                session.ahead.advance(self.model)
            return
        model = self.model  # on jax this syncs the variables
        # float16 skips steps, so the count of batches may run ahead.
        step = as_int(model.optimizer.iterations)
        if step < session.due_step:
            return
        self._check(model, begun=self._batches > 0)
        if session.narrows(step):
            self._stop_on_error(check_kept_weights, self)
        if self._stop_on_error(session.advance, model, step):
            self._narrowed.tell(model, step, (self.params or {}).get("verbose", 0))

    def _ffns(self) -> list[FFN]:
        """What is pruned, or will be once the first step has built the model."""
        if self._session is not None:
            return [track.ffn for track in self._session.tracks]
        found = find_groups(self.model, list(self.targets))
        return [ffn for ffn in found if self.groups is None or self.groups(ffn)]

    def _check(self, model: keras.Model, begun: bool) -> None:
        """Compares what was planned with what has happened."""
        idle = begun and not self._count.batches(model.optimizer)
        self._stop_on_error(check_progress, model, self._session, idle)

    def _stop_on_error(self, act: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return act(*arguments)
        except (ValueError, RuntimeError):
            self.on_train_end()
            raise
