"""The recommended settings of a run: a table of data, and the function that applies it.

docs/settings.md says on which models each value was measured.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import keras
from keras import ops

from keras_idea._finding.budget import Budget, costs_of, plain_parameters
from keras_idea._finding.find import find_groups
from keras_idea._finding.targets import Targets, check_targets, target_widths
from keras_idea._graph.group import FFN
from keras_idea._groups.kinds import KINDS, NEURONS, KindName
from keras_idea._validation import check_int, check_size
from keras_idea.errors import ArgumentError
from keras_idea.hub.rebuild import check_plain
from keras_idea.methods.activation import Activation

#: From nothing; or a checkpoint, by the tokens per parameter of the run.
Situation: TypeAlias = Literal["nothing", "many", "few", "very few"]


class Setting(NamedTuple):
    """A recommended setting, and its reason."""

    value: Any
    reason: str


# A refit first was better at 0.0005 tokens per parameter and not at 0.07.
_MANY, _FEW = 1.0, 0.006
_SMALL = 10e6  # the most parameters of models like the small ones that were measured
LARGE = 300e6  # parameters from which a run saves memory
_LEAST_STEPS, _MOST_STEPS, _MOST_TOKENS = 12, 4000, 2**19
_SHARE = 0.67

_TRAINED = "many, few, very few"
# Setting, situations, value, reason. `begin_step`, `prune_steps` and `warmup_steps` are
# shares of the steps, `end_learning_rate` is a share of the peak.
_ROWS: tuple[tuple[str, str, Any, str], ...] = (
    ("method", "nothing, many", "sensitivity", "measured: the paper's method"),
    ("method", "few", "sensitivity", "measured: activation is 0.002 to 0.005 worse"),
    ("method", "very few", "activation", "measured: it works with a refit"),
    ("by_weights", "very few", True, "measured: perplexity 53.9 instead of 55.0"),
    ("target_dim", "nothing", _SHARE, "measured: one of 0.67, 0.45 and 0.25"),
    ("target_dim", "many", _SHARE, "measured: loss +0.003"),
    ("target_dim", "few", _SHARE, "measured: loss +0.013 at 0.69, +0.049 at 0.38"),
    ("target_dim", "very few", _SHARE, "measured: 23 to 52% of the loss is regained"),
    ("round_to", "nothing", 1, "measured without rounding"),
    ("round_to", "many, very few", 32, "measured: blocks of a Q8_0 file"),
    ("round_to", "few", 32, "estimate: blocks of a Q8_0 file"),
    ("begin_step", _TRAINED, 0, "measured: the model is trained, so pruning can begin"),
    ("prune_steps", "nothing", 1 / 2, "measured: 10 to 70% of the steps that are left"),
    ("prune_steps", "many", 1 / 3, "measured: a third to half of the steps"),
    ("prune_steps", "few", 1 / 4, "measured: a quarter of the steps"),
    ("prune_steps", "very few", 0.0, "measured: all at once"),
    ("warmup_steps", "nothing", 0.09, "measured: 9% of the steps"),
    ("warmup_steps", "many", 1 / 15, "measured: 7% of the steps"),
    ("warmup_steps", "few, very few", 1 / 12, "measured: 8% of the steps"),
    ("end_learning_rate", "nothing", 0.01, "measured: a decay to 1% for each width"),
    ("end_learning_rate", _TRAINED, 0.01, "measured: one cosine to 1% of the peak"),
    ("tokens_per_step", "nothing", 1024, "measured with this value"),
    ("tokens_per_step", "many", 2048, "measured with this value"),
    ("tokens_per_step", "few", 1024, "measured; 2,048 from 0.4 million tokens on"),
    ("tokens_per_step", "very few", 512, "measured with this value"),
    ("sequence_length", "nothing", 32, "measured with this value"),
    ("sequence_length", "many", 64, "measured with this value"),
    ("sequence_length", "few, very few", 128, "measured with this value"),
    ("weight", "many", 0.5, "measured: a teacher lowers the loss by 0.005"),
    ("weight", "few", 0.5, "measured: a teacher lowers the loss by 0.009 to 0.013"),
    ("weight", "very few", 0.5, "measured: perplexity 55.0 instead of 59.0"),
    ("temperature", _TRAINED, 1.0, "measured: the only one that was tried"),
)
# Up to so many parameters, the peak learning rate.
_PEAKS = (
    (_SMALL, 1e-3, "measured up to 2 million parameters: 1/4 of pretraining's peak"),
    (200e6, 3e-4, "measured on SmolLM2-135M: as good as 1e-4; 1e-3 is not"),
    (500e6, 1e-4, "measured on Gemma 3 270M: the only one that was tried"),
    (math.inf, 3e-5, "estimate: 1/10 of a common peak of pretraining"),
)
_PEAKS_FROM_NOTHING = (
    (_SMALL, 3e-3, "estimate: the demo's, up to 10 million parameters"),
    (math.inf, 3e-4, "estimate: a common peak of pretraining"),
)
# Up to so many tokens per parameter from nothing, the share of the wide stage.
_WIDE = (
    (60, 0.5, "measured at 30 tokens per parameter or less: 50% of the steps"),
    (180, 0.2, "measured at 90 tokens per parameter: 10 to 30% of the steps"),
    (math.inf, 0.1, "measured at 270 tokens per parameter or more: 10% of the steps"),
)
AT_ONCE = Setting(4096, "estimate: 4,096 tokens at once save memory")
REMATERIALIZE = Setting(True, "estimate: saves memory")
MIXED = Setting("mixed_bfloat16", "estimate: for a GPU or TPU")


@dataclasses.dataclass(frozen=True)
class Recommended:
    """The recommended settings of a run: see `recommended`.

    Attributes:
        situation: str. "nothing", or a checkpoint with "many", "few" or "very few"
            tokens per parameter.
        settings: dict. The name of a setting -> `Setting`.
        shrink: dict of arguments of `shrink`, or None: the run prunes in `fit`.
        prune: dict of arguments of `IdeaPruneCallback`, or None.
        schedule: dict of arguments of `CosineDecay`.
        distiller: dict of arguments of `distiller`, or None: there is no teacher.
    """

    situation: Situation
    settings: Mapping[str, Setting]
    shrink: dict[str, Any] | None
    prune: dict[str, Any] | None
    schedule: dict[str, Any]
    distiller: dict[str, Any] | None

    def __getitem__(self, name: str) -> Any:
        """The value of a setting."""
        return self.settings[name].value


def recommended(
    model: keras.Model,
    tokens: int,
    target: float | int | Mapping[KindName, float | int] | None = None,
    *,
    trained: bool = True,
) -> Recommended:
    """Recommends the settings of a run that makes a model smaller.

    They follow from the tokens per parameter of a checkpoint. From 0.006 on, prune in
    `fit`. With fewer, cut with a refit first, then recover. Experts cannot be refit,
    nor can neurons that several layers read: prune these in `fit`. Each setting has its
    reason, which says whether it was measured.

    Args:
        model: keras.Model. A built model, as for `IdeaPruneCallback`.
        tokens: int. How many tokens the run trains on, in all.
        target: float in (0, 1), int >= 1, dict or None. A float: the fraction of the
            neurons to keep. An int: the most parameters of the narrow model. A dict:
            the `targets` of `IdeaPruneCallback`, such as {"neurons": 1024}. Defaults
            to None: the recommended fraction, 0.67.
        trained: bool. Whether the model is trained. False recommends a run from
            nothing, with a wide stage. Defaults to True.

    Returns:
        `Recommended`. Its `prune` (or, with very few tokens, `shrink`), `schedule` and
        `distiller` are dicts of arguments. `settings` also has those of the batches:
        `sequence_length`, `batch_size`, `total_steps` and `steps_per_epoch`.

    Raises:
        ValueError: If an argument is outside its range, if there are too few tokens for
            a run, or if the model has nothing to prune or the target cannot be met.

    Example:
    >>> found = ki.recommended(lm, tokens=100_000, target=0.5)
    >>> found.settings["prune_steps"]
    Setting(value=16, reason='measured: a third to half of the steps')
    >>> prune = ki.IdeaPruneCallback(**found.prune)
    >>> rate = ki.CosineDecay(**found.schedule)

    Source: the measurements in benchmarks/results.
    """
    check_int("tokens", tokens, minimum=1)
    check_plain(model)
    name, targets, budget = _checked(_SHARE if target is None else target)
    groups = find_groups(model, tuple(targets))
    missing = [kind for kind in targets if all(g.kind != kind for g in groups)]
    if missing:
        raise ArgumentError(
            f"Model '{model.name}' has no {missing[0]!r} that can be pruned; "
            "`keras_idea.explain(model)` says why. Give another model or target."
        )
    wide = plain_parameters(model)
    situation: Situation = "nothing"
    if trained:
        situation = "many" if tokens / wide >= _MANY else "few"
        refits = all(g.shown_by or g.kind != NEURONS for g in groups)
        if tokens / wide < _FEW and refits:
            situation = "very few"
    row = {
        setting: Setting(value, reason)
        for setting, situations, value, reason in _ROWS
        if situation in situations.split(", ")
    }
    row["round_to"] = _rounding(row["round_to"], targets, groups)
    widths = target_widths(targets, budget, model, groups, row["round_to"].value)
    costs = costs_of(model, groups)
    start, end = costs([g.full_dim for g in groups]), costs([n for _, n in widths])
    whole = any(units >= group.full_dim for group, units in widths)
    if budget.allows(start) if budget else whole:
        raise ArgumentError(
            "`target` must prune each layer of the model, which has "
            f"{start.parameters:,} parameters. Received: target={target!r}. Lower it."
        )
    kept: dict[KindName, int | float] = {}
    for kind, asked in targets.items():
        sizes = {n for group, n in widths if group.kind == kind}
        kept[kind] = asked if asked and len(sizes) > 1 else max(sizes)
        if len(sizes) > 1 and budget and situation == "very few":
            raise ArgumentError(
                "`target` must be a fraction here: the FFNs differ in width, and "
                "`keras_idea.shrink` takes one number for all. Give a float in (0, 1)."
            )
    parameters = wide if trained else end.parameters
    rate = tokens / parameters
    stay = f"{end.parameters:,} of {start.parameters:,} parameters stay"
    default = row.pop("target_dim")
    settings = {
        **row,
        "parameters": Setting(wide, "of the model before pruning"),
        "tokens_per_parameter": Setting(
            float(f"{rate:.3g}"), f"{tokens:,} tokens by {parameters:,} parameters"
        ),
        name: default if target is None else Setting(target, "your target"),
        "kept": Setting(kept, stay),
        **_batches(tokens, row, situation),
    }
    steps, every = (settings[key].value for key in ("total_steps", "steps_per_epoch"))
    if not trained:
        share, why = _up_to(rate, _WIDE)
        settings["begin_step"] = Setting(
            max(1, round(share * steps / every)) * every, why
        )

    def part(name: str, of: int) -> Setting:
        return Setting(max(1, round(row[name].value * of)), row[name].reason)

    peak = _up_to(parameters, _PEAKS if trained else _PEAKS_FROM_NOTHING)
    share, why = row["end_learning_rate"]
    settings |= {
        "prune_steps": part("prune_steps", steps - settings["begin_step"].value),
        "warmup_steps": part("warmup_steps", steps),
        "peak_learning_rate": peak,
        "end_learning_rate": Setting(float(f"{share * peak.value:.3g}"), why),
    }
    if trained and parameters >= LARGE:
        why = "estimate: the teacher's 64 likeliest tokens save memory"
        settings["top_k"] = Setting(64, why)
    found = {key: setting.value for key, setting in settings.items()}
    shrink = None
    if situation == "very few":
        least = 2 * max(n for _, n in widths)
        why = "measured: 16,384 tokens"
        if least > 16_384:
            why = "estimate: two tokens for each neuron that stays"
        windows = -(-max(16_384, least) // found["sequence_length"])
        settings["refit_windows"] = Setting(windows, why)
        method = Activation(by_weights=found["by_weights"])
        shrink = {"targets": dict(kept), "method": method, "refit": True}
        shrink["num_samples"] = windows

    def arguments(names: str) -> dict[str, Any]:
        return {name: found[name] for name in names.split() if name in found}

    pruning = f"{name} begin_step prune_steps method round_to"
    rates = "peak_learning_rate end_learning_rate total_steps warmup_steps"
    return Recommended(
        situation,
        settings,
        shrink,
        arguments(pruning) if shrink is None else None,
        arguments(rates),
        arguments("temperature weight top_k") or None,
    )


def _up_to(size: float, table: Sequence[tuple[float, float, str]]) -> Setting:
    return next(Setting(value, why) for limit, value, why in table if size <= limit)


def _rounding(measured: Setting, targets: Targets, groups: Sequence[FFN]) -> Setting:
    """Returns the multiple to which widths are rounded."""
    rounded = [g.full_dim for g in groups if KINDS[g.kind].rounded]
    if any(isinstance(n, int) for n in targets.values()) or not rounded:
        return Setting(1, "your target is a number")
    if on_devices() and min(rounded) >= 8 * 128:
        return Setting(128, "estimate: for the matrix units of a GPU or TPU")
    if measured.value > 1 and min(rounded) < 8 * measured.value:
        return Setting(1, "estimate: FFNs have fewer than 8 multiples")
    return measured


def _batches(
    tokens: int, row: Mapping[str, Setting], situation: Situation
) -> dict[str, Setting]:
    """Returns tokens of a step and of a sequence, and the steps."""
    size, length = row["tokens_per_step"], row["sequence_length"]
    if situation == "few" and tokens >= 200 * 2048:
        size = Setting(2048, "measured: from 0.4 million tokens on")
    more = min(tokens // _MOST_STEPS, _MOST_TOKENS)
    if more >= 2 * size.value:
        size = Setting(2 ** (more.bit_length() - 1), "estimate: about 4,000 steps")
    if size.value >= AT_ONCE.value:
        length = Setting(1024, "estimate: if a step has 4,096 tokens or more")
    steps = tokens // size.value
    if steps < _LEAST_STEPS:
        raise ArgumentError(
            f"`tokens` must be at least {_LEAST_STEPS * size.value:,} here: "
            f"{_LEAST_STEPS} steps of {size.value:,} tokens. Received: tokens={tokens}."
            " Give more; or cut without training: `keras_idea.shrink`, refit=True."
        )
    every = max(1, min(100, steps // 8))  # eight validations at least
    steps -= steps % every
    trained, rows = steps * size.value, size.value // length.value
    in_rows = f"{size.value:,} tokens in sequences of {length.value:,}"
    return {
        "tokens_per_step": size,
        "sequence_length": length,
        "batch_size": Setting(rows, in_rows),
        "total_steps": Setting(steps, f"{trained:,} of the {tokens:,} tokens"),
        "steps_per_epoch": Setting(every, "a divisor of the steps"),
    }


def _checked(target: Any) -> tuple[str, Targets, Budget]:
    """Returns the argument of `IdeaPruneCallback` that a target is, and its values."""
    if isinstance(target, Mapping):
        return "targets", check_targets(None, target, 1, Budget()), Budget()
    size = check_size("target", target)
    if isinstance(size, int):
        return "target_parameters", {NEURONS: None}, Budget(size)
    return "target_dim", {NEURONS: size}, Budget()


def on_devices() -> bool:
    """Whether this process computes on something else than CPUs."""
    return "cpu" not in str(ops.zeros(()).device).lower()
