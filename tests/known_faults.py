"""Faults that were in the package once, or were looked for: rows of tests.mutations."""

from typing import NamedTuple


class Fault(NamedTuple):
    """One fault: in `file`, `old` becomes `new`; `backend` shows it."""

    fault: str
    file: str
    old: str
    new: str
    backend: str = "torch"


_PRUNER, _CHECKPOINT = "_step/pruner.py", "_callbacks/checkpoint.py"
_RENEWAL, _MASKS = "_step/algorithm.py", "functional/masks.py"
FAULTS = (
    # Faults that were there once, or were looked for.
    Fault(
        "scores are taken after the step",
        _PRUNER,
        "            ends = gradients.is_step_end",
        "            fresh = [gradients.sensitivities(ffn) for ffn in ffns]\n"
        "            ends = gradients.is_step_end",
    ),
    Fault(
        "only the first slot is sliced",
        "_surgery/optimizer_state.py",
        "for slots in named.values() if",
        "for slots in list(named.values())[:1] if",
    ),
    Fault(
        "a mask revives",
        _MASKS,
        "rankable = ops.logical_and(alive, ops.logical_not(ops.isnan(importance)))",
        "rankable = ops.logical_not(ops.isnan(importance))",
    ),
    Fault(
        "a resumed run repeats a batch",
        "_lm/data/tokens.py",
        "batches[start_step:]",
        "batches[max(start_step - 1, 0) :]",
    ),
    Fault(
        "of equal importances the last stay",
        _MASKS,
        'ops.cumsum(ops.cast(ties, "int32"), axis=-1) <= free',
        'ops.flip(ops.cumsum(ops.flip(ops.cast(ties, "int32"), -1), -1), -1) <= free',
    ),
    Fault(
        "the width of the last step is an earlier one",
        "functional/width.py",
        "if elapsed < self.prune_steps:",
        "if elapsed <= self.prune_steps:",
    ),
    Fault(
        "a NaN gradient stays in the scores",
        _RENEWAL,
        "measured = ops.isfinite(new)",
        'measured = ops.ones_like(new, dtype="bool")',
    ),
    Fault(
        "masks fall by scores of nothing",
        _RENEWAL,
        "ops.where(renewed, top_k_mask(importance, width, alive), alive)",
        "top_k_mask(importance, width, alive)",
    ),
    Fault(
        "checkpoints are kept by their step",
        _CHECKPOINT,
        "key=lambda match: int(match[1])",
        'key=lambda match: match[0].split("-")[3]',
    ),
    Fault(
        "seeds are not put back",
        _CHECKPOINT,
        "            set_random_state(self._random)\n            self",
        "            self",
    ),
    Fault(
        "a teacher counts in the budget",
        "_finding/budget.py",
        "    student = student_of(model)\n    held",
        "    student = model\n    held",
    ),
    Fault(
        "pruned rows are multiplied by zero",
        "_step/row_ops.py",
        "ops.where(cut.spread(mask, 1) > 0, values, ops.zeros_like(values))",
        "values * ops.cast(cut.spread(mask, 1), values.dtype)",
        "jax",
    ),
    Fault(
        "gradients of pruned neurons count in a norm",
        _PRUNER,
        "grads[place] = of_active(cut, grads[place], track.mask.value)",
        "pass",
    ),
    Fault(
        "averages bring pruned neurons back",
        _PRUNER,
        "zero_rows(ffn.cuts(), state.mask.value)",
        "pass",
    ),
    # Others.
    Fault(
        "the past weighs as the new should",
        "functional/importance.py",
        "(1.0 - decay) * new + decay * old",
        "decay * new + (1.0 - decay) * old",
    ),
    Fault(
        "a learned mask's constraint has the wrong sign",
        "functional/hard_concrete.py",
        "return -by_sparsity * p",
        "return by_sparsity * p",
    ),
    Fault(
        "Adam's second moment is not corrected",
        "functional/hard_concrete.py",
        "ops.sqrt(second / (1 - ops.power(0.95, step)))",
        "ops.sqrt(second)",
    ),
    Fault(
        "functions traced with the wide shapes stay",
        "_surgery/narrow_in_place.py",
        "            make_train_function(part)",
        "            pass",
        "tensorflow",
    ),
    Fault(
        "a compact copy shares its metrics",
        "_surgery/compact.py",
        "    if not isinstance(metric, keras.metrics.Metric):",
        "    if True:",
    ),
    Fault(
        "the optimizer forgets a narrowed variable",
        "_surgery/narrow_in_place.py",
        "            rename_key(part, key, variable_key(part, variable))",
        "            pass",
        "tensorflow",
    ),
    Fault(
        "the logs before a kill are lost",
        _CHECKPOINT,
        '        self.history = facts["history"]\n',
        "",
    ),
    Fault(
        "every process reads the first one's share",
        "_lm/data/tokens.py",
        "[index::count]",
        "[0::count]",
    ),
    Fault(
        "windows leave a token out",
        "_lm/data/tokens.py",
        "[:, None] * length + np",
        "[:, None] * (length + 1) + np",
    ),
    Fault(
        "compiled masks fall a step late",
        _RENEWAL,
        'schedule(ops.cast(iterations, "int32") if',
        'schedule(ops.maximum(ops.cast(iterations, "int32") - 1, 0) if',
        "jax",
    ),
    Fault(
        "a width is evaluated by another one's function",
        "_elastic/callback.py",
        "        model.make_test_function(force=True)",
        "        pass",
        "jax",
    ),
)

# Mutations that change nothing that a user could see, and why.
HARMLESS = {
    "keras_idea/_callbacks/prune.py:IdeaPruneCallback._catch_up: 2 -> 3 "
    "(constant)": "a line more or less on the console",
    "keras_idea/_elastic/callback.py:_test_function: "
    "model.make_test_function(force=True) -> pass (left out)": "torch calls "
    "`test_step` anew each time; of jax it is a row above",
    "keras_idea/_graph/experiment.py:Search._ask: > ->  >=  (comparison)": "one "
    "config less is remembered",
    "keras_idea/_processes.py:index: count() == 1 -> False (condition)": "the only "
    "process has number 0; several are in jax's tests of `make endurance`",
    "keras_idea/hub/folder.py:probe_rows: 0 -> 1 (constant)": "no vocabulary has one "
    "token",
    "keras_idea/_distillation.py:FloatLogits.compute_loss: < ->  <=  "
    "(comparison)": "the likeliest k of k logits are all of them",
}
