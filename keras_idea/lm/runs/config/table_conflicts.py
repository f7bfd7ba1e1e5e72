"""What the tables of a run's description must agree on.

Each function compares tables that were already checked one by one. On a conflict it
raises a `ConfigError` that names both keys and what to set.
"""

import math
from collections.abc import Iterable, Sequence

from keras_idea.errors import ConfigError
from keras_idea.lm.runs.config.chat_table import ChatConfig
from keras_idea.lm.runs.config.corpus_table import CorpusConfig
from keras_idea.lm.runs.config.elastic_conflicts import check_steps
from keras_idea.lm.runs.config.fields import divisors, nearest_multiple
from keras_idea.lm.runs.config.model_table import ModelConfig
from keras_idea.lm.runs.config.tables import (
    BudgetConfig,
    DataConfig,
    DistributionConfig,
    OptimizerConfig,
    PruningConfig,
    RunSettings,
)
from keras_idea.validation import multiples_beside, plural

# Methods that measure in the train step: each batch must be a whole step.
_MEASURING = ("activation", "learned_mask")
# Validations of a run that are never too many to be suggested.
_VALIDATIONS = 50


def check_schedule(budget: BudgetConfig, optimizer: OptimizerConfig) -> None:
    """The learning rate has the steps that it needs."""
    total = budget.planned_steps
    if optimizer.warmup_steps > total:
        raise ConfigError(
            "`optimizer.warmup_steps` must be at most the total of [budget], "
            f"{plural(total, 'step')}. Received: {optimizer.describe('warmup_steps')}. "
            f"Set `warmup_steps` to {max(1, total // 10)}, or use more steps in "
            "[budget]."
        )
    if optimizer.rewarm and not budget.enlarge_steps:
        raise ConfigError(
            "`optimizer.rewarm` needs a wide stage, after which the learning rate "
            f"warms up again. Received: {optimizer.describe('rewarm')}, with budget."
            f"{budget.describe('enlarge_steps')}. Set `rewarm` to 0."
        )


def check_accumulation(
    data: DataConfig,
    optimizer: OptimizerConfig,
    pruning: PruningConfig,
    run: RunSettings,
) -> None:
    """A step can be cut into parts, and the method works there."""
    parts, size = optimizer.gradient_accumulation_steps, data.batch_size
    method, received = pruning.method, optimizer.describe(_PARTS)
    if size % parts:
        raise ConfigError(
            f"`optimizer.{_PARTS}` must divide data.{data.describe('batch_size')}, "
            f"the sequences per step. Received: {received}. Set `data.batch_size` to "
            f"{nearest_multiple(size, parts)}{_or_near(_PARTS, size, parts)}."
        )
    if run.dtype == "mixed_float16" and method == "learned_mask":
        raise ConfigError(
            "`run.dtype` cannot be 'mixed_float16' with pruning.method='learned_mask', "
            "which weighs the gradient of the loss against another, and mixed_float16 "
            f"scales the loss. Received: {run.describe('dtype')}. Set `run.dtype` "
            'to "mixed_bfloat16".'
        )
    if parts > 1 and method in _MEASURING:
        raise ConfigError(
            f"`optimizer.{_PARTS}` must be 1 with pruning.method={method!r}, which "
            f"measures one batch per step. Received: {received}. Delete it, or set "
            '`pruning.method` to "sensitivity".'
        )


def check_heads(model: ModelConfig, pruning: PruningConfig) -> None:
    """The method can rank heads, if they are pruned."""
    if "kv_groups" in model.pruned_kinds and pruning.method in _MEASURING:
        raise ConfigError(
            f"`pruning.method` cannot be {pruning.method!r} where key/value heads are "
            "pruned: it looks at hidden activations, and no single layer is called on "
            f"those of heads. Received: {pruning.describe('method')}, with [model] "
            f"{', '.join(model.pruned_kinds)}. Set `pruning.method` to "
            '"sensitivity" or "random".'
        )


_PARTS = "gradient_accumulation_steps"


