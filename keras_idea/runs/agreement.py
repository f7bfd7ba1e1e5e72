"""What the tables of a run's description must agree on."""

import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from keras_idea.errors import ConfigError
from keras_idea.runs.fields import divisors, nearest_multiple
from keras_idea.runs.tables import DataConfig
from keras_idea.validation import plural

if TYPE_CHECKING:  # it calls this
    from keras_idea.runs.config import RunConfig

# Methods that measure in the train step, a batch of which must be a step.
_MEASURING = ("activation", "learned_mask")
# Validations of a run that are never too many to be suggested.
_VALIDATIONS = 50


def check_agreement(config: "RunConfig") -> None:
    """Rejects tables that contradict each other.

    Args:
        config: `RunConfig`. Its tables are checked each for itself.

    Raises:
        ConfigError: for the first contradiction; names both keys and what to set.
    """
    for check in (
        _check_schedule,
        _check_accumulation,
        _check_mesh,
        _check_paths,
        _check_validations,
        _check_checkpoints,
    ):
        check(config)


def _check_schedule(config: "RunConfig") -> None:
    total, optimizer = config.budget.total_steps, config.optimizer
    if optimizer.warmup_steps > total:
        raise ConfigError(
            "`optimizer.warmup_steps` must be at most the total of [budget], "
            f"{plural(total, 'step')}. Received: {optimizer.told('warmup_steps')}. "
            f"Set `warmup_steps` to {max(1, total // 10)}, or use more steps in "
            "[budget]."
        )
    if optimizer.rewarm and not config.budget.enlarge_steps:
        raise ConfigError(
            "`optimizer.rewarm` needs a wide stage, after which the learning rate "
            f"warms up again. Received: {optimizer.told('rewarm')}, with budget."
            f"{config.budget.told('enlarge_steps')}. Set `rewarm` to 0."
        )


def _check_accumulation(config: "RunConfig") -> None:
    parts, size = config.micro_batches, config.data.batch_size
    method, received = config.pruning.method, config.optimizer.told(_PARTS)
    if size % parts:
        raise ConfigError(
            f"`optimizer.{_PARTS}` must divide data.{config.data.told('batch_size')}, "
            f"the sequences per step. Received: {received}. Set `data.batch_size` to "
            f"{nearest_multiple(size, parts)}{_or_near(_PARTS, size, parts)}."
        )
    if config.run.dtype == "mixed_float16" and method == "learned_mask":
        raise ConfigError(
            "`run.dtype` cannot be 'mixed_float16' with pruning.method='learned_mask', "
            "which weighs the gradient of the loss against another, and mixed_float16 "
            f"scales the loss. Received: {config.run.told('dtype')}. Set `run.dtype` "
            'to "mixed_bfloat16".'
        )
    if parts > 1 and method in _MEASURING:
        raise ConfigError(
            f"`optimizer.{_PARTS}` must be 1 with pruning.method={method!r}, which "
            f"measures one batch per step. Received: {received}. Delete it, or set "
            '`pruning.method` to "sensitivity".'
        )


_PARTS = "gradient_accumulation_steps"


def _check_mesh(config: "RunConfig") -> None:
    rows, parts = config.distribution.size[0], config.micro_batches
    at_once = config.data.batch_size // parts
    if at_once % rows:
        sequences = nearest_multiple(at_once, rows) * parts
        raise ConfigError(
            "`distribution.mesh` must divide the sequences computed at once along its "
            f"data axis: data.{config.data.told('batch_size')} / optimizer."
            f"{config.optimizer.told(_PARTS)} = {at_once}. Received: data={rows}. Set "
            f"`data.batch_size` to {sequences}{_or_near('data', at_once, rows)}."
        )


def _check_paths(config: "RunConfig") -> None:
    preset, output = config.model.preset, pathlib.Path(config.run.output).resolve()
    if preset is not None and output in pathlib.Path(preset).resolve().parents:
        raise ConfigError(
            "`model.preset` must not be inside run.output, which the run may replace. "
            f"Received: preset={preset!r}, with run.{config.run.told('output')}. Set "
            "`run.output` to another folder."
        )
    if config.corpus.given and config.data.text != DataConfig.text:
        raise ConfigError(
            "`data.text` and [corpus] cannot both be given: a run reads one of them. "
            f"Received: {config.data.told('text')}, with [corpus]. Delete one of them."
        )


def _check_validations(config: "RunConfig") -> None:
    budget, every = config.budget, config.run.validate_every
    enlarge, total = budget.enlarge_steps, budget.total_steps
    if not (enlarge % every or total % every):
        return
    known = f"budget.{budget.told('enlarge_steps')}"
    valid = divisors(math.gcd(enlarge, total))
    useful = [n for n in valid if total // n <= _VALIDATIONS or n >= every / 2]
    if useful:
        cure = f"Set `validate_every` to {_either(_around(useful, every))}."
    else:
        cure = f"Set {_steps_for(config)}."
    raise ConfigError(
        f"`run.validate_every` must divide {known} and the total of [budget], "
        f"{plural(total, 'step')}. Received: {config.run.told('validate_every')}. "
        f"{cure}"
    )


def _steps_for(config: "RunConfig") -> str:
    """The steps of [budget] nearest to the run's that `validate_every` divides."""
    budget, every = config.budget, config.run.validate_every
    enlarge = nearest_multiple(budget.enlarge_steps, every)
    enlarge = enlarge if budget.enlarge_steps else 0
    least = -(-(enlarge + budget.prune_steps) // every) * every
    total = max(least, nearest_multiple(budget.total_steps, every))
    wanted = {
        "enlarge_steps": enlarge,
        "recover_steps": total - enlarge - budget.prune_steps,
    }
    return " and ".join(
        f"`budget.{name}` to {steps}"
        for name, steps in wanted.items()
        if steps != getattr(budget, name)
    )


def _check_checkpoints(config: "RunConfig") -> None:
    run = config.run
    every, wanted = run.validate_every, run.checkpoint_every
    if wanted is not None and wanted % every:
        near = [wanted // every * every, -(-wanted // every) * every]
        raise ConfigError(
            f"`run.checkpoint_every` must be a multiple of run."
            f"{run.told('validate_every')}. Received: {run.told('checkpoint_every')}. "
            f"Set `checkpoint_every` to {_either(filter(None, near))}."
        )


def _around(valid: Sequence[int], wanted: int) -> list[int]:
    """The greatest at most as large as `wanted` and the least that is larger."""
    below = [n for n in valid if n <= wanted]
    return below[-1:] + [n for n in valid if n > wanted][:1]


def _or_near(name: str, value: int, wanted: int) -> str:
    """The divisors of `value` that are not far from `wanted`, as another way out."""
    near = _around(divisors(value), wanted)
    useful = [n for n in near if wanted / 2 <= n <= 2 * wanted]
    return f", or `{name}` to {_either(useful)}" if useful else ""


def _either(values: Iterable[int]) -> str:
    return " or ".join(map(str, values))
