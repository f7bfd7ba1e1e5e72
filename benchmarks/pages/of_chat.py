"""What a tuned checkpoint keeps, by what it recovers on, as a block of pages."""

import json

from benchmarks.intervals import Estimate, estimate, plus_minus
from benchmarks.pages.words import plain, signed, table, verdict
from benchmarks.record import REPOSITORY

RECORD = REPOSITORY / "benchmarks/results/recover_chat.json"
NATS, BITS = "nats per response token", "raw text, bits per byte"
#: A row's words: the arm in the record.
ROWS = {
    "the tuned model, not pruned": "tuned",
    "responses of conversations": "responses",
    "responses of conversations, with the tuned model as teacher": "responses, teacher",
    "all tokens of conversations": "all tokens",
    "raw text": "raw text",
}


def cells() -> list[dict]:
    """Of each checkpoint: arm to measures."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return [record[seed] for seed in sorted(key for key in record if key.isdigit())]


def of(arm: str, measure: str) -> Estimate:
    """Mean over the checkpoints."""
    return estimate(seed[arm][measure] for seed in cells())


def teacher() -> Estimate:
    """Recovered on responses with a teacher minus without, in nats, pairs."""
    pairs = ((seed["responses, teacher"], seed["responses"]) for seed in cells())
    return estimate(with_one[NATS] - without[NATS] for with_one, without in pairs)


def recover_chat() -> str:
    """A row for each text of the recovery."""
    lines = [["recovered on", "nats per token of held-out responses", BITS]]
    lines += [
        [words, plain(of(arm, NATS)), plain(of(arm, BITS), 2)]
        for words, arm in ROWS.items()
    ]
    gap = teacher()
    return (
        f"{table(lines)}\n\nLower is better. {plus_minus([gap.count], 'checkpoints')} "
        "Responses with the teacher minus without it, in pairs: "
        f"{signed(gap, 4)} nats ({verdict(gap)})."
    )


BLOCKS = {"recover-chat": recover_chat}
