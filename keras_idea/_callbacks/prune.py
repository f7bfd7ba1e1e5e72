"""The pruning callback: pruning by schedule, and narrowing in mid-run."""

import math
import sys
from collections.abc import Collection, Mapping
from typing import Any

import keras

from keras_idea import _processes as processes
from keras_idea import methods
from keras_idea._callbacks.run import PruningRun
from keras_idea._finding.budget import Budget
from keras_idea._finding.targets import Targets, check_groups, check_targets
from keras_idea._keras.callbacks import forget_best, warn_user
from keras_idea._keras.optimizer_variables import apply_count, as_int, innermost
from keras_idea._signals import held_back
from keras_idea._surgery.checks import Groups
from keras_idea._validation import check_choice, check_int
from keras_idea.functional.width import COMPACT, Compact


class IdeaPruneCallback(keras.callbacks.Callback):
    """Prunes the FFNs of a model while `fit` trains it, then narrows it.

    Use it to get a narrow model from one training run. In the wide stage, up to
    `begin_step`, the model trains at full width. In the pruning stage, over the next
    `prune_steps`, the width falls by a cubic to `target_dim`: the compiled step masks
    the least important neurons. With `compact="end"`, the next batch then narrows the
    model: kernels and optimizer state are sliced in place, and later steps are fast.

    `compact="progressive"` also narrows the model at milestones during pruning. It
    prunes the same neurons, with the same losses, in less time, unless steps are
    cheaper than compilations. `Dropout` on hidden activations draws other numbers.

    The logs of every epoch gain `width` (mean number of active neurons per FFN),
    `sparsity` (fraction of the neurons pruned) and `learning_rate`; of other kinds,
    `kv_groups` and `channels` (mean number per group). Later callbacks see them.

    Build the model before `fit`. When an epoch ends and before the model is narrowed,
    the callback compares the active units with the schedule. It raises `PruningStopped`
    if they differ or had no finite gradient. `EarlyStopping` with
    `restore_best_weights=True` starts over when the width changes.

    If a run stops during pruning (EarlyStopping, Ctrl-C), the model stays masked at its
    present width, and `keras_idea.compact(model)` gives that width. Training without
    the callback gives masked neurons weights again, so compact first. After an
    exception, Keras calls no hook: call `on_train_end()` before you train the same
    model without the callback, or pruning continues.

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
        targets: dict, list or None. What each kind keeps, in place of `target_dim`
            (the target of "neurons"): {"neurons": 0.4, "kv_groups": 0.5}. Units of
            "kv_groups" are key/value heads with their query heads, of "channels" those
            of convolutions. With a budget, a list of the kinds that it prunes: each
            keeps the same fraction. Defaults to None ("neurons").
        groups: function or None. Takes an `FFN` handle, as from `keras_idea.find_ffns`,
            and returns whether to prune it. Defaults to None (all).
        target_parameters: int >= 1 or None. A budget: the parameters that the narrow
            model may have, without the teacher of a `Distiller`. Defaults to None.
        target_flops: int >= 1 or None. A budget: operations per token in a forward
            pass, two per weight in a matrix; of a model with convolutions per sample,
            two per weight at each place where it is used (open heights and widths count
            as 128). Defaults to None.

    Raises:
        ValueError: If an argument is outside its range. When `fit` begins: if the model
            is not compiled or built, or has no prunable FFN; if the target cannot be
            met; if the steps do not fit in the run; or if the optimizer's state cannot
            be narrowed.
        PruningStopped: During `fit`, if pruning does not do what was planned. Nothing
            is cut.

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
        *,
        targets: Mapping[str, int | float] | Collection[str] | None = None,
        groups: Groups = None,
        target_parameters: int | None = None,
        target_flops: int | None = None,
    ) -> None:
        super().__init__()
        self.round_to = check_int("round_to", round_to, minimum=1)
        self.budget = Budget(target_parameters, target_flops)
        #: dict, kind -> what is kept of it; None where a budget says it.
        self.targets: Targets = check_targets(
            target_dim, targets, self.round_to, self.budget
        )
        self.begin_step = check_int("begin_step", begin_step, minimum=0)
        self.prune_steps = check_int("prune_steps", prune_steps, minimum=1)
        self.method = methods.get(method)
        self.compact = check_choice("compact", compact, COMPACT)
        self.update_every = check_int("update_every", update_every, minimum=1)
        self.groups = check_groups(groups)
        self._run: PruningRun | None = None  # of the `fit` under way
        # The batch before which something is due, and the optimizer's calls so far.
        self._due_batch, self._calls = math.inf, 0
        self._logs: dict[str, float] = {}  # when the last epoch ended

    def __getstate__(self) -> dict[str, Any]:
        """A copy, or a pickle, begins without a run, and without a model."""
        return {**vars(self), "_run": None, "_model": None}

    @property
    def end_step(self) -> int:
        """int, the optimizer step at which pruning is done."""
        return self.method.end_step(self.begin_step, self.prune_steps)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Checks the plan, and sets the pruner to work."""
        model, self._run = self.model, None
        self._outer = id(sys.exc_info()[1])  # `fit` may be called in an `except`
        self._run = PruningRun(self, model)
        self._logs = self._run.logs()
        self._count(0)

    def on_test_begin(self, logs: dict | None = None) -> None:
        """Evaluates the deterministic masks, if masks are being learned."""
        if self._run is not None and self._run.learner is not None:
            _ = self.model  # on jax this syncs the variables
            self._run.learner.show()

    def on_test_end(self, logs: dict | None = None) -> None:
        """Goes back to the masks to train by."""
        if self._run is not None and self._run.learner is not None:
            optimizer = innermost(self.model.optimizer)
            self._run.learner.draw(as_int(optimizer.iterations))

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Reads the optimizer's step once: for each batch it would cost time."""
        self.on_test_end()
        self._count(0)

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Does what is due between two batches, such as narrowing the model."""
        if batch >= self._due_batch and self._run is not None:
            self._catch_up(self._run)
            self._count(batch)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Verifies the epoch, does what is due, and adds to the logs."""
        run, model = self._run, self.model
        if run is None:
            return
        calls = as_int(apply_count(innermost(model.optimizer)))
        self._catch_up(run, idle=calls == self._calls)
        before, self._logs = self._logs, run.logs()
        if self._logs != before:
            forget_best(self)  # its weights are of another width
        self.on_test_begin()  # for files that later callbacks write
        if logs is None:
            return
        logs.update(self._logs)
        if not hasattr(innermost(model.optimizer), "optimizers"):
            rate = keras.ops.convert_to_numpy(model.optimizer.learning_rate)
            logs.setdefault("learning_rate", float(rate))

    def on_train_end(self, logs: dict | None = None) -> None:
        """Ends pruning, with the masks of the last step.

        Warns if training ended before pruning did.
        """
        if self._run is None:  # it has not begun, or was ended before
            return
        with held_back():
            run, self._run, self._due_batch = self._run, None, math.inf
            done = run.end(self.model)
        if not done and id(sys.exc_info()[1]) == self._outer:  # no error says more
            step = as_int(self.model.optimizer.iterations)
            warn_user(
                f"Training ended at step {step}, and pruning would have ended at step "
                f"{self.end_step}. Call `fit` again with the callback to continue, or "
                "`keras_idea.compact(model)` for the present width."
            )

    def _count(self, batch: int) -> None:
        """Computes before which batch something is due, from the optimizer's step."""
        if self._run is None:
            return
        optimizer = innermost(self.model.optimizer)
        calls = as_int(apply_count(optimizer))
        if batch == 0:
            self._calls = calls
        per_step = optimizer.gradient_accumulation_steps or 1
        self._due_batch = batch + max(self._run.due_step * per_step - calls, 0)

    def _catch_up(self, run: PruningRun, idle: bool | None = None) -> None:
        """Does what is due, and verifies before it; `idle` is known at an epoch's end.

        float16 skips steps, so there may be nothing due yet.
        """
        model = self.model  # on jax this syncs the variables
        step = as_int(model.optimizer.iterations)
        due = step >= run.due_step
        try:
            if due or idle is not None:
                run.verify(model, bool(idle))
            said = run.catch_up(model, step)
        except (ValueError, RuntimeError):
            self.on_train_end()
            raise
        if due:
            forget_best(self)
        verbose = (self.params or {}).get("verbose")
        if said and verbose and processes.is_first():
            # A progress bar may stand on this line.
            print(said if verbose == 2 else f"\n{said}")
