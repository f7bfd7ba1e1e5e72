"""The description of a run: what it reads, its defaults, its errors' file."""

import dataclasses
import importlib.resources
import tomllib

import pytest

from keras_idea.errors import ConfigError
from keras_idea.hub.families import HUB_FAMILIES
from keras_idea.lm.runs.config import RunConfig, load_config, parse_config
from keras_idea.lm.runs.config.sizes import Sizes


# What is wrong: the TOML, and what the message must say.
def test_demo_spells_out_the_defaults():
    model = dataclasses.replace(RunConfig().model, hub="llama3")
    sample = dataclasses.replace(RunConfig().sample, prompt="def read_")
    expected = dataclasses.replace(RunConfig(), model=model, sample=sample)
    assert load_config() == expected


def test_demo_names_every_key():
    # The file is the documentation of the keys: a new one must be in it.
    demo = importlib.resources.files("keras_idea.lm.runs") / "demo.toml"
    text = demo.read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    # The keys whose default is to be left out.
    optional = {
        "budget.steps",
        "chat.paths",
        "chat.template",
        "chat.validation_paths",
        "corpus.dataset",
        "corpus.dataset_config",
        "corpus.dataset_revision",
        "corpus.paths",
        "corpus.pattern",
        "corpus.validation_paths",
        "distillation.teacher",
        "distillation.teacher_dtype",
        "distillation.top_k",
        "distribution.mesh",
        "elastic.teacher",
        "elastic.widths",
        "model.num_key_value_heads",
        "model.preset",
        "model.target_bytes",
        "model.target_flops",
        "model.target_parameters",
        "model.targets",
        "model.vocabulary_size",
        "optimizer.global_clipnorm",
        "run.checkpoint_every",
        "run.jit_compile",
    }
    for name in optional:
        table, key = name.split(".")
        assert f"\n# {key} = " in text[text.index(f"[{table}]") :]
    for table in dataclasses.fields(RunConfig):
        keys = {field.name for field in dataclasses.fields(table.type)}
        left_out = {key for key in keys if f"{table.name}.{key}" in optional}
        assert set(tables[table.name]) == keys - left_out


def test_keys_left_out_have_defaults():
    config = parse_config("[model]\nhidden_dim = 1024\n")
    assert config == dataclasses.replace(
        RunConfig(),
        model=dataclasses.replace(RunConfig().model, hidden_dim=1024),
        run=dataclasses.replace(RunConfig().run, output="runs/run"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[model]\nnum_key_value_heads = 2\ntarget_dim = 0.25\n"
        "[data]\ntext = 'a \"quoted\" \\\\ näme'\n"
        "[run]\ncompare_from_scratch = false\n",
        "[model]\nhub = 'gemma'\ntokenizer = 'sentencepiece'\nvocabulary_size = 300",
        "[model]\npreset = 'mine'\ntarget_dim = 0.5\nsequence_length = 32",
        "[corpus]\npaths = ['a', 'b']\npattern = '*.py'\nvalidation_paths = 'c'",
        "[corpus]\ndataset = 'a'\ndataset_config = 'b'\non_bad = 'skip'",
        "[model]\npreset = 'mine'\n[chat]\npaths = 'a'\ntemplate = 'gemma'",
        "[model]\npreset = 'mine'\n[chat]\npaths = ['a']\nloss = 'all'\n"
        "template = { user = 'Q: {content}', assistant = 'A: {content}{end}' }",
    ],
)
def test_toml_round_trip(text):
    config = parse_config(text)
    assert parse_config(config.to_toml()) == config


@pytest.mark.parametrize("target, width", [(192, 192), (0.375, 192), (0.0001, 1)])
def test_target_width(target, width):
    model = parse_config(f"[model]\ntarget_dim = {target}").model
    assert model.sizes_at_end(Sizes(512)) == Sizes(width)


