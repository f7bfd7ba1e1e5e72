"""What `keras-idea plan` says of a run, counted by hand."""

import numpy as np
import pytest

from keras_idea.cli import main
from keras_idea.runs.config import parse_config
from keras_idea.runs.plan import plan
from tests.runs.test_hub_runs import with_hub
from tests.runs.test_train import CONFIG, write_inputs

TOKENS = 4 * 16


def flops_a_step(width):
    """6 a multiply-add and token: attention, FFNs and logits of two layers of 16."""
    attention = 4 * 16 * 16 + 2 * 16 * 16  # four projections; 16 positions, twice
    return 6 * TOKENS * (2 * (attention + 3 * 16 * width) + 16 * 256)


def rate(step, peak=3e-3, end=3e-5, total=12, warmup=2):
    if step <= warmup:
        return peak * step / warmup
    progress = (step - warmup) / total  # as the paper prints it
    return end + (peak - end) * (1 + np.cos(np.pi * progress)) / 2


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_stages(in_folder):
    planned = plan(parse_config(CONFIG, "tiny"))
    rows = [
        (s.name, s.steps, s.tokens, s.widths, round(s.flops)) for s in planned.stages
    ]
    wide, narrow = flops_a_step(32), flops_a_step(8)
    assert rows == [
        ("enlarged", 4, 4 * TOKENS, (32, 32), 4 * wide),
        ("pruning", 3, 3 * TOKENS, (32, 8), 3 * wide),
        ("recovery", 5, 5 * TOKENS, (8, 8), 5 * narrow),
        ("narrow from scratch", 12, 12 * TOKENS, (8, 8), 12 * narrow),
    ]
    for stage, (first, last) in zip(
        planned.stages, [(0, 3), (4, 6), (7, 11), (0, 11)], strict=True
    ):
        assert stage.learning_rates == pytest.approx((rate(first), rate(last)))
    others = 2 * 256 * 16 + 16 + 2 * (2 * 16 + 4 * 16 * 16)
    assert planned.parameters == tuple(others + 2 * 3 * 16 * w for w in (32, 8))


@pytest.mark.parametrize(
    "keys, wide_steps",
    [
        ("compact = 'off'", [4, 3, 5]),
        ("method = 'random'", [4, 0, 0]),
        ("method = 'learned_mask'", [4, 3, 0]),
    ],
)
def test_when_the_model_becomes_narrow(in_folder, keys, wide_steps):
    config = f"{CONFIG}compare_from_scratch = false\n[pruning]\n{keys}\n"
    stages = plan(parse_config(config, "tiny")).stages
    for stage, wide in zip(stages, wide_steps, strict=True):
        narrow = stage.steps - wide
        expected = wide * flops_a_step(32) + narrow * flops_a_step(8)
        assert stage.flops == pytest.approx(expected)


def test_a_model_that_becomes_narrow_by_and_by(in_folder):
    config = f"{CONFIG}[pruning]\ncompact = 'progressive'\n"
    stages = plan(parse_config(config, "tiny")).stages
    # 8 + 24 (1 - i / 3)^3 neurons after i steps, each below the next bucket of 3.
    assert stages[1].flops == pytest.approx(sum(map(flops_a_step, (32, 15, 9))))
    assert stages[2].flops == pytest.approx(5 * flops_a_step(8))


def test_a_hub_model(in_folder):
    config = with_hub(CONFIG, "hub = 'llama3'").replace("recover_steps = 5", "")
    config = config.replace("prune_steps = 3", "prune_steps = 8\nrecover_steps = 0")
    stages = plan(parse_config(config, "tiny")).stages
    assert [stage.name for stage in stages] == [
        "enlarged",
        "pruning",
        "narrow from scratch",
    ]
    # The byte-level vocabulary of Llama 3 has 5 special tokens.
    assert stages[0].flops == pytest.approx(4 * flops_a_step(32) + 4 * 6 * TOKENS * 80)


def test_it_prints_and_leaves_nothing(in_folder, capsys):
    before = sorted(in_folder.iterdir())
    assert main(["plan", "tiny.toml"]) == 0
    printed = capsys.readouterr().out
    assert "Parameters: 13,392 wide, 11,088 narrow" in printed
    assert all(word in printed for word in ("enlarged", "recovery", "32 to 8"))
    assert sorted(in_folder.iterdir()) == before


def test_what_train_refuses_is_refused(in_folder, capsys):
    (in_folder / "text.txt").unlink()
    assert main(["plan", "tiny.toml"]) == 2
    assert "No text at 'text.txt'" in capsys.readouterr().err