def check_sequences(
    data: DataConfig, optimizer: OptimizerConfig, distribution: DistributionConfig
) -> None:
    """The devices divide the sequences of a step."""
    rows, parts = distribution.size[0], optimizer.gradient_accumulation_steps
    at_once = data.batch_size // parts
    if at_once % rows:
        sequences = nearest_multiple(at_once, rows) * parts
        raise ConfigError(
            "`distribution.mesh` must divide the sequences computed at once along its "
            f"data axis: data.{data.describe('batch_size')} / optimizer."
            f"{optimizer.describe(_PARTS)} = {at_once}. Received: data={rows}. Set "
            f"`data.batch_size` to {sequences}{_or_near('data', at_once, rows)}."
        )


def check_text(
    model: ModelConfig, data: DataConfig, corpus: CorpusConfig, chat: ChatConfig
) -> None:
    """One text is read, and the model has tokens for it."""
    if chat.given and (corpus.given or data.text != DataConfig.text):
        other = "[corpus]" if corpus.given else "`data.text`"
        raise ConfigError(
            f"{other} and [chat] cannot both be given: a run reads one of them. "
            f"Received: {chat.describe('paths')}, with {other}. Delete one of them."
        )
    if chat.given and not model.uses_keras_hub:
        raise ConfigError(
            "[chat] needs a KerasHub model, whose tokenizer has the tokens of a chat "
            f"template. Received: {chat.describe('paths')}, without `model.preset` and "
            "`model.hub`. Set `model.preset` to a tuned model."
        )
    if corpus.given and data.text != DataConfig.text:
        raise ConfigError(
            "`data.text` and [corpus] cannot both be given: a run reads one of them. "
            f"Received: {data.describe('text')}, with [corpus]. Delete one of them."
        )


def check_validations(budget: BudgetConfig, run: RunSettings) -> None:
    """A validation falls on the end of each stage."""
    every = run.validate_every
    enlarge, total = budget.enlarge_steps, budget.planned_steps
    if budget.extend_steps % every:
        raise ConfigError(
            "`budget.extend_steps` (--extend-steps) must be a multiple of "
            f"run.{run.describe('validate_every')}. Received: "
            f"{budget.describe('extend_steps')}. Give "
            f"{multiples_beside(budget.extend_steps, every)}."
        )
    if not (enlarge % every or total % every):
        return
    if budget.steps is not None:
        check_steps(budget, run)
    known = f"budget.{budget.describe('enlarge_steps')}"
    valid = divisors(math.gcd(enlarge, total))
    useful = [n for n in valid if total // n <= _VALIDATIONS or n >= every / 2]
    if useful:
        cure = f"Set `validate_every` to {_either(_around(useful, every))}."
    else:
        cure = f"Set {_steps_for(budget, every)}."
    raise ConfigError(
        f"`run.validate_every` must divide {known} and the total of [budget], "
        f"{plural(total, 'step')}. Received: {run.describe('validate_every')}. "
        f"{cure}"
    )


def _steps_for(budget: BudgetConfig, every: int) -> str:
    """The steps of [budget] nearest to the run's that `every` divides."""
    enlarge = nearest_multiple(budget.enlarge_steps, every)
    enlarge = enlarge if budget.enlarge_steps else 0
    least = -(-(enlarge + budget.prune_steps) // every) * every
    total = max(least, nearest_multiple(budget.planned_steps, every))
    wanted = {
        "enlarge_steps": enlarge,
        "recover_steps": total - enlarge - budget.prune_steps,
    }
    return " and ".join(
        f"`budget.{name}` to {steps}"
        for name, steps in wanted.items()
        if steps != getattr(budget, name)
    )


def check_checkpoints(run: RunSettings) -> None:
    """A checkpoint falls on a validation."""
    every, wanted = run.validate_every, run.checkpoint_every
    if wanted is not None and wanted % every:
        near = [wanted // every * every, -(-wanted // every) * every]
        raise ConfigError(
            f"`run.checkpoint_every` must be a multiple of run."
            f"{run.describe('validate_every')}. Received: "
            f"{run.describe('checkpoint_every')}. "
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