def test_a_preset_decides_the_dimensions():
    model = parse_config("[model]\npreset = 'mine'").model
    assert model.tokenizer == "preset" and model.uses_keras_hub
    assert {model.model_dim, model.num_layers, model.hidden_dim} == {None}
    below = r"below hidden_dim=192 of the preset: .*=192 \(default\). Lower"
    with pytest.raises(ConfigError, match=below):
        model.sizes_at_end(Sizes(192))


@pytest.mark.parametrize("hub", HUB_FAMILIES)
def test_a_hub_model_reads_bytes_by_default(hub):
    model = parse_config(f"[model]\nhub = {hub!r}").model
    assert (
        model.tokenizer == "bytes" and model.hidden_dim == 512 and model.uses_keras_hub
    )


def test_whole_numbers_pass_for_rates():
    config = parse_config("[optimizer]\nweight_decay = 0")
    assert isinstance(config.optimizer.weight_decay, float)


def test_output_is_named_after_the_file(tmp_path):
    path = tmp_path / "wide_and_narrow.toml"
    path.write_text("[run]\nseed = 3\n")
    assert load_config(path).run.output == "runs/wide_and_narrow"
    assert load_config(path).with_output("elsewhere").run.output == "elsewhere"


def test_errors_name_the_file(tmp_path):
    with pytest.raises(ConfigError, match="Cannot read the config .*none.toml"):
        load_config(tmp_path / "none.toml")
    path = tmp_path / "bad.toml"
    path.write_text("[run]\nsed = 3\n")
    with pytest.raises(ConfigError, match=r"bad.toml: Unknown key .* mean 'seed'\?"):
        load_config(path)


def test_a_file_with_a_byte_order_mark(tmp_path):
    """As some editors write it."""
    path = tmp_path / "marked.toml"
    path.write_bytes(b"\xef\xbb\xbf[run]\r\nseed = 3\r\n")
    assert load_config(path).run.seed == 3


def test_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RunConfig().model.hidden_dim = 3


def test_a_preset_has_no_wide_stage_and_no_baseline_by_default():
    preset = '[model]\npreset = "there"\n'
    own, other = parse_config(preset), parse_config("")
    assert own.budget.enlarge_steps == 0 and not own.run.compare_from_scratch
    assert other.budget.enlarge_steps == 500 and other.run.compare_from_scratch
    given = "[budget]\nenlarge_steps = 100\n[run]\ncompare_from_scratch = true"
    asked = parse_config(preset + given)
    assert asked.budget.enlarge_steps == 100 and asked.run.compare_from_scratch


@pytest.mark.parametrize(
    "change",
    [
        "[run]\noutput = 'b'\n[distribution]\nmesh = { data = 4 }\n",
        "[run]\nkeep_checkpoints = 5\n",
        "[run]\ncheckpoint_every = 200\n",
        "[run]\nrematerialize = true\n",
        "[run]\ntensorboard = true\n",
        "[run]\ncompare_from_scratch = false\n",
        "[corpus]\ncache = 'other'\n",
        "[chat]\ncache = 'other'\n",
    ],
)
def test_what_may_change_when_a_run_resumes(change):
    """Whatever the results do not depend on, but for rounding; nothing else."""
    before = parse_config("[optimizer]\ngradient_accumulation_steps = 2\n")
    assert parse_config(change).changes_from(before) == ""
    changed = parse_config("[optimizer]\nwarmup_steps = 3\n").changes_from(before)
    assert changed == "optimizer.warmup_steps was 50 there and is 3"


@pytest.mark.parametrize(
    "there, here, changed",
    [
        (
            "[data]\nbatch_size = 30\n",
            "[data]\nbatch_size = 32\n[optimizer]\ngradient_accumulation_steps = 4\n",
            "data.batch_size was 30 there and is 32",
        ),
        (
            '[pruning]\nmethod = "activation"\n',
            "[optimizer]\ngradient_accumulation_steps = 4\n",
            "pruning.method was 'activation' there and is 'sensitivity'",
        ),
    ],
)
def test_runs_whose_keys_do_not_go_together_are_compared(there, here, changed):
    """Nothing is made of keys of both: 30 sequences cannot be cut into 4 parts."""
    assert parse_config(here).changes_from(parse_config(there)) == changed
