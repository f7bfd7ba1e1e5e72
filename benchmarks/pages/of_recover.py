"""What a checkpoint loses, by recipe and tokens of recovery, as a block of pages."""

import functools
import json
import math

from benchmarks.intervals import Estimate, estimate, plus_minus
from benchmarks.pages.words import signed, table
from benchmarks.record import REPOSITORY

RECORD = REPOSITORY / "benchmarks/results/recover_tokens.json"
SHARES, STEPS = (0.7, 0.4), (0, 48, 192, 768)
#: Of all models of the study.
TOKENS_A_STEP, PARAMETERS = 1024, 763_104
#: The steps after which the first checkpoint's peaks were compared, and how many.
SEARCHED, PEAKS = 192, 3
#: Arms that the page shows; a comma is a "+" in the record.
ARMS = (
    "gradual, teacher and features",
    "gradual, teacher",
    "gradual",
    "one step, refit, teacher and features",
    "one step, refit, teacher",
    "one step, refit, features",
    "one step, refit",
    "one step",
)
#: The narrow model trained on the tokens of the checkpoint and of the recovery.
ALL_TOKENS = "from scratch, all tokens"
#: What is changed: the arm with it, the arm without it.
CHANGES = {
    "a teacher": ("gradual, teacher", "gradual"),
    "a refit": ("one step, refit", "one step"),
    "a refit, if there is a teacher": (
        "one step, refit, teacher",
        "one step, teacher",
    ),
    "gradual instead of one step and refit, with a teacher": (
        "gradual, teacher",
        "one step, refit, teacher",
    ),
    "features besides a teacher": (
        "gradual, teacher and features",
        "gradual, teacher",
    ),
    "features besides a teacher, after a refit": (
        "one step, refit, teacher and features",
        "one step, refit, teacher",
    ),
    "gradual instead of one step and refit, with both": (
        "gradual, teacher and features",
        "one step, refit, teacher and features",
    ),
    "gradual with a teacher instead of from scratch on all tokens": (
        "gradual, teacher",
        ALL_TOKENS,
    ),
}


@functools.cache
def cells() -> dict[tuple, float]:
    """(seed, arm, share, steps, peak) to bits per byte; (seed,): the checkpoint's."""
    record, found = json.loads(RECORD.read_text(encoding="utf-8")), {}
    for name, bits in record["bits"].items():
        seed, _, rest = name.partition("-")
        if rest == "checkpoint":
            found[int(seed),] = bits
            continue
        arm, share, steps, peak = rest.split("-", 3)
        arm = arm.replace("+", ", ")
        found[int(seed), arm, float(share), int(steps), float(peak)] = bits
    return found


def peak(arm: str, share: float) -> float | None:
    """The best peak of an arm, of those searched; None: not all were."""
    tried = {
        at[4]: bits
        for at, bits in cells().items()
        if at[:4] == (0, arm, share, SEARCHED)
    }
    wanted = 1 if arm == ALL_TOKENS else PEAKS
    return min(tried, key=tried.__getitem__) if len(tried) == wanted else None


def bits(arm: str, share: float, steps: int) -> dict[int, float]:
    """Bits per byte by seed of what was run."""
    rate = peak(arm, share) if steps else 0.0
    seeds = [at[0] for at in cells() if len(at) == 1]
    found = {seed: cells().get((seed, arm, share, steps, rate)) for seed in seeds}
    return {seed: value for seed, value in found.items() if value is not None}


def lost(arm: str, share: float, steps: int) -> Estimate | None:
    """Bits per byte above the checkpoint's, over checkpoints; None: not run."""
    own = bits(arm, share, steps)
    return estimate(value - cells()[seed,] for seed, value in own.items())


def changed(arm: str, rival: str, share: float, steps: int) -> Estimate | None:
    """An arm minus a rival, over the checkpoints of both; None: not run."""
    own, other = bits(arm, share, steps), bits(rival, share, steps)
    return estimate(own[seed] - other[seed] for seed in sorted(own.keys() & other))


def recover_tokens() -> str:
    """Losses by share, arm and tokens; then what each part of a recipe changes."""
    losses = [_of_share(share) for share in SHARES]
    found = [lost(arm, share, n) for arm in ARMS for share in SHARES for n in STEPS]
    counts = {value.count for value in found if value}
    note = (
        "Loss in bits per byte above the checkpoint's, by tokens of recovery (tokens "
        "per parameter in parentheses); the best of a column is bold. "
        f"{plus_minus(counts, 'checkpoints')} The peak of the learning rate was "
        "searched for each row and share, on one checkpoint."
    )
    return "\n\n".join([*losses, note, _differences()])


def _of_share(share):
    """The table of a share: a row an arm."""
    columns = [[lost(arm, share, steps) for arm in ARMS] for steps in STEPS]
    best = [min((x.mean for x in c if x), default=math.nan) for c in columns]
    header = [f"{share:.0%} of the neurons", *map(_tokens, STEPS)]
    rows = [
        [arm, *(_cell(c[i], b) for c, b in zip(columns, best, strict=True))]
        for i, arm in enumerate(ARMS)
    ]
    return table([header, *rows])


def _differences():
    """The table of the changes: differences of pairs."""
    places = [(share, steps) for share in SHARES for steps in STEPS]
    header = [f"{share:.0%}, {_thousands(steps)}" for share, steps in places]
    found = {
        name: [changed(*arms, *place) for place in places]
        for name, arms in CHANGES.items()
    }
    known = [i for i in range(len(places)) if any(row[i] for row in found.values())]
    rows = [
        [name, *("–" if row[i] is None else _difference(row[i]) for i in known)]
        for name, row in found.items()
    ]
    lines = [["what is changed", *(header[i] for i in known)], *rows]
    return (
        f"{table(lines)}\n\nDifferences of pairs, by share of the neurons and tokens; "
        "negative: the change lowered the loss. n is the number of checkpoints."
    )


def _difference(gap):
    return f"{signed(gap)} (n = {gap.count})"


def _thousands(steps):
    return f"{steps * TOKENS_A_STEP / 1000:.0f}k" if steps else "0"


def _tokens(steps):
    ratio = steps * TOKENS_A_STEP / PARAMETERS
    return f"{_thousands(steps)} ({ratio:.1f})" if steps else "0"


def _cell(value, best):
    if value is None:
        return "–"
    error = "" if value.error is None else f" ± {value.error:.3f}"
    mark = "**" if value.mean == best else ""
    return f"{mark}{value.mean:+.3f}{mark}{error}"


BLOCKS = {"recover-tokens": recover_tokens}
