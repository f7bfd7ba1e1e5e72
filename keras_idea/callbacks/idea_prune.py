"""The pruning callback: pruning by schedule, and compaction in mid-run."""

import functools
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from keras_idea import methods
from keras_idea.callbacks.log_dir import LogDir, call_after, monitor_for
from keras_idea.callbacks.messages import Narrowed, warn_of_jumps, warn_of_unfinished
from keras_idea.callbacks.other_callbacks import check_kept_weights, check_peers
from keras_idea.callbacks.run_checks import (
    check_end,
    check_progress,
    check_run,
    is_built,
)
from keras_idea.keras_private.callbacks import peers
from keras_idea.keras_private.optimizer_variables import as_int
from keras_idea.monitor.monitor import Monitor
from keras_idea.pruning.compile_ahead import pays
from keras_idea.pruning.session import Session
from keras_idea.schedules.narrowing_steps import COMPACT, Compact
from keras_idea.step.pruner import end_pruning
from keras_idea.step.rate_log import RateLog
from keras_idea.step.step_count import StepCount
from keras_idea.step.train_function import at_first_step
from keras_idea.surgery.condition import Groups
from keras_idea.targets.budget import Budget
from keras_idea.targets.target_widths import Targets, check_groups, check_targets
from keras_idea.validation import check_choice, check_int


