"""The description of a run: what it reads, and what it refuses and how."""

import dataclasses
import importlib.resources
import tomllib

import pytest

from keras_idea.errors import ConfigError
from keras_idea.hub.families import HUB_FAMILIES
from keras_idea.runs.config import RunConfig, load_config, parse_config
from keras_idea.runs.config.sizes import Sizes

# What is wrong: the TOML, and what the message must say.
REFUSED = {
    "no TOML": ("[model", "not valid TOML"),
    "unknown table": ("[modle]", r"Unknown table: 'modle'. Did you mean 'model'\?"),
    "unknown key": (
        "[model]\nhiden_dim = 64",
        r"Unknown key in \[model\]: 'hiden_dim'. Did you mean 'hidden_dim'\? Valid: "
        "hub, preset, tokenizer",
    ),
    "key far from any": ("[run]\nzzz = 1", "Unknown key in .run.: 'zzz'. Valid: out"),
    "key of another table": (
        "[model]\nbatch_size = 8",
        r"Unknown key in \[model\]: 'batch_size'. Move it under \[data\]",
    ),
    "key outside the tables": (
        "hidden_dim = 64",
        r"Unknown table: 'hidden_dim'. Move it under \[model\]",
    ),
    "value for a table": ("model = 3", r"`model` must be a table. .*Write \[model\]"),
    "text for a number": (
        "[model]\nnum_layers = '2'",
        "`model.num_layers` must be an integer >= 1. Received: .*'2'",
    ),
    "fraction for a count": (
        "[data]\nbatch_size = 2.5",
        "`data.batch_size` must be an integer >= 1. Received: .*2.5",
    ),
    "bool for a count": (
        "[budget]\nprune_steps = true",
        "`budget.prune_steps` must be an integer >= 1. Received: .*True",
    ),
    "no layer": ("[model]\nnum_layers = 0", "num_layers` must be an integer >= 1"),
    "number for text": ("[data]\ntext = 3", "`data.text` must be a non-empty string"),
    "empty text": ("[run]\noutput = ' '", "`run.output` must be a non-empty string"),
    "number for a bool": (
        "[run]\ncompare_from_scratch = 1",
        "`run.compare_from_scratch` must be true or false. Received: .*=1",
    ),
    "fraction of zero": (
        "[model]\ntarget_dim = 0.0",
        r"`model.target_dim` must be a whole number .* in \(0, 1\).*Received: .*=0.0",
    ),
    "target wider": (
        "[model]\nhidden_dim = 64\ntarget_dim = 65",
        "`model.target_dim` must be below model.hidden_dim=64.*target_dim=65. Lower",
    ),
    "nothing to prune": (
        "[model]\nhidden_dim = 64\ntarget_dim = 64",
        "`model.target_dim` must be below model.hidden_dim=64",
    ),
    "heads do not divide": (
        "[model]\nmodel_dim = 62",
        "`model.model_dim` must be a multiple of 2 × model.num_heads.*Received: "
        r"model_dim=62, num_heads=4 \(default\). Set `model_dim` to 64.$",
    ),
    "odd head": ("[model]\nmodel_dim = 12", "must be a multiple of 2 × model.num_hea"),
    "key-value heads": (
        "[model]\nnum_key_value_heads = 3",
        r"must divide model.num_heads=4 \(default\). Received: num_key_value_heads=3. "
        r"Set `num_key_value_heads` to one of \[1, 2, 4\]",
    ),
    "unknown family": (
        "[model]\nhub = 'gpt5'",
        "`model.hub` must be one of 'llama', 'llama3', .* Received: model.hub='gpt5'.$",
    ),
    "hub and preset": (
        "[model]\nhub = 'llama'\npreset = 'mine'",
        "`model.hub` cannot be given together with model.preset='mine', which decides "
        "it. Received: hub='llama'. Delete `hub`, or `preset`",
    ),
    "preset and dimensions": (
        "[model]\npreset = 'mine'\nhidden_dim = 512",
        "`model.hidden_dim` cannot be given together with model.preset='mine'",
    ),
    "preset and grouped heads": (
        "[model]\npreset = 'mine'\nnum_key_value_heads = 2",
        "`model.num_key_value_heads` cannot be given together with model.preset",
    ),
    "empty preset": ("[model]\npreset = ''", "`model.preset` must be a non-empty str"),
    "unknown tokenizer": (
        "[model]\nhub = 'llama'\ntokenizer = 'words'",
        "`model.tokenizer` must be one of 'bytes', 'bpe', 'sentencepiece', 'preset'",
    ),
    "tokenizer of another family": (
        "[model]\nhub = 'llama3'\ntokenizer = 'sentencepiece'",
        "`model.tokenizer` must be 'bytes' or 'bpe' for 'llama3': KerasHub's "
        "Llama3Tokenizer reads no other. Received: .*='sentencepiece'. Set .* to 'bpe'",
    ),
    "SentencePiece family": (
        "[model]\nhub = 'gemma'\ntokenizer = 'bpe'",
        "`model.tokenizer` must be 'bytes' or 'sentencepiece' for 'gemma'",
    ),
    "tokenizer without a hub model": (
        "[model]\ntokenizer = 'bpe'",
        "`model.tokenizer` does not fit: this package's own decoder reads bytes. "
        "Received: tokenizer='bpe'. Set `model.hub`",
    ),
    "vocabulary without a hub model": (
        "[model]\nvocabulary_size = 300",
        "own decoder reads bytes. Received: tokenizer='bytes', vocabulary_size=300",
    ),
    "tokenizer of no preset": (
        "[model]\nhub = 'llama3'\ntokenizer = 'preset'",
        "`model.tokenizer` does not fit: there is no preset.*Set `model.preset`, or",
    ),
    "another tokenizer for a preset": (
        "[model]\npreset = 'mine'\ntokenizer = 'bytes'",
        "`model.tokenizer` does not fit: a preset has its own tokenizer",
    ),
    "vocabulary for a preset": (
        "[model]\npreset = 'mine'\nvocabulary_size = 300",
        "a preset has its own tokenizer.*vocabulary_size=300. Delete them",
    ),
    "vocabulary of bytes": (
        "[model]\nhub = 'llama3'\nvocabulary_size = 300",
        "`vocabulary_size` is for a trained tokenizer; the byte-level one of 'llama3' "
        "has 261 tokens. Received: vocabulary_size=300. Delete it, or .* to 'bpe'",
    ),
    "vocabulary too small": (
        "[model]\nhub = 'qwen3'\ntokenizer = 'bpe'\nvocabulary_size = 258",
        "`vocabulary_size` must be above 258 for 'qwen3', .*Received: .*=258. Set a",
    ),
    "vocabulary of none": (
        "[model]\nhub = 'qwen'\ntokenizer = 'bpe'\nvocabulary_size = 0",
        "`model.vocabulary_size` must be an integer >= 1. Received: .*=0",
    ),
    "two corpora": (
        "[corpus]\npaths = 'a'\ndataset = 'b'",
        r"cannot both be given. Received: paths=\['a'\], dataset='b'. Delete one",
    ),
    "paths of no kind": (
        "[corpus]\npaths = 3",
        "`corpus.paths` must be a path or a list of paths. Received: .*=3",
    ),
    "chat template of no name": (
        "[chat]\npaths = 'a'\ntemplate = 'lama3'",
        "`chat.template` must be one of 'llama3', .*Received: .*'lama3'. Did you mean",
    ),
    "chat template without a response": (
        "[chat]\npaths = 'a'\ntemplate = { user = '{content}' }",
        "a table of .*`user` and `assistant` are needed. Received: the keys user",
    ),
    "chat template without a place": (
        "[chat]\npaths = 'a'\ntemplate = { user = 'Q:', assistant = '{content}' }",
        "`user` of a chat template must hold {content} once. Received: user='Q:'. Put",
    ),
    "tokens of a chat template": (
        "[chat]\npaths = 'a'\n"
        "template = { user = '{content}', assistant = '{content}', tokens = [1] }",
        r"`chat.template.tokens` must be a list of strings. Received: tokens=\[1\]",
    ),
    "one token of a chat template": (
        "[chat]\npaths = 'a'\n"
        "template = { user = '{content}', assistant = '{content}', tokens = '</s>' }",
        "`chat.template.tokens` must be a list of strings. Received: tokens='</s>'",
    ),
    "chat template without conversations": (
        "[chat]\ntemplate = 'gemma'",
        r"\[chat\] needs `paths`.*Received: template='gemma'. Set `chat.paths`, or",
    ),
    "no paths": ("[corpus]\npaths = []", r"must be a path or a list of .*paths=\[\]"),
    "an empty path": (
        "[corpus]\npaths = ['a', '']",
        "`corpus.paths` must be a non-empty string",
    ),
    "part of no data set": (
        "[corpus]\npaths = 'a'\ndataset_split = 'validation'",
        "`corpus.dataset_split` belongs to corpus.dataset, which is.*'validation'",
    ),
    "pattern of no files": (
        "[corpus]\ndataset = 'a'\npattern = '*.py'",
        r"`corpus.pattern` belongs to corpus.paths, which is.*'\*.py'. Set `cor",
    ),
    "held out of nothing": (
        "[corpus]\nvalidation_paths = ['a']",
        r"\[corpus\] needs `paths` or `dataset`.*Set one of them, or delete the table",
    ),
    "unknown policy": (
        "[corpus]\npaths = 'a'\non_bad = 'ignore'",
        "`corpus.on_bad` must be one of 'refuse', 'skip'. Received: .*'ignore'",
    ),
    "all text held out": (
        "[data]\nvalidation_fraction = 1.0",
        r"`data.validation_fraction` must be a number in \[0.001, 0.5\]",
    ),
    "rate not a number": (
        "[optimizer]\npeak_learning_rate = nan",
        "`optimizer.peak_learning_rate` must be a number in .*Received: .*nan",
    ),
    "rate rises": (
        "[optimizer]\npeak_learning_rate = 0.001\nend_learning_rate = 0.01",
        "`optimizer.end_learning_rate` must be at most .*=0.001. Received: .*=0.01",
    ),
    "decay of one": (
        "[pruning]\nema_decay = 1.0",
        r"`pruning.ema_decay` must be a number in \[0.0, 1.0\). Received: .*1.0",
    ),
    "unknown reduction": (
        "[pruning]\nrow_reduce = 'sum'",
        "`pruning.row_reduce` must be one of 'mean', 'max'. Received: .*'sum'",
    ),
    "unknown method": (
        "[pruning]\nmethod = 'magic'",
        "`pruning.method` must be one of 'sensitivity'.*Received: .*'magic'.$",
    ),
    "misspelled method": (
        "[pruning]\nmethod = 'sensitvity'",
        r"Received: pruning.method='sensitvity'. Did you mean 'sensitivity'\?",
    ),
    "unknown compaction": (
        "[pruning]\ncompact = 'now'",
        "`pruning.compact` must be one of 'end', 'progressive', 'off'. Rec.*'now'",
    ),
    "mask never changes": (
        "[pruning]\nupdate_every = 0",
        "`pruning.update_every` must be an integer >= 1",
    ),
    "a refit of neurons that are pruned one by one": (
        "[pruning]\nrefit_windows = 64",
        "`pruning.refit_windows` fits layers when all neurons go at once.*Received: "
        "method='sensitivity'.*, refit_windows=64",
    ),
    "misspelled axis": (
        "[distribution]\nmesh = { dta = 2 }",
        r"Received: distribution.mesh=\{'dta': 2\}. Did you mean 'data'\?",
    ),
    "misspelled dtype": ("[run]\ndtype = 'mixed_bf16'", "mean 'mixed_bfloat16'"),
    "no checkpoints": (
        "[run]\nkeep_checkpoints = 0",
        "`run.keep_checkpoints` must be an integer >= 1",
    ),
    "negative seed": ("[run]\nseed = -1", "`run.seed` must be an integer >= 0"),
}


