"""The tables of docs/recommended_settings.md, from the rules that the package follows.

What no run is set to, and the situations that `keras_idea.recommended` does not know,
are told here.
"""

from collections.abc import Sequence

from keras_idea.settings import rules
from keras_idea.settings.rules import RULES, Advice

COLUMNS = {
    "nothing": "(a) From nothing, several widths",
    "many": f"(b) Checkpoint, {rules.MANY:g} token per parameter or more",
    "few": f"(c) Checkpoint, {rules.FEW:g} to {rules.MANY:g}",
    "very few": "(d) Checkpoint, fewer: cut, refit, recover",
    "at once": "(e) Smaller at once, no training",
}
#: Rows that no run is set to, by the columns' order.
_TOLD = {
    "start from": (
        "[one_run_branches.py](../examples/one_run_branches.py); jointly: "
        "[one_run_a_family.py](../examples/one_run_a_family.py)",
        "[`keras-idea new`](command_line.md#a-trained-checkpoint), or "
        "[the guide](guides/released_checkpoint.py)",
        "as (b)",
        "as (b)",
        "`ki.shrink` ([guide](guides/several_axes.py))",
    ),
    "`kinds`": (
        "neurons [F]",
        "neurons [D]",
        "neurons for a small cut; [blocks first](#which-kinds) for a larger one [H]",
        "neurons [L]",
        "what `ki.search` finds over all kinds [H]",
    ),
    "peak learning rate": (
        "that of a narrow model, or half of it [F], [M]",
        "1/3 of the pretraining peak [D]; the whole peak worked too [T]. Larger "
        "models, 1/10 to all of it: *estimate*",
        "1/4 of the pretraining peak [C], [H]; not searched. Larger models, 1/10 to "
        "1/2: *estimate*",
        "[by the size](#the-peak-by-the-size) [L]",
        "–",
    ),
    "`rewarm`": (
        "0 ([one width](#one-width-from-nothing))",
        "0 (a run without a wide stage raises an error otherwise)",
        "as (b)",
        "as (b)",
        "–",
    ),
    "recovery": (
        "390 steps per width, 15 tokens per parameter of the narrowest [F]",
        "200 of 300 steps, 3 tokens per parameter [D]; more is better: *estimate*",
        "180 of 240 steps, 0.2 tokens per parameter [C], [H]",
        "127 of 128 steps, 0.0005 tokens per parameter [L]",
        "–",
    ),
    "`update_every`": ("1 [F]", "1 [D]", "1 [C], [H]", "–", "–"),
    "`compact`": ('"end" [F]', '"end" [D]', '"end" [C], [H]', '"end" [L]', "–"),
}
#: Cells of `RULES` of what `keras_idea.recommended` does not know.
_CELLS = {
    "nothing": {
        "begin_step": "half of the steps, without the recoveries [F]",
        "prune_steps": "per width, a third of the wide stage [F]",
        "weight": "none [F]",
        "refit": "no",
    },
    "many": {"refit": "no (gradual pruning does not support it)"},
    "few": {"refit": "no: [gradual pruning was as good](#how-many-tokens) [R]"},
    "at once": {
        "by_weights": "yes: in the notes [L]",
        "method": '"activation" (default) [C]',
        "target_dim": "0.69: loss +0.040; 0.38: +0.155 [C]",
        "round_to": "[see below](#round_to)",
        "refit": "yes [R]",
    },
}
#: The rows of the page in its order: what a row is called, its setting or "".
ROWS = {
    "start from": "",
    "`method`": "method",
    "`by_weights`": "by_weights",
    "share of neurons to keep": "target_dim",
    "`kinds`": "",
    "`begin_step`": "begin_step",
    "`prune_steps`": "prune_steps",
    "peak learning rate": "",
    "warm-up": "warmup_steps",
    "curve": "end_learning_rate",
    "`rewarm`": "",
    "tokens per step": "tokens_per_step",
    "tokens per sequence": "sequence_length",
    "`round_to`": "round_to",
    "teacher": "weight",
    "its block outputs": "features",
    "`refit`": "refit",
    "recovery": "",
    "`update_every`": "",
    "`compact`": "",
}


def cell(advice: Sequence[Advice]) -> str:
    """A cell of a table: each advice with the letters of its measurements.

    Example:
    >>> cell([Advice("32", "D"), Advice("64", "")])
    '32 [D]; 64: *estimate*'
    """
    return "; ".join(map(_told, advice))


def _told(advice: Advice) -> str:
    letters = ", ".join(f"[{letter}]" for letter in advice.sources)
    return f"{advice.says} {letters}" if letters else f"{advice.says}: *estimate*"


def table() -> str:
    """The table of the settings, and what is said of longer runs."""
    lines = [f"| | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, setting in ROWS.items():
        cells = _TOLD.get(name) or [_cell(setting, column) for column in COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    size = f"from {rules.LARGE / 1e9:g} billion parameters on"
    longer = {
        "tokens per step": rules.MORE_TOKENS,
        "tokens per sequence": rules.LONGER,
        "`gradient_accumulation_steps`": rules.AT_ONCE,
        f"`top_k = {rules.TOP_K.value}`, {size}": rules.TOP_K,
        f"`rematerialize = true`, {size}": rules.REMATERIALIZE,
        f'`dtype = "{rules.MIXED.value}"`': rules.MIXED,
        "`round_to`": rules.ROUND_ON_DEVICES,
        "`round_to`, small models": rules.AS_IT_IS,
    }
    lines += ["", "For larger runs, other devices and small models:", ""]
    lines += ["| | |", "|---|---|"]
    lines += [f"| {name} | {_told(advice)} |" for name, advice in longer.items()]
    return "\n".join(lines)


def _cell(setting: str, column: str) -> str:
    advice = RULES[setting].get(column, ())
    return cell(advice) or _CELLS.get(column, {}).get(setting, "–")


def peaks() -> str:
    """The peaks by size."""
    lines = ["| parameters, at most | peak | |", "|---:|---:|---|"]
    for row in rules.PEAKS:
        most = "any" if row.most > 1e12 else f"{row.most / 1e6:g} million"
        lines.append(f"| {most} | {row.advice.value:g} | {_told(row.advice)} |")
    small, large = rules.FROM_NOTHING
    for name, advice in (("from nothing", small), ("from nothing, more", large)):
        lines.append(f"| {name} | {advice.value:g} | {_told(advice)} |")
    return "\n".join(lines)


#: What is known of a second warm-up, by the rows of `ONE_WIDTH`.
_REWARM = (
    "1.0 gained 0.027 ± 0.007 at 10 (not significant), 0.006 ± 0.001 at 30 [W]",
    "0: *estimate*; if half of the steps are wide, 1.0 gained 0.016 ± 0.002 [W]",
    "0: *estimate*; if half of the steps are wide, 1.0 gained 0.021 ± 0.002 [W]",
)


def one_width() -> str:
    """The stages of a run from nothing."""
    lines = [
        "| tokens per parameter of the narrow model | wide stage | `prune_steps`, "
        "share of the rest | `rewarm` |",
        "|---|---|---|---|",
    ]
    for row, rewarm in zip(rules.ONE_WIDTH, _REWARM, strict=True):
        stages = f"{cell(row.wide)} | {cell(row.prune)}"
        lines.append(f"| {row.tokens} | {stages} | {rewarm} |")
    return "\n".join(lines)


BLOCKS = {
    "settings": table,
    "settings-peaks": peaks,
    "settings-one-width": one_width,
}
