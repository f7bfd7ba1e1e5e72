"""Run files: read, checked, written back, and compared."""

import tomllib

import pytest

from keras_idea._lm.runs.config import RunConfig, load_config, parse_config
from keras_idea.errors import ConfigError
from keras_idea.hub.families import HUB_FAMILIES
from tests.support import ROOT
from tests.support.tiny_run import CONFIG, with_keys

FILES = [*ROOT.glob("examples/*.toml"), ROOT / "keras_idea/_lm/runs/demo.toml"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_written_back_equal(path):
    config = load_config(path)
    assert parse_config(config.to_toml(), "other name") == config


def test_the_demo_says_the_defaults():
    demo = load_config()
    data = demo.data.model_copy(update={"max_megabytes": None})
    assert demo.budget == RunConfig().budget and data == RunConfig().data
    assert demo.optimizer == RunConfig().optimizer
    assert demo.model.target_dim == 192 and demo.model.hub == "llama3"


def test_a_checkpoint_has_no_wide_stage_and_no_baseline():
    config = parse_config('[model]\npreset = "some"\n', "mine")
    assert config.budget.enlarge_steps == 0 and not config.run.compare_from_scratch
    assert config.run.output == "runs/mine"
    assert "model_dim" not in tomllib.loads(config.to_toml())["model"]


REFUSED = {
    "no TOML": ("[model", "valid TOML"),
    "a table": ("[modle]\nx = 1", "Did you mean 'model'"),
    "a key": ("[model]\nhiden_dim = 4", "Did you mean 'hidden_dim'"),
    "another table's key": ("[model]\nbatch_size = 4", r"under \[data\]"),
    "a family": ('[model]\nhub = "lama3"', "Did you mean 'llama3'"),
    "a method": ('[pruning]\nmethod = "sensitive"', "pruning.method"),
    "a type": ('[budget]\nprune_steps = "3"', "budget.prune_steps"),
    "infinite": ("[optimizer]\npeak_learning_rate = inf", "peak_learning_rate"),
    "a fraction": ("[model]\ntarget_dim = 1.5", "model.target_dim"),
    "no table": ("model = 3", "model"),
    "two targets": (
        "[model]\ntarget_dim = 8\ntarget_parameters = 9",
        "only one of `model.target_dim` and `model.target_parameters`",
    ),
    "two texts": ('[data]\npaths = ["a"]\ndataset = "b"', "data.paths"),
    "a preset with sizes": ('[model]\npreset = "a"\nhidden_dim = 9', "hidden_dim"),
    "kinds without a limit": ('[model]\nkinds = ["kv_groups"]', "model.kinds"),
    "a weight without a teacher": ("[distillation]\nweight = 0.3", "teacher"),
    "a tokenizer of others": (
        '[model]\nhub = "gemma"\ntokenizer = "bpe"',
        "model.tokenizer",
    ),
    "heads": ("[model]\nmodel_dim = 20\nnum_heads = 4", "model.model_dim"),
    "groups of heads": ("[model]\nnum_key_value_heads = 3", "num_key_value_heads"),
    "parts": ("[optimizer]\ngradient_accumulation_steps = 5", "data.batch_size"),
    "devices": ("[distribution]\ndata = 5", "data.batch_size"),
    "weights without activation": ("[pruning]\nby_weights = true", "by_weights"),
    "a refit": ("[pruning]\nrefit_windows = 4", "refit_windows"),
    "intervals": ("[run]\nvalidate_every = 300", r"validate_every.* to 250\."),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    text, match = REFUSED[name]
    with pytest.raises(ConfigError, match=match):
        parse_config(text)


@pytest.mark.parametrize(
    "table, key, allowed",
    [
        ("run", 'output = "elsewhere"', True),
        ("run", "tensorboard = true", True),
        ("optimizer", "gradient_accumulation_steps = 2", False),
        ("sample", "temperature = 0.0", True),
        ("distribution", "data = 2", True),
        ("run", 'dtype = "mixed_bfloat16"', False),
        ("data", "max_megabytes = 1.0", False),
        ("optimizer", "weight_decay = 0.1", False),
        ("pruning", 'compact = "off"', False),
    ],
)
def test_a_run_may_resume_with(table, key, allowed):
    changed = parse_config(with_keys(CONFIG, table, key))
    found = changed.changes_from(parse_config(CONFIG))
    assert (
        not found
        if allowed
        else [line.split()[0] for line in found] == [f"{table}.{key.split()[0]}"]
    )


def test_every_key_says_what_it_means():
    for keys in RunConfig.tables().values():
        assert all(field.description for field in keys.values())


def test_vocabularies_hold_all_bytes_and_special_tokens():
    assert HUB_FAMILIES["llama3"].smallest_vocabulary == 256 + 5
    assert HUB_FAMILIES["gemma"].smallest_vocabulary == 256 + 1 + 6  # a space