@pytest.mark.parametrize("text, match", REFUSED.values(), ids=REFUSED.keys())
def test_refused_at_once(text, match):
    with pytest.raises(ConfigError, match=match):
        parse_config(text)


def test_demo_spells_out_the_defaults():
    model = dataclasses.replace(RunConfig().model, hub="llama3")
    sample = dataclasses.replace(RunConfig().sample, prompt="def read_")
    expected = dataclasses.replace(RunConfig(), model=model, sample=sample)
    assert load_config() == expected


def test_demo_names_every_key():
    # The file is the documentation of the keys: a new one must be in it.
    demo = importlib.resources.files("keras_idea.runs") / "demo.toml"
    text = demo.read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    # The keys whose default is to be left out.
    optional = {
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
    assert model.tokenizer == "preset" and model.of_hub
    assert {model.model_dim, model.num_layers, model.hidden_dim} == {None}
    below = r"below hidden_dim=192 of the preset: .*=192 \(default\). Lower"
    with pytest.raises(ConfigError, match=below):
        model.sizes_at_end(Sizes(192))


@pytest.mark.parametrize("hub", HUB_FAMILIES)
def test_a_hub_model_reads_bytes_by_default(hub):
    model = parse_config(f"[model]\nhub = {hub!r}").model
    assert model.tokenizer == "bytes" and model.hidden_dim == 512 and model.of_hub


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


def test_a_preset_has_no_wide_stage_by_default():
    assert parse_config('[model]\npreset = "there"').budget.enlarge_steps == 0
    assert parse_config("").budget.enlarge_steps == 500
    given = '[model]\npreset = "there"\n[budget]\nenlarge_steps = 100'
    assert parse_config(given).budget.enlarge_steps == 100
