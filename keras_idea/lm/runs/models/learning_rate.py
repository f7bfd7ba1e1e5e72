"""The learning rate of a run described in TOML, step by step."""

import keras

from keras_idea.lm.runs.config.tables import BudgetConfig, OptimizerConfig
from keras_idea.schedules import CosineDecay, StagedSchedule
from keras_idea.schedules.learning_rate import AnnealedCosine


def learning_rate(
    settings: OptimizerConfig, budget: BudgetConfig, pruned: bool = True
) -> keras.optimizers.schedules.LearningRateSchedule:
    """The learning rate by optimizer step: a warm-up, one cosine over the budget.

    With `optimizer.rewarm` a second one, as high as that share of the peak, over the
    steps from the beginning of the pruning on. It ends at the end rate, after a warm-up
    of a quarter of these steps at most. The model that is trained narrow from scratch,
    not `pruned`, has one cosine always. In `budget.extend_steps` it stays what it is at
    the end of the planned steps.
    """
    enlarge, total = budget.enlarge_steps, budget.planned_steps
    peak, end = settings.peak_learning_rate, settings.end_learning_rate
    whole = CosineDecay(peak, end, total, settings.warmup_steps)
    if not (pruned and settings.rewarm):
        return whole
    rest = total - enlarge
    warmup = min(settings.warmup_steps, rest // 4)
    again = AnnealedCosine(settings.rewarm * peak, end, rest, warmup)
    return StagedSchedule([(whole, enlarge), (again, rest)])
