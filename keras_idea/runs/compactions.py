"""When the model of a run becomes physically narrower, and how narrow."""

from keras_idea.callbacks.narrowing import compaction_widths
from keras_idea.runs.build import pruning


def compactions(config, hidden_dim, target_dim):
    """The compactions of a run, inside its `fit`.

    Args:
        config: `RunConfig`.
        hidden_dim: int, neurons of an FFN before pruning.
        target_dim: int, and after it.

    Returns:
        dict of the step after which the model becomes narrower to the neurons of an
        FFN from there on; ascending.
    """
    prune, settings = pruning(config, target_dim), config.pruning
    schedule = prune.method.width_schedule(
        hidden_dim,
        target_dim,
        prune.begin_step,
        prune.prune_steps,
        settings.update_every,
    )
    return compaction_widths(settings.compact, schedule, prune.end_step)
