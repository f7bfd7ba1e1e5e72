"""The recommended settings of a model, as arguments, each with its reason."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras

from keras_idea.errors import ArgumentError
from keras_idea.finding.budget import plain_parameters
from keras_idea.groups.kinds import KindName
from keras_idea.hub.rebuild import check_plain
from keras_idea.methods.activation import Activation
from keras_idea.settings import rules
from keras_idea.settings.how_narrow import how_narrow
from keras_idea.settings.rules import RULES, Advice, Situation
from keras_idea.settings.setting import Setting, given, setting
from keras_idea.validation import check_int

# Steps that are enough for the larger of two sizes of a step.
_ENOUGH = 200
# Validations of a short run, at least; steps between them at most.
_VALIDATIONS, _EVERY = 8, 100


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
        return self._of("temperature", "weight", "features", "top_k") or None

    def _of(self, *names: str) -> dict[str, Any]:
        return {name: self[name] for name in names if name in self.settings}

    def __str__(self) -> str:
        """A line a setting."""
        lines = [
            (f"{name} = {setting.value!r}", setting.basis, setting.reason)
            for name, setting in self.settings.items()
        ]
        width = max(len(line[0]) for line in lines)
        table = [f"{first:{width}}  {basis}: {why}" for first, basis, why in lines]
        return "\n".join([*table, "Letters: docs/settings.md"])


def recommended(
    model: keras.Model,
    tokens: int,
    target: float | int | Mapping[KindName, float | int] | None = None,
    *,
    trained: bool = True,
) -> Recommended:
    """Recommends the settings of a run that makes a model smaller.

    They are those of docs/settings.md, by the tokens per parameter of a
    checkpoint: from 0.006 on, prune in `fit`; with fewer, cut with a refit first and
    then recover. Experts cannot be refit, nor can neurons that several layers read:
    these are always pruned in `fit`. Each setting has its reason, and whether that was
    measured.

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
    >>> found.prune["prune_steps"], found.settings["prune_steps"].basis
    (16, 'measured')
    >>> prune = ki.IdeaPruneCallback(**found.prune)
    >>> rate = ki.CosineDecay(**found.schedule)

    Source: the measurements in benchmarks/results.
    """
    check_int("tokens", tokens, minimum=1)
    check_plain(model)
    wide = plain_parameters(model)
    situation = situation_of(tokens / wide) if trained else "nothing"
    narrow = how_narrow(model, target, situation)
    if situation == "very few" and not narrow.can_refit:
        situation = "few"
        narrow = how_narrow(model, target, situation)
    parameters = wide if trained else narrow.parameters
    rate = tokens / parameters
    settings = {
        "parameters": given(wide, "of the model before pruning"),
        "tokens_per_parameter": given(
            float(f"{rate:.3g}"),
            f"{tokens:,} tokens by {parameters:,} parameters",
        ),
        **narrow.settings,
        "method": setting(RULES["method"][situation][0]),
        **_batches(tokens, situation),
    }
    steps, every = (settings[name].value for name in ("total_steps", "steps_per_epoch"))
    settings |= _stages(steps, every, situation, rate)
    settings |= _learning_rate(steps, parameters, situation)
    if trained:
        settings |= _teacher(situation, rate, parameters)
    if situation == "very few":
        settings["by_weights"] = setting(RULES["by_weights"][situation][0])
        length = settings["sequence_length"].value
        settings["refit_windows"] = _refit_windows(narrow.widest, length)
    return Recommended(situation, settings)


def situation_of(tokens_per_parameter: float) -> Situation:
    """The column of a checkpoint."""
    if tokens_per_parameter >= rules.MANY:
        return "many"
    return "few" if tokens_per_parameter >= rules.FEW else "very few"


def _batches(tokens: int, situation: Situation) -> dict[str, Setting]:
    """Tokens of a step and a sequence, and the steps."""
    size, *larger = RULES["tokens_per_step"][situation]
    if larger and tokens >= _ENOUGH * larger[0].value:
        size = larger[0]
    more = min(tokens // rules.MOST_STEPS, rules.MOST_TOKENS)
    if more >= 2 * size.value:
        says, sources, _ = rules.MORE_TOKENS
        size = Advice(says, sources, 2 ** (more.bit_length() - 1))
    length = RULES["sequence_length"][situation][0]
    if size.value >= rules.AT_ONCE.value:
        length = rules.LONGER
    steps = tokens // size.value
    if steps < rules.LEAST_STEPS:
        raise ArgumentError(
            f"`tokens` must be at least {rules.LEAST_STEPS * size.value:,} here: "
            f"{rules.LEAST_STEPS} steps of {size.value:,} tokens. Received: tokens="
            f"{tokens}. Give more; or cut a checkpoint without training: "
            "`keras-idea shrink --refit`, or `keras_idea.shrink` with refit=True."
        )
    # So that a validation comes at the end of each stage.
    every = max(1, min(_EVERY, steps // _VALIDATIONS))
    steps -= steps % every
    return {
        "tokens_per_step": setting(size),
        "sequence_length": setting(length),
        "batch_size": given(
            size.value // length.value,
            f"{size.value:,} tokens in sequences of {length.value:,}",
        ),
        "total_steps": given(steps, f"{steps * size.value:,} of the {tokens:,} tokens"),
        "steps_per_epoch": given(every, "a divisor of the steps"),
    }


def _stages(
    steps: int, every: int, situation: Situation, rate: float
) -> dict[str, Setting]:
    if situation == "nothing":
        row = next(row for row in rules.ONE_WIDTH if rate <= row.most)
        wide, share = row.wide[0], row.prune[0]
        begin = max(1, round(wide.value * steps / every)) * every
        prune = max(1, round(share.value * (steps - begin)))
        return {
            "begin_step": setting(wide, begin),
            "prune_steps": setting(share, prune),
        }
    begins, share = (
        RULES["begin_step"][situation][0],
        RULES["prune_steps"][situation][0],
    )
    return {
        "begin_step": setting(begins),
        "prune_steps": setting(share, max(1, round(share.value * steps))),
    }


def _learning_rate(
    steps: int, parameters: int, situation: Situation
) -> dict[str, Setting]:
    if situation == "nothing":
        peak = setting(rules.FROM_NOTHING[parameters > rules.SMALL])
    else:
        row = next(row for row in rules.PEAKS if parameters <= row.most)
        least, most = row.measured
        alike = least <= parameters <= most
        # Of few tokens alone on the released checkpoints.
        says, sources, value = row.advice
        known = alike and (sources != "L" or situation == "very few")
        peak = setting(Advice(says, sources if known else "", value))
    warm, end = (RULES[n][situation][0] for n in ("warmup_steps", "end_learning_rate"))
    return {
        "peak_learning_rate": peak,
        "end_learning_rate": setting(end, float(f"{end.value * peak.value:.3g}")),
        "warmup_steps": setting(warm, max(1, round(warm.value * steps))),
    }


def _teacher(situation: Situation, rate: float, parameters: int) -> dict[str, Setting]:
    features, *otherwise = RULES["features"][situation]
    if otherwise and (rate > rules.FEATURES or parameters > rules.SMALL):
        features = otherwise[0]
    found = {
        "weight": setting(RULES["weight"][situation][0]),
        "temperature": setting(rules.TEMPERATURE),
        "features": setting(features),
    }
    return found | (
        {"top_k": setting(rules.TOP_K)} if parameters >= rules.LARGE else {}
    )


def _refit_windows(widest: int, length: int) -> Setting:
    """Sequences for the refit: at least as many tokens as a layer keeps neurons."""
    advice = RULES["refit"]["very few"][0]
    tokens = max(advice.value, 2 * widest)
    if tokens > advice.value:
        advice = Advice("two tokens for each neuron that stays", "")
    return setting(advice, -(-tokens // length))
