"""What a checkpoint loses, by recipe and tokens of recovery, as a block of pages."""

import functools
import json
import math

from benchmarks.intervals import Estimate, estimate, plus_minus
from benchmarks.pages.words import table
from benchmarks.record import REPOSITORY

RECORD = REPOSITORY / "benchmarks/results/recover_tokens.json"
SHARES, STEPS = (0.7, 0.4), (0, 48, 192, 768)
#: Of all models of the study.
TOKENS_A_STEP, PARAMETERS = 1024, 763_104
#: The steps after which the first checkpoint's peaks were compared, and how many.
SEARCHED, PEAKS = 192, 3
#: Arms that the page shows; a comma is a "+" in the record.
ARMS = (
    "gradual, teacher",
    "gradual",
    "one step, refit, teacher and features",
    "one step, refit, teacher",
    "one step, refit, features",
    "one step, refit",
    "one step",
)


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
    return min(tried, key=tried.__getitem__) if len(tried) == PEAKS else None


def lost(arm: str, share: float, steps: int) -> Estimate | None:
    """Bits per byte above the checkpoint's, over checkpoints; None: not run."""
    rate = peak(arm, share) if steps else 0.0
    seeds = [at[0] for at in cells() if len(at) == 1]
    pairs = [(cells().get((s, arm, share, steps, rate)), s) for s in seeds]
    return estimate(bits - cells()[s,] for bits, s in pairs if bits is not None)


def recover_tokens() -> str:
    """Losses by share, arm and tokens; the best of a column is bold."""
    parts, counts = [], set()
    for share in SHARES:
        header = [f"{share:.0%} of the neurons"]
        columns = [[lost(arm, share, steps) for arm in ARMS] for steps in STEPS]
        header += [_tokens(steps) for steps in STEPS]
        best = [min((x.mean for x in c if x), default=math.nan) for c in columns]
        rows = [
            [arm, *(_cell(c[i], b) for c, b in zip(columns, best, strict=True))]
            for i, arm in enumerate(ARMS)
        ]
        counts |= {x.count for column in columns for x in column if x}
        parts.append(table([header, *rows]))
    parts.append(
        "Loss in bits per byte above the checkpoint's, by tokens of recovery (tokens "
        "per parameter in parentheses); the best of a column is bold. "
        f"{plus_minus(counts, 'checkpoints')} The peak of the learning rate was "
        "searched for each row and share, on one checkpoint."
    )
    return "\n\n".join(parts)


def _tokens(steps):
    tokens = steps * TOKENS_A_STEP
    ratio = tokens / PARAMETERS
    return f"{tokens / 1000:.0f}k ({ratio:.1f})" if steps else "0"


def _cell(value, best):
    if value is None:
        return "–"
    error = "" if value.error is None else f" ± {value.error:.3f}"
    mark = "**" if value.mean == best else ""
    return f"{mark}{value.mean:+.3f}{mark}{error}"


BLOCKS = {"recover-tokens": recover_tokens}