class IdeaPruneCallback(keras.callbacks.Callback):
    """Prunes the FFNs of a model while `fit` trains it, then narrows it.

    Up to `begin_step` the model trains at full width. Over the next `prune_steps` the
    width falls by a cubic to `target_dim`: inside the compiled step, the neurons of
    least importance are masked. Then, with compact="end", the model becomes physically
    narrow at the next batch: kernels and optimizer state are sliced where they are, and
    training goes on with fast steps. With compact="progressive" it follows its masks
    down at milestones already: the same neurons and losses in less time, unless steps
    are cheaper than compilations, or `Dropout` acts on hidden activations: it draws
    other numbers for fewer of them.

    The logs of every batch and epoch gain `width` (mean number of active neurons per
    FFN), `sparsity` (fraction of the neurons pruned) and `learning_rate`, which later
    callbacks see; where heads are pruned, `kv_groups` (mean number of active key/value
    heads per attention layer). Those of an epoch are read from the model. Those of a
    batch follow from the schedule and the count of steps; when an epoch ends and before
    the model is narrowed, schedule and model are compared, and the run stops if they
    differ. What
    cannot be known without waiting for the device is left out of a batch's logs: all
    of them where the model has a train step of its own, the rate where a later callback
    sets it for each batch, or it is a plain function.

    A run stopped in the middle of pruning (EarlyStopping, Ctrl-C) stays masked at its
    present width, and `keras_idea.compact(model)` gives that width. After an exception,
    for which Keras calls no hook, call `on_train_end()` before you train the same model
    on without the callback, or it goes on pruning.

    Old scores are forgotten: where nothing is compiled, or the enlarged stage is very
    long, `scores` rest from step 10 to shortly before `begin_step` (if no `Monitor`).
    In a train step of your own nothing is to be done: whatever the model's optimizer
    applies is what is scored. Loops of your own: docs/guides/custom_training_loop.py.

    Args:
        target_dim: int >= 1, neurons to keep in each FFN; or float in (0, 1), the
            fraction to keep of those that it was built with; or None, with a budget.
        begin_step: int >= 0, the last step at full width. Steps are optimizer steps:
            what `optimizer.iterations` counts, since the optimizer was made.
        prune_steps: int >= 1, steps from full width to the target.
        method: "sensitivity" (default), "random", "activation" or "learned_mask", or
            an object of `keras_idea.methods`, whose docstrings say more. "random" and
            "activation" drop their neurons all at once after `begin_step`;
            "learned_mask" learns for `prune_steps` steps and drops them then.
        compact: "end" (default): narrow the model when pruning is done; "progressive":
            at milestones too, 8 at most, on eager torch 64; "off": leave it masked.
        update_every: int >= 1, steps between two masks. Default 1.
        round_to: int >= 1, of which the target must be (an int) or becomes (else) a
            multiple. Default 1.
        log_dir: None; or the path of a folder in which `Monitor` shows the run in
            TensorBoard (extra `tensorboard`); or a `Monitor`, to say more.
        compile_ahead: bool, whether jax compiles narrower steps in the background,
            which changes no number. None (default): unless steps take the CPUs.
        targets: dict, what stays of each kind, in place of `target_dim`, which is that
            of "neurons": such as {"neurons": 0.4, "kv_groups": 0.5}. A unit of
            "kv_groups" is a key/value head of an attention layer with the query heads
            that read it: see `keras_idea.find_groups`. Default None.
        groups: function of an `FFN` handle, as `keras_idea.find_ffns` gives: whether
            it is to be pruned. None (default): all that are found.
        target_parameters: int, a budget: parameters that the narrow model may have. The
            teacher of Keras's `Distiller` does not count; of another class, it does.
        target_flops: int, operations of a token, forward: two a weight in a matrix.
        target_bytes: int, those of the parameters in `target_dtype`, which is "float32"
            (default), "bfloat16", "float16" or "int8".
        kinds: list of the kinds that a budget prunes; of several each keeps the same
            fraction. Default: "neurons" alone.

    Raises:
        ValueError: for an argument outside its range; when `fit` begins, if the model
            has no prunable FFN or is not compiled, the target is wider than an FFN or
            cannot be met, the steps do not fit in the run, the optimizer's state cannot
            be carried, or the method cannot work there.

    Example:
    >>> prune = IdeaPruneCallback(target_dim=4, begin_step=1, prune_steps=2)
    >>> _ = model.fit(data, callbacks=[prune], verbose=0)
    >>> [ffn.hidden_dim for ffn in ki.find_ffns(model)]
    [4, 4]

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
        self._at_rest()

    def _at_rest(self) -> None:
        self._session: Any = None  # the `Session` of the `fit` under way
        self._last: Session | None = None  # that of the `fit` before, of this model
        self._fitted: Callable[[], keras.Model | None] = lambda: None
        self._call_off: Callable[[], None] | None = None

    def __reduce__(self) -> tuple:
        """A copy, or a pickle, begins at rest: nothing of a model goes with it."""
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
        """Checks everything that can fail, and sets the method to work."""
        self._session, self._call_off = None, None
        self._outer = id(sys.exc_info()[1])  # `fit` may be called in an `except`
        if keras.backend.backend() == "tensorflow" and not is_built(self.model):
            check_peers(self)
            begin_late = functools.partial(self._begin, self.model, tracing=True)
            self._call_off = at_first_step(self.model, begin_late)
        else:
            self._begin(self.model)

    def _begin(self, model: keras.Model, tracing: bool = False) -> None:
        if self._fitted() is not model:
            self._at_rest()
            self._fitted = weakref.ref(model)
        end_pruning(model)  # of a fit that an exception has ended
        targets = check_run(self, model)
        start, self._batches = as_int(model.optimizer.iterations), 0
        if not tracing:  # else the epoch has begun, with its callbacks
            self._count_epoch(model)
        span = (self.begin_step, self.prune_steps, self.update_every)
        session = Session(self.method, targets, *span, self._last)
        eager = keras.backend.backend() == "torch" and not model.jit_compile
        session.plan_narrowing(self.compact, start, eager, pays(self.compile_ahead))
        self._session, self._last = session, session
        self._narrowed = Narrowed(model, [ffn for ffn, _ in targets])
        if session.has_work:
            check_peers(self)
            warn_of_jumps(session.tracks, self.begin_step, start)
        elif self.compact != "off":
            return
        # A model that stays masked is scored to the end, after a kill too.
        session.begin(model, start, tracing)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Notes where the optimizer stands: reading it each batch would cost."""
        self._count_epoch(self.model)
        self._batches = 0
        if self._session is not None:
            self._or_end(check_kept_weights, self, self._session)

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Does what is due between two batches, such as narrowing the model."""
        if batch == 0:  # all callbacks have begun the epoch, and may have set the rate
            self._count_epoch(self.model)
            if self._session is not None and self._count.known:
                watched = any(isinstance(peer, Monitor) for peer in peers(self))
                watched |= self._monitor is not None
                self._session.wait(self.model, self._count.after(0), watched)
        self._advance(batches=batch)
        self._rate.note(batch)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Adds width, sparsity and learning rate to the logs of the batch."""
        self._batches = batches = batch + 1
        if logs is None or not self._count.known:
            return
        logs.update(self._session.progress(self._count.after(batches)))
        rate = self._rate.of(batches)
        if rate is not None:
            logs["learning_rate"] = rate

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """As for a batch, and narrows the model if pruning ended with the epoch."""
        model = self.model
        batches = self._count.batches(model.optimizer)
        self._check(model)
        self._advance(batches)
        self._or_end(check_end, self._session, as_int(model.optimizer.iterations))
        if logs is not None:
            logs.update(self._session.seen())
            rate = self._rate.at_end(self._batches)
            if rate is not None:  # Keras's callbacks that set it tell it themselves
                logs.setdefault("learning_rate", rate)

    def on_train_end(self, logs: dict | None = None) -> None:
        """Leaves the masks as the last step made them, and no schedule behind.

        Warns if training ended before pruning did.
        """
        if self._call_off is not None:
            self._call_off()
        if self._session is None:  # it has not begun, or was ended before
            return
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
            if session.ahead.ready(self._fitted(), step):
                session.ahead.advance(self.model)
            return
        model = self.model  # on jax this syncs the variables
        # float16 skips steps, so the count of batches may run ahead.
        step = as_int(model.optimizer.iterations)
        if step < session.due_step:
            return
        self._check(model)
        if session.narrows(step):
            self._or_end(check_kept_weights, self)
        if self._or_end(session.advance, model, step):
            self._narrowed.tell(model, step, (self.params or {}).get("verbose", 0))

    def _check(self, model: keras.Model) -> None:
        """Compares what was planned with what has happened."""
        idle = self._batches if not self._count.batches(model.optimizer) else 0
        self._or_end(check_progress, model, self._session.pruner, idle)

    def _or_end(self, act: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return act(*arguments)
        except (ValueError, RuntimeError):
            self.on_train_end()
            raise
