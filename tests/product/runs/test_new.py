"""A run file with the recommended settings, from the command line to an export."""

import json
import tomllib

import keras
import pytest

import keras_idea as ki
from keras_idea.lm.cli import main
from keras_idea.lm.runs.config import load_config
from keras_idea.lm.runs.train import time_limit
from tests.support.hub_models import tiny_lm
from tests.support.tiny_run import TEXT
from tests.support.with_tokenizer import VOCABULARY, with_tokenizer

#: Widths of a checkpoint, and tokens that are few for it, as `recommended` says.
TINY, FAT = (256, 64), (1024, 352)
RUNS = {"many": (TINY, 300_000), "few": (TINY, 12_300), "very few": (FAT, 6_500)}


def checkpoint(widths):
    neurons, features = widths
    sizes = {"hidden_dim": features, "intermediate_dim": neurons}
    return tiny_lm("llama3", vocabulary_size=VOCABULARY, **sizes)


@pytest.fixture
def new(tmp_path, monkeypatch):
    """A function of a preset's widths and options: the status of `keras-idea new`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time_limit, "LEAST", 1.0)
    (tmp_path / "text.txt").write_text(TEXT * 40)

    def call(widths, *options):
        if widths is not None:
            lm = with_tokenizer(checkpoint(widths), "llama3")
            lm.save_to_preset("preset")
            options = ("--preset", "preset", *options)
        return main(["new", "mine.toml", "--text", "text.txt", *map(str, options)])

    return call


@pytest.mark.parametrize("situation", ["many", "few", "very few"])
def test_the_file_says_what_is_recommended(new, capsys, situation):
    widths, tokens = RUNS[situation]
    assert new(widths, "--tokens", tokens, "--target-dim", 0.5) == 0
    model = checkpoint(widths)
    found = ki.recommended(model, tokens, target=0.5)
    assert found.situation == situation
    config = load_config("mine.toml")
    assert config.model.target_dim == 0.5
    assert config.model.round_to == found["round_to"]
    assert config.model.sequence_length == found["sequence_length"]
    assert config.data.batch_size == found["batch_size"]
    assert config.budget.enlarge_steps == 0
    assert config.budget.prune_steps == found["prune_steps"]
    assert config.budget.total_steps == found["total_steps"]
    for name in ("peak_learning_rate", "end_learning_rate", "warmup_steps"):
        assert getattr(config.optimizer, name) == found[name]
    for name in ("weight", "temperature", "features"):
        assert getattr(config.distillation, name) == found[name]
    assert config.distillation.teacher == config.model.preset == "preset"
    assert config.pruning.method == found["method"]
    refit = found["refit_windows"] if situation == "very few" else 0
    assert config.pruning.refit_windows == refit
    assert config.pruning.by_weights == (situation == "very few")
    # Each value with its reason; the plan, and what to do next.
    lines = open("mine.toml", encoding="utf-8").read().splitlines()
    assert all("  # " in line for line in lines if " = " in line and line[0] != "#")
    for setting in found.settings.values():
        if setting.basis != "given":
            assert any(f"{setting.basis}: {setting.reason}" in line for line in lines)
    printed = capsys.readouterr().out
    assert f"{widths[0]:,} to {widths[0] // 2:,}" in printed
    assert "FFNs keep 50% of their neurons" in printed and "enlarged" not in printed
    # Its last rate is not the file's, and that is explained.
    assert f"end_learning_rate={found['end_learning_rate']:.2g}" in printed
    assert printed.endswith("run: keras-idea train mine.toml\n")


@pytest.mark.parametrize("situation", ["few", "very few"])
def test_the_file_trains_and_its_run_exports(new, situation):
    widths, tokens = RUNS[situation]
    assert new(widths, "--tokens", tokens, "--target-dim", 0.5) == 0
    assert main(["train", "mine.toml"]) == 0
    assert main(["export", "runs/mine", "--preset", "narrow"]) == 0
    import keras_hub

    narrow = keras_hub.models.CausalLM.from_preset("narrow")
    assert narrow.backbone.intermediate_dim == widths[0] // 2
    rows = json.loads(open("runs/mine/table.json").read())["rows"]
    assert rows[-1]["parameters"] == narrow.count_params()


def test_from_nothing(new):
    assert new(None, "--tokens", 2_000_000, "--target-parameters", 150_000) == 0
    config, received = load_config("mine.toml"), tomllib.load(open("mine.toml", "rb"))
    assert config.model.target_parameters == 150_000
    assert config.distillation.teacher is None and "distillation" not in received
    # Half of 1,953 steps, in steps of 100.
    assert (config.budget.enlarge_steps, config.budget.total_steps) == (1000, 1900)


def test_more_text_than_fits_into_a_step(new, tmp_path):
    """Large runs: tokens of a step in parts; records are read as documents."""
    (tmp_path / "text.jsonl").write_text(json.dumps({"text": TEXT * 20}))
    options = ("--tokens", 2**26, "--text", "text.jsonl", "--target-dim", 128)
    assert new(TINY, *options) == 0
    config = load_config("mine.toml")
    assert config.model.target_dim == 128
    parts = 1 if keras.backend.backend() == "tensorflow" else 16_384 // 4096
    assert config.micro_batches == parts
    assert config.corpus.paths == ("text.jsonl",)


@pytest.mark.parametrize(
    "options, words",
    [
        (("--tokens", 0), "`tokens` must be an integer >= 1"),
        (("--tokens", 500), "`tokens` must be at least"),
        (("--tokens", 25_000, "--target-parameters", 10**9), "is within"),
        (("--tokens", 25_000, "--target-parameters", 9), "cannot be met by pruning"),
        (("--tokens", 25_000, "--target-dim", "half"), "`--target-dim` must be"),
        (("--tokens", 25_000, "--target-dim", 300), "fewer than the 256 neurons"),
        (("--tokens", 25_000, "--preset", "./none"), "`model.preset` gives no model"),
        (("--tokens", 25_000, "--text", "none.txt"), "No text at 'none.txt'"),
    ],
)
def test_what_cannot_be(new, tmp_path, capsys, options, words):
    assert new(TINY, *options) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "mine.toml").exists()


def test_nothing_is_replaced(new, tmp_path, capsys):
    (tmp_path / "mine.toml").write_text("mine")
    assert new(None, "--tokens", 100_000) == 2
    assert "There is 'mine.toml' already" in capsys.readouterr().err
    assert (tmp_path / "mine.toml").read_text() == "mine"


def test_one_target_alone(new, capsys):
    targets = ("--target-parameters", 9, "--target-dim", 0.5)
    with pytest.raises(SystemExit):
        new(None, "--tokens", 100_000, *targets)
    assert "not allowed with" in capsys.readouterr().err
