"""The recommended settings of a run: a table of data, and the function that applies it.

docs/settings.md says on which models each value was measured.
"""

import dataclasses
import math
import numbers
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import keras
from keras import ops

from keras_idea._finding.budget import Budget, costs_of, plain_parameters
from keras_idea._finding.find import find_groups
from keras_idea._finding.targets import Targets, check_targets, target_widths
from keras_idea._groups.kinds import KINDS, NEURONS, KindName
from keras_idea._validation import check_int
from keras_idea.errors import ArgumentError
from keras_idea.hub.rebuild import check_plain
from keras_idea.methods.activation import Activation

#: From nothing; or a checkpoint, by the tokens per parameter of the run.
Situation: TypeAlias = Literal["nothing", "many", "few", "very few"]


class Setting(NamedTuple):
    """A recommended setting.

    Attributes:
        value: what a function takes; in `TABLE` it may be a share.
        reason: str. One sentence.
    """

    value: Any
    reason: str


# A refit first was better at 0.0005 tokens per parameter and not at 0.07.
_MANY, _FEW = 1.0, 0.006
_SMALL = 10e6  # the most parameters of models like the small ones that were measured
LARGE = 300e6  # parameters from which a run saves memory
_LEAST_STEPS, _MOST_STEPS, _MOST_TOKENS = 12, 4000, 2**19

