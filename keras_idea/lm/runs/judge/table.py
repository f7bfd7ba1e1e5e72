"""What a model was judged to be, printed."""

import rich.console
import rich.table

from keras_idea.lm.evaluation.perplexity import Perplexity
from keras_idea.validation import plural


def print_text(found: Perplexity) -> None:
    """Prints what `judge_text` found as a table."""
    metrics = {
        "bits per byte": f"{found.bits_per_byte:.4f}",
        "perplexity per token": f"{found.per_token:.4f}",
        "predicted tokens": f"{found.tokens:,}",
    }
    if found.window is not None and found.stride is not None:
        metrics["window"] = plural(found.window, "token")
        metrics["stride"] = plural(found.stride, "token")
    if found.start_id is not None:
        metrics["every window begins with"] = f"the start token, {found.start_id}"
    _print({"text": metrics})


def print_tasks(found: dict[str, dict[str, float]]) -> None:
    """Prints what `judge_tasks` found as a table."""
    _print(
        {
            task: {name: f"{value:.4f}" for name, value in metrics.items()}
            for task, metrics in found.items()
        }
    )


def _print(groups: dict[str, dict[str, str]]) -> None:
    table = rich.table.Table("judged by", "metric", "value", box=None)
    for group, metrics in groups.items():
        for i, (name, value) in enumerate(metrics.items()):
            table.add_row("" if i else group, name, value)
    rich.console.Console().print(table)
