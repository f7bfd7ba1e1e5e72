"""Tables of a run's description that contradict each other: what is said of it."""

import pytest

from keras_idea.errors import ConfigError
from keras_idea.lm.runs.config import parse_config

# What is wrong: the TOML, and what the message must say.
REFUSED = {
    "warm-up too long": (
        "[optimizer]\nwarmup_steps = 1001",
        "`optimizer.warmup_steps` must be at most .*1,000 steps. Received: "
        "warmup_steps=1001. Set `warmup_steps` to 100, or",
    ),
    "a warm-up that nobody has set": (
        "[budget]\nenlarge_steps = 20\nprune_steps = 10\nrecover_steps = 10",
        r"40 steps. Received: warmup_steps=50 \(default\). Set `warmup_steps` to 4,",
    ),
    "a default that is written down": (
        "[budget]\nenlarge_steps = 20\nprune_steps = 10\nrecover_steps = 10\n"
        "[optimizer]\nwarmup_steps = 50",
        "Received: warmup_steps=50. Set",
    ),
    "a rate that nobody has set": (
        "[optimizer]\npeak_learning_rate = 1e-6",
        r"=1e-06. Received: end_learning_rate=3e-05 \(default\). Set .* to 1e-08,",
    ),
    "a width that nobody has set": (
        "[model]\nhidden_dim = 100",
        r"hidden_dim=100: .*Received: target_dim=192 \(default\). Lower",
    ),
    "validation off beat": (
        "[run]\nvalidate_every = 120",
        r"`run.validate_every` must divide budget.enlarge_steps=500 \(default\) and "
        r"the total of \[budget\], 1,000 steps. Received: validate_every=120. Set "
        "`validate_every` to 100 or 125.$",
    ),
    "validation that fits no other step": (
        "[budget]\nenlarge_steps = 501\nrecover_steps = 252",
        r"Received: validate_every=100 \(default\). Set `budget.enlarge_steps` to 500 "
        "and `budget.recover_steps` to 250.$",
    ),
    "validation of a short run": (
        "[budget]\nenlarge_steps = 4\nprune_steps = 3\nrecover_steps = 5\n"
        "[optimizer]\nwarmup_steps = 2",
        r"Received: validate_every=100 \(default\). Set `validate_every` to 4.$",
    ),
    "checkpoints off beat": (
        "[run]\ncheckpoint_every = 150",
        r"must be a multiple of run.validate_every=100 \(default\). "
        "Received: checkpoint_every=150. Set `checkpoint_every` to 100 or 200.$",
    ),
    "batches of other parts": (
        "[optimizer]\ngradient_accumulation_steps = 5",
        r"must divide data.batch_size=32 \(default\).*Received: .*=5. Set `data."
        "batch_size` to 30, or `gradient_accumulation_steps` to 4 or 8.$",
    ),
    "conversations and documents": (
        "[model]\npreset = 'a'\n[chat]\npaths = 'c'\n[corpus]\npaths = 'b.jsonl'",
        r"\[corpus\] and \[chat\] cannot both be given: .*paths=\('c',\), .*Delete",
    ),
    "conversations for a model of bytes": (
        "[chat]\npaths = 'c'",
        r"\[chat\] needs a KerasHub model.*Received: paths=\('c',\), without .*Set",
    ),
    "two texts": (
        "[data]\ntext = 'a.txt'\n[corpus]\npaths = 'b.jsonl'",
        "`data.text` and .corpus. cannot both be given: .*text='a.txt', .*Delete",
    ),
}


@pytest.mark.parametrize("text, match", REFUSED.values(), ids=REFUSED.keys())
def test_refused_at_once(text, match):
    with pytest.raises(ConfigError, match=match):
        parse_config(text)