_TRAINED = Setting(0, "measured: the model is trained, so pruning can begin")
_COSINE = Setting(0.01, "measured: one cosine to 1% of the peak")
_Q8 = "blocks of a Q8_0 file"
#: Setting -> situation -> its value and reason. `begin_step`, `prune_steps` and
#: `warmup_steps` are shares of the steps, `end_learning_rate` is a share of the peak.
TABLE: dict[str, dict[Situation, Setting]] = {
    "method": {
        "nothing": Setting("sensitivity", "measured: the paper's method"),
        "many": Setting("sensitivity", "measured: the paper's method"),
        "few": Setting("sensitivity", "measured: activation is 0.002 to 0.005 worse"),
        "very few": Setting("activation", "measured: it works with a refit"),
    },
    "by_weights": {
        "very few": Setting(True, "measured: perplexity 53.9 instead of 55.0"),
    },
    "target_dim": {
        "nothing": Setting(0.67, "measured: one of 0.67, 0.45 and 0.25"),
        "many": Setting(0.67, "measured: loss +0.003"),
        "few": Setting(0.67, "measured: loss +0.013 at 0.69, +0.049 at 0.38"),
        "very few": Setting(
            0.67, "measured: 52% (SmolLM2) and 23% (Gemma 3) of the excess loss removed"
        ),
    },
    "round_to": {
        "nothing": Setting(1, "measured without rounding"),
        "many": Setting(32, f"measured: {_Q8}"),
        "few": Setting(32, f"estimate: {_Q8}"),
        "very few": Setting(32, f"measured: {_Q8}"),
    },
    "begin_step": {"many": _TRAINED, "few": _TRAINED, "very few": _TRAINED},
    "prune_steps": {
        "many": Setting(1 / 3, "measured: a third to half of the steps"),
        "few": Setting(1 / 4, "measured: a quarter of the steps"),
        "very few": Setting(0.0, "measured: all at once"),
    },
    "warmup_steps": {
        "nothing": Setting(0.09, "measured: 9% of the steps"),
        "many": Setting(1 / 15, "measured: 7% of the steps"),
        "few": Setting(1 / 12, "measured: 8% of the steps"),
        "very few": Setting(1 / 12, "measured: 8% of the steps"),
    },
    "end_learning_rate": {
        "nothing": Setting(0.01, "measured: a decay to 1% for each width"),
        "many": _COSINE,
        "few": _COSINE,
        "very few": _COSINE,
    },
    "tokens_per_step": {
        "nothing": Setting(1024, "measured with this value"),
        "many": Setting(2048, "measured with this value"),
        "few": Setting(1024, "measured; 2,048 from 0.4 million tokens on"),
        "very few": Setting(512, "measured with this value"),
    },
    "sequence_length": {
        "nothing": Setting(32, "measured with this value"),
        "many": Setting(64, "measured with this value"),
        "few": Setting(128, "measured with this value"),
        "very few": Setting(128, "measured with this value"),
    },
    "weight": {
        "many": Setting(0.5, "measured: a teacher lowers the loss by 0.005"),
        "few": Setting(0.5, "measured: a teacher lowers the loss by 0.009 to 0.013"),
        "very few": Setting(0.5, "measured: perplexity 55.0 instead of 59.0"),
    },
}
#: Up to so many parameters of a checkpoint, its peak learning rate.
_PEAKS: tuple[tuple[float, float, str], ...] = (
    (_SMALL, 1e-3, "measured up to 2 million parameters: 1/4 of pretraining's peak"),
    (200e6, 3e-4, "measured on SmolLM2-135M: as good as 1e-4; 1e-3 is not"),
    (500e6, 1e-4, "measured on Gemma 3 270M: the only one that was tried"),
    (math.inf, 3e-5, "estimate: 1/10 of a common peak of pretraining"),
)
#: Up to so many tokens per parameter from nothing, the share of the wide stage.
_WIDE: tuple[tuple[float, float, str], ...] = (
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
    """

    situation: Situation
    settings: Mapping[str, Setting]

    def __getitem__(self, name: str) -> Any:
        """The value of a setting."""
        return self.settings[name].value

    @property
    def shrink(self) -> dict[str, Any] | None:
        """Dict of arguments of `shrink`, or None: the run prunes in `fit`."""
        if self.situation != "very few":
            return None
        return {
            "targets": dict(self["kept"]),
            "method": Activation(by_weights=self["by_weights"]),
            "refit": True,
            "num_samples": self["refit_windows"],
        }

    @property
    def prune(self) -> dict[str, Any] | None:
        """Dict of arguments of `IdeaPruneCallback`, or None: `shrink` prunes."""
        if self.situation == "very few":
            return None
        return self._of(
            *("target_dim", "targets", "target_parameters", "begin_step"),
            *("prune_steps", "method", "round_to"),
        )

    @property
    def schedule(self) -> dict[str, Any]:
        """Dict of arguments of `CosineDecay`."""
        return self._of(
            "peak_learning_rate", "end_learning_rate", "total_steps", "warmup_steps"
        )

    @property
    def distiller(self) -> dict[str, Any] | None:
        """Dict of arguments of `distiller`, or None: there is no teacher."""
        return self._of("temperature", "weight", "top_k") or None

    def _of(self, *names: str) -> dict[str, Any]:
        return {name: self[name] for name in names if name in self.settings}

    def __str__(self) -> str:
        """A line per setting."""
        lines = {f"{name} = {s.value!r}": s.reason for name, s in self.settings.items()}
        width = max(map(len, lines))
        return "\n".join(f"{first:{width}}  {why}" for first, why in lines.items())


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
        model: keras.Model. A built model, as for `IdeaPruneCallback`. It is not
            changed.
        tokens: int. How many tokens the run trains on, in all.
        target: float in (0, 1), int >= 1, dict or None. A float: the fraction of the
            neurons to keep. An int: the most parameters of the narrow model. A dict:
            the `targets` of `IdeaPruneCallback`, such as {"neurons": 1024}. Defaults
            to None: the recommended fraction, 0.67.
        trained: bool. Whether the model is trained. False recommends a run from
            nothing, with a wide stage. Defaults to True.

    Returns:
        `Recommended`. Its `prune`, `schedule` and `distiller` are dicts of arguments of
        `IdeaPruneCallback`, `CosineDecay` and `distiller`; with very few tokens
        `shrink` has those of `shrink`, and `prune` is None. `settings` has each
        `Setting`, also of the batches: `sequence_length`, `batch_size`, `total_steps`,
        and `steps_per_epoch` for a validation now and then.

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
    wide = plain_parameters(model)
    situation: Situation = "nothing"
    if trained:
        rate = tokens / wide
        situation = "many" if rate >= _MANY else "few" if rate >= _FEW else "very few"
    found, narrow, widest, sees_all = _how_narrow(model, target, situation)
    if situation == "very few" and not sees_all:
        situation = "few"
        found, narrow, widest, _ = _how_narrow(model, target, situation)
    row = {name: rows[situation] for name, rows in TABLE.items() if situation in rows}
    parameters = wide if trained else narrow
    rate = tokens / parameters
    settings = {
        "parameters": Setting(wide, "of the model before pruning"),
        "tokens_per_parameter": Setting(
            float(f"{rate:.3g}"), f"{tokens:,} tokens by {parameters:,} parameters"
        ),
        **found,
        "method": row["method"],
        **_batches(tokens, row),
    }
    steps, every = (settings[name].value for name in ("total_steps", "steps_per_epoch"))
    if trained:
        begin, share = row["begin_step"], row["prune_steps"]
        peak = next(Setting(*r[1:]) for r in _PEAKS if parameters <= r[0])
    else:
        wide_share = next(Setting(*r[1:]) for r in _WIDE if rate <= r[0])
        first = max(1, round(wide_share.value * steps / every)) * every
        begin = Setting(first, wide_share.reason)
        share = Setting(0.5, "measured: 10 to 70% of the steps that are left")
        peak = Setting(3e-3, "estimate: the demo's, up to 10 million parameters")
        if parameters > _SMALL:
            peak = Setting(3e-4, "estimate: a common peak of pretraining")
    prune = max(1, round(share.value * (steps - begin.value)))
    warm, end = row["warmup_steps"], row["end_learning_rate"]
    settings |= {
        "begin_step": begin,
        "prune_steps": Setting(prune, share.reason),
        "peak_learning_rate": peak,
        "end_learning_rate": Setting(
            float(f"{end.value * peak.value:.3g}"), end.reason
        ),
        "warmup_steps": Setting(max(1, round(warm.value * steps)), warm.reason),
    }
    if trained:
        settings["weight"] = row["weight"]
        settings["temperature"] = Setting(1.0, "measured: the only one that was tried")
        if parameters >= LARGE:
            settings["top_k"] = Setting(
                64, "estimate: the teacher's 64 likeliest tokens save memory"
            )
    if situation == "very few":
        settings["by_weights"] = row["by_weights"]
        windows = -(-max(16_384, 2 * widest) // settings["sequence_length"].value)
        why = "measured: 16,384 tokens"
        if 2 * widest > 16_384:
            why = "estimate: two tokens for each neuron that stays"
        settings["refit_windows"] = Setting(windows, why)
    return Recommended(situation, settings)


def _batches(tokens: int, row: Mapping[str, Setting]) -> dict[str, Setting]:
    """Returns tokens of a step and of a sequence, and the steps."""
    size, length = row["tokens_per_step"], row["sequence_length"]
    if size is TABLE["tokens_per_step"]["few"] and tokens >= 200 * 2048:
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
    return {
        "tokens_per_step": size,
        "sequence_length": length,
        "batch_size": Setting(
            size.value // length.value,
            f"{size.value:,} tokens in sequences of {length.value:,}",
        ),
        "total_steps": Setting(
            steps, f"{steps * size.value:,} of the {tokens:,} tokens"
        ),
        "steps_per_epoch": Setting(every, "a divisor of the steps"),
    }


def _how_narrow(
    model: keras.Model, target: Any, situation: Situation
) -> tuple[dict[str, Setting], int, int, bool]:
    """Returns the settings of the target and of its rounding.

    Also the parameters of the narrow model, the most units that a layer keeps, and
    whether a refit can read all hidden activations.
    """
    share = TABLE["target_dim"][situation]
    wanted = share.value if target is None else target
    name, targets, budget = _checked(wanted)
    groups = find_groups(model, tuple(targets))
    missing = [kind for kind in targets if all(g.kind != kind for g in groups)]
    if missing:
        raise ArgumentError(
            f"Model '{model.name}' has no {missing[0]!r} that can be pruned; "
            "`keras_idea.explain(model)` says why. Give another model or target."
        )
    rounding = TABLE["round_to"][situation]
    rounded = [g.full_dim for g in groups if KINDS[g.kind].rounded]
    if any(isinstance(n, int) for n in targets.values()) or not rounded:
        rounding = Setting(1, "your target is a number")
    else:
        if on_devices() and min(rounded) >= 8 * 128:
            rounding = Setting(128, "estimate: for the matrix units of a GPU or TPU")
        if min(rounded) < 8 * rounding.value and rounding.value > 1:
            rounding = Setting(1, "estimate: FFNs have fewer than 8 multiples")
    widths = target_widths(targets, budget, model, groups, rounding.value)
    costs = costs_of(model, groups)
    start, end = costs([g.full_dim for g in groups]), costs([n for _, n in widths])
    kept = [(g.kind, n) for g, n in widths]
    whole = any(units >= group.full_dim for group, units in widths)
    if budget.allows(start) if budget else whole:
        raise ArgumentError(
            "`target` must prune each layer of the model, which has "
            f"{start.parameters:,} parameters. Received: target={target!r}. Lower it."
        )
    numbers_kept: dict[KindName, int | float] = {}
    for kind, asked in targets.items():
        sizes = {n for of, n in kept if of == kind}
        numbers_kept[kind] = max(sizes)
        if len(sizes) > 1 and isinstance(asked, float):
            numbers_kept[kind] = asked
        elif len(sizes) > 1 and budget and situation == "very few":
            raise ArgumentError(
                "`target` must be a fraction here: the FFNs differ in width, and "
                "`keras_idea.shrink` takes one number for all. Give a float in (0, 1)."
            )
    known = share if target is None else Setting(wanted, "your target")
    reason = f"{end.parameters:,} of {start.parameters:,} parameters stay"
    settings = {name: known, "kept": Setting(numbers_kept, reason)}
    settings["round_to"] = rounding
    sees_all = all(g.weights.shown_by or g.kind != NEURONS for g in groups)
    return settings, end.parameters, max(n for _, n in widths), sees_all


def _checked(target: Any) -> tuple[str, Targets, Budget]:
    """Returns the argument of `IdeaPruneCallback` that a target is, and its values."""
    if isinstance(target, Mapping):
        return "targets", check_targets(None, target, 1, Budget()), Budget()
    whole = isinstance(target, numbers.Integral) and not isinstance(target, bool)
    if whole and target >= 1:
        return "target_parameters", {NEURONS: None}, Budget(int(target))
    if isinstance(target, numbers.Real) and 0 < float(target) < 1:
        return "target_dim", {NEURONS: float(target)}, Budget()
    raise ArgumentError(
        "`target` must be a float in (0, 1) (the fraction of the neurons to keep), an "
        "integer >= 1 (the most parameters), or a dict of targets such as "
        f'{{"neurons": 1024}}. Received: target={target!r}.'
    )


def on_devices() -> bool:
    """Whether this process computes on something else than CPUs."""
    return "cpu" not in str(ops.zeros(()).device).lower()
