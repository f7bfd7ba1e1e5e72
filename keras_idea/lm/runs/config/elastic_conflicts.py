"""What other tables of a run's description must say beside `[elastic]`."""

from keras_idea.errors import ConfigError
from keras_idea.lm.runs.config.elastic_table import ElasticConfig
from keras_idea.lm.runs.config.tables import (
    BudgetConfig,
    DistillationConfig,
    DistributionConfig,
    OptimizerConfig,
    RunSettings,
)
from keras_idea.validation import plural


def check_elastic(
    elastic: ElasticConfig,
    budget: BudgetConfig,
    optimizer: OptimizerConfig,
    distillation: DistillationConfig,
    distribution: DistributionConfig,
    run: RunSettings,
) -> None:
    """A run trains several widths, or prunes; refuses what belongs to the other."""
    if not elastic.given:
        if budget.steps is not None:
            raise ConfigError(
                "`budget.steps` is for a run with [elastic]: one that prunes has three "
                f"stages. Received: {budget.describe('steps')}. Set `enlarge_steps`, "
                "`prune_steps` and `recover_steps`, or add [elastic]."
            )
        return
    if elastic.begin_step >= budget.planned_steps:
        raise ConfigError(
            "`elastic.begin_step` must be below budget."
            f"{budget.describe('steps')}, or no step is at another width. Received: "
            f"{elastic.describe('begin_step')}. Set `begin_step` to "
            f"{budget.planned_steps // 4}, or use more steps."
        )
    if optimizer.rewarm:
        raise ConfigError(
            "`optimizer.rewarm` is for a run that prunes, and there is [elastic]. "
            f"Received: {optimizer.describe('rewarm')}. Set `rewarm` to 0."
        )
    for table, key in ((run, "compare_from_scratch"), (distillation, _ALONE)):
        if getattr(table, key):
            raise ConfigError(
                f"`{table.table}.{key}` compares with one narrow model, and a run with "
                f"[elastic] has several. Received: {key}=True. Set it to false, and "
                "train what you compare with in a run of its own."
            )
    if distribution.mesh is not None:
        raise ConfigError(
            "`distribution.mesh` and [elastic] cannot both be given: steps at several "
            "widths were not compared on several devices yet. Received: "
            f"{distribution.describe('mesh')}. Delete `mesh`."
        )
    _check_passes(elastic, distillation, run)


_ALONE = "compare_without"


def _check_passes(
    elastic: ElasticConfig, distillation: DistillationConfig, run: RunSettings
) -> None:
    """Several passes in a step: where they would be wrong, or have two teachers."""
    if distillation.teacher is not None and elastic.teacher is not None:
        raise ConfigError(
            "`distillation.teacher` and elastic.teacher='self' cannot both be given: "
            "the first teaches all widths already. Received: "
            f"{distillation.describe('teacher')}. Delete one of them."
        )
    if elastic.several_passes and run.rematerialize:
        given = "teacher" if elastic.teacher is not None else "sample"
        raise ConfigError(
            f"`run.rematerialize` cannot be true with elastic."
            f"{elastic.describe(given)}, which computes several widths in one step: a "
            "block would be computed again at the wrong one. Received: "
            "rematerialize=True. Set `run.rematerialize` to false, or `elastic.sample` "
            'to "turn", without a teacher.'
        )


def check_steps(budget: BudgetConfig, run: RunSettings) -> None:
    """A validation falls on the last step."""
    every, total = run.validate_every, budget.planned_steps
    if total % every:
        near = sorted({max(1, total // every) * every, -(-total // every) * every})
        raise ConfigError(
            f"`run.validate_every` must divide budget.steps, {plural(total, 'step')}. "
            f"Received: {run.describe('validate_every')}. Set `budget.steps` to "
            f"{' or '.join(map(str, near))}, or another `validate_every`."
        )
