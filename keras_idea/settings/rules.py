"""The recommended settings by situation: the only place where they stand.

`keras_idea.recommended` takes values and reasons from here, and `keras-idea new` takes
its own from that. The tables of docs/settings.md are written by hand.
"""

import math
import re
from typing import Any, Literal, NamedTuple, TypeAlias

#: A column of the page: from nothing; or a checkpoint, by its tokens per parameter.
Situation: TypeAlias = Literal["nothing", "many", "few", "very few"]

#: Tokens per parameter from which a checkpoint has "many", and "few". A refit first was
#: better at 0.0005 and not at 0.07; 0.006 is their geometric mean.
MANY, FEW = 1.0, 0.006
#: Tokens per parameter up to which block outputs lowered the loss, and the most
#: parameters of models that are like those (0.8 million).
FEATURES, SMALL = 0.3, 10e6
#: Parameters from which on a run saves memory.
LARGE = 300e6
#: The least steps of a run; and how many it has before its steps get more tokens.
LEAST_STEPS, MOST_STEPS = 12, 4000
#: The most tokens of a step.
MOST_TOKENS = 2**19
#: Of `round_to`: multiples in the narrowest FFN that is rounded.
MULTIPLES = 8


class Advice(NamedTuple):
    """A setting in a situation.

    Attributes:
        says: str, what is recommended and why, in Markdown.
        sources: str, letters of the page's list of measurements. "": an estimate.
        value: what a function takes, or a share of steps. None: for the page only.
    """

    says: str
    sources: str
    value: Any = None

    @property
    def reason(self) -> str:
        """`says` without its value and links, and the letters."""
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", self.says).replace("`", "")
        value = self.value
        shown = f'"{value}"' if isinstance(value, str) else f"{value or 0:,}"
        plain = "" if plain == shown else plain.removeprefix(f"{shown}: ")
        letters = f"[{', '.join(self.sources)}]" if self.sources else ""
        return f"{plain} {letters}".strip()


#: By setting and situation. The first advice is followed, except where
#: `recommended` says otherwise.
RULES: dict[str, dict[Situation, tuple[Advice, ...]]] = {
    "method": {
        "nothing": (Advice('"sensitivity"', "F", "sensitivity"),),
        "many": (Advice('"sensitivity"', "D", "sensitivity"),),
        "few": (
            Advice(
                '"sensitivity": "activation" is 0.002 to 0.005 worse',
                "C",
                "sensitivity",
            ),
        ),
        "very few": (
            Advice('"activation": a refit in `fit` needs it', "L", "activation"),
        ),
    },
    "by_weights": {
        "very few": (
            Advice("yes, in `Activation`: perplexity 53.9, not 55.0", "L", True),
        ),
    },
    "target_dim": {
        "nothing": (
            Advice("256 → 171 → 114 → 64: 0.67, 0.45, 0.25 of the start", "F", 0.67),
        ),
        "many": (Advice("0.67: loss +0.003", "D", 0.67), Advice("0.5 to 0.67", "")),
        "few": (Advice("0.69: loss +0.013; 0.38: +0.049 (with teacher)", "C", 0.67),),
        "very few": (
            Advice("0.67: 52% (SmolLM2) and 23% of the excess loss removed", "L", 0.67),
        ),
    },
    "begin_step": {
        "many": (
            Advice("0: it is trained", "D", 0),
            Advice("after the warm-up, if its peak is that of pretraining", "T"),
        ),
        "few": (Advice("0: it is trained", "CH", 0),),
        "very few": (Advice("0: it is trained", "L", 0),),
    },
    "prune_steps": {
        "many": (Advice("a third to half of the steps", "DT", 1 / 3),),
        "few": (Advice("a quarter of the steps", "CH", 1 / 4),),
        "very few": (Advice("all at once", "L", 0.0),),
    },
    "warmup_steps": {
        "nothing": (Advice("9% of the steps", "F", 0.09),),
        "many": (Advice("7% of the steps", "DT", 1 / 15),),
        "few": (Advice("8% of the steps", "CH", 1 / 12),),
        "very few": (Advice("8% of the steps", "L", 1 / 12),),
    },
    "end_learning_rate": {
        "nothing": (Advice("each width under its own decay to 1%", "F", 0.01),),
        "many": (Advice("one cosine to 1% of the peak", "T", 0.01), Advice("3%", "D")),
        "few": (Advice("one cosine to 1% of the peak", "CH", 0.01),),
        "very few": (Advice("one cosine to 1% of the peak", "L", 0.01),),
    },
    "tokens_per_step": {
        "nothing": (Advice("1,024", "F", 1024),),
        "many": (Advice("2,048", "DT", 2048),),
        "few": (
            Advice("1,024", "HR", 1024),
            Advice("2,048 from 0.4 million tokens on", "C", 2048),
        ),
        "very few": (Advice("512", "L", 512),),
    },
    "sequence_length": {
        "nothing": (Advice("32", "F", 32),),
        "many": (Advice("64", "D", 64),),
        "few": (Advice("128", "C", 128), Advice("64", "H")),
        "very few": (Advice("128", "L", 128),),
    },
    "round_to": {
        "nothing": (Advice("1", "F", 1),),
        "many": (Advice("32: blocks of a Q8_0 file", "D", 32),),
        "few": (Advice("32: blocks of a Q8_0 file", "", 32), Advice("1", "CH")),
        "very few": (Advice("32: blocks of a Q8_0 file", "L", 32),),
    },
    "weight": {
        "many": (Advice("teacher, weight 0.5: loss -0.005", "D", 0.5),),
        "few": (
            Advice("teacher, weight 0.5: -0.009 at 0.69, -0.013 at 0.38", "C", 0.5),
        ),
        "very few": (
            Advice("teacher, weight 0.5: perplexity 55.0, not 59.0", "L", 0.5),
        ),
    },
    "features": {
        "many": (
            Advice("left out: little effect at 1.0 tokens per parameter", "R", False),
        ),
        "few": (
            Advice(
                "[yes](checkpoint.md#what-recovers-a-pruned-checkpoint-best) in small "
                "models, up to 0.3 tokens per parameter",
                "R",
                True,
            ),
            Advice("otherwise left out: more memory", "", False),
        ),
        "very few": (Advice("left out: no effect on SmolLM2", "L", False),),
    },
    "refit": {
        "very few": (
            Advice(
                "yes, on 16,384 tokens; see [the table](#released-checkpoints)",
                "L",
                16_384,
            ),
        ),
    },
}

#: Where a run is larger than those that were measured.
MORE_TOKENS = Advice(
    "a 4,000th of the run's tokens, if that is more; at most half a million", ""
)
LONGER = Advice("1,024 if a step has 4,096 tokens or more", "", 1024)
ROUND_ON_DEVICES = Advice("128 for the matrix units of a GPU or TPU", "", 128)
AS_IT_IS = Advice("1 in FFNs of fewer than 8 multiples", "", 1)
TEMPERATURE = Advice("the only one that was tried", "CDL", 1.0)
AT_ONCE = Advice("4,096 tokens at once: less memory", "", 4096)
TOP_K = Advice("the 64 likeliest tokens of the teacher: less memory", "", 64)
REMATERIALIZE = Advice("less memory", "", True)
MIXED = Advice("on a GPU or TPU", "", "mixed_bfloat16")


class Peak(NamedTuple):
    """The peak of the learning rate of a checkpoint, up to a number of parameters.

    `measured`: the least and the most parameters of models like the measured ones.
    """

    most: float
    advice: Advice
    measured: tuple[float, float]


#: Ascending. Where that of pretraining is known, a share of it is better known.
PEAKS = (
    Peak(SMALL, Advice("1/4 to 1/3 of the pretraining peak", "CDR", 1e-3), (0, 2e6)),
    Peak(
        200e6,
        Advice("on SmolLM2-135M as good as 1e-4; 1e-3 is not", "L", 3e-4),
        (100e6, 200e6),
    ),
    Peak(500e6, Advice("the one tried on Gemma 3 270M", "L", 1e-4), (200e6, 400e6)),
    Peak(math.inf, Advice("1/10 of a common pretraining peak", "", 3e-5), (0, 0)),
)
#: Of a model from nothing, up to `SMALL` and above.
FROM_NOTHING = (
    Advice("of the demo, for 10 million parameters at most", "", 3e-3),
    Advice("a common peak of pretraining", "", 3e-4),
)


class OneWidth(NamedTuple):
    """A row of "One width, from nothing", up to so many tokens per parameter.

    `wide` is the share of the steps, `prune` that of the rest; the first advice of each
    is followed.
    """

    most: float
    tokens: str
    wide: tuple[Advice, ...]
    prune: tuple[Advice, ...]


ONE_WIDTH = (
    OneWidth(
        60,
        "30 or less",
        (Advice("50% of the steps", "S", 0.5),),
        (Advice("50%", "S", 0.5), Advice("10 to 30% gained 0.005 to 0.007 at 61", "V")),
    ),
    OneWidth(
        180,
        "90",
        (Advice("10 to 30%", "S", 0.2),),
        (Advice("10 to 70% (at 61 tokens)", "V", 0.5),),
    ),
    OneWidth(
        math.inf,
        "270 or more",
        (Advice("10%", "S", 0.1),),
        (Advice("50%", "S", 0.5),),
    ),
)
