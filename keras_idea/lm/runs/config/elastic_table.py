"""The table `[elastic]` of a run's description: several widths, trained together."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_idea.elastic.draw import SANDWICH, TURN, Sample, check_sample
from keras_idea.elastic.widths import FULL, check_widths
from keras_idea.errors import ArgumentError, ConfigError
from keras_idea.finding.targets import target_width
from keras_idea.groups.kinds import KindName
from keras_idea.lm.runs.config import fields
from keras_idea.lm.runs.config.model_table import ModelConfig
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.validation import check_choice, plural

#: Keys of other tables that say how a model is pruned; None: every key.
_OF_PRUNING: Mapping[str, tuple[str, ...] | None] = {
    "pruning": None,
    "model": (
        "target_dim",
        "targets",
        "kinds",
        "target_parameters",
        "target_bytes",
        "target_flops",
        "target_dtype",
        "round_to",
    ),
    "budget": ("enlarge_steps", "prune_steps", "recover_steps"),
}
_CURES = {
    "pruning": "Delete the table, or delete [elastic]. To do both, prune first, and "
    "set `model.preset` to the narrow model in a second run.",
    "model": "Delete `{key}`: `elastic.widths` says how wide the models are.",
    "budget": "Set `budget.steps`, all steps of the run, and `elastic.begin_step`.",
}


def is_elastic(received: Mapping[str, Any]) -> bool:
    """Whether the tables of a TOML file describe a run with several widths."""
    table = received.get("elastic")
    return isinstance(table, Mapping) and "widths" in table


def refuse_pruning(received: Mapping[str, Any]) -> None:
    """Refuses what the tables of a run with [elastic] say of pruning."""
    for table, keys in _OF_PRUNING.items():
        given = received.get(table, {})
        for key in given if isinstance(given, Mapping) else ():
            if keys is None or key in keys:
                raise ConfigError(
                    f"`{table}.{key}` and [elastic] cannot both be given: a run with "
                    f"[elastic] prunes nothing. Received: {key}={given[key]!r}. "
                    f"{_CURES[table].format(key=key)}"
                )


def without_pruning(tables: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The tables of a run with [elastic], without what says how a model is pruned."""
    return {
        table: {key: value for key, value in keys.items() if key not in left_out}
        for table, keys in tables.items()
        if (left_out := _OF_PRUNING.get(table, ())) is not None
    }


def _check_widths(name: str, value: Any) -> dict[str, int | float]:
    try:
        widths = check_widths(value)
    except ArgumentError as error:
        raise ArgumentError(f"[elastic] {error}") from None
    numbers: dict[str, int | float] = {}
    for width, size in widths.items():
        if isinstance(size, Mapping):
            raise ArgumentError(
                f"`{name}.{width}` must be one number for all FFNs: neurons, or the "
                f"share of them. Received: {width}={value[width]!r}. For other widths "
                "in each FFN, use `keras_idea.ElasticCallback` in a script."
            )
        numbers[width] = size
    return numbers


def _check_sample(name: str, value: Any) -> Any:
    """A sample of its kind; `_check_together` knows the names of the widths."""
    return value if isinstance(value, Mapping) else check_choice(name, value, _SAMPLES)


_SAMPLES = (TURN, SANDWICH)


@dataclasses.dataclass(frozen=True)
class ElasticConfig(fields.Table):
    """`[elastic]`: several widths of one model, as `keras_idea.ElasticCallback`.

    Nothing is pruned. The run has `budget.steps` optimizer steps, those up to
    `begin_step` at full width alone. A teacher of `[distillation]` teaches every width.
    """

    table = "elastic"
    widths: Mapping[str, int | float] | None = fields.optional(_check_widths)
    begin_step: int = fields.integer(0, minimum=0)
    sample: Sample = fields.checked(TURN, _check_sample)
    teacher: str | None = fields.optional(fields.one_of("self"))
    teacher_weight: float = fields.number(0.5, minimum=0.0, maximum=1.0)
    seed: int = fields.integer(0, minimum=0)

    @property
    def given(self) -> bool:
        """bool, whether the run trains several widths."""
        return self.widths is not None

    @property
    def several_passes(self) -> bool:
        """bool, whether a step computes several widths."""
        return self.sample == SANDWICH or self.teacher is not None

    def _check_together(self) -> None:
        if self.widths is None:
            for field in dataclasses.fields(self):
                if getattr(self, field.name) != field.default:
                    raise ConfigError(
                        "[elastic] needs `widths`, such as { small = 0.25, medium = "
                        f"0.5 }}. Received: {self.describe(field.name)}. Set "
                        "`elastic.widths`, or delete the table."
                    )
            return
        try:
            check_sample(self.sample, list(self.widths))
        except ArgumentError as error:
            raise ConfigError(f"[elastic] {error}") from None

    def neurons(self, full: int) -> dict[str, int]:
        """The neurons of each FFN at each width, of a model with `full`; "full" first.

        Raises:
            ConfigError: if a width is not below `full`, or two are equal.
        """
        found = {FULL: full}
        for name, size in (self.widths or {}).items():
            neurons = target_width(size, full, round_to=1)
            same = next((key for key, n in found.items() if n == neurons), None)
            if neurons > full or same is not None:
                what = (
                    f"the same as '{same}'" if same else f"more than the {full} at full"
                )
                raise ConfigError(
                    f"`elastic.widths` must be widths of their own, below "
                    f"{plural(full, 'neuron')} per FFN. Received: {name}={size!r}, "
                    f"which are {neurons}, {what}. Set another width, or delete it."
                )
            found[name] = neurons
        return found


class UnprunedModelConfig(ModelConfig):
    """`[model]` of a run with [elastic]: it ends as wide as it begins."""

    def _check_how_narrow(self) -> None:
        """Nothing says it: `refuse_pruning`."""

    @property
    def pruned_kinds(self) -> tuple[KindName, ...]:
        """Tuple of the kinds whose units are ranked."""
        return ("neurons",)

    def sizes_at_end(self, start: Sizes) -> Sizes:
        """As wide as at the start."""
        return start
