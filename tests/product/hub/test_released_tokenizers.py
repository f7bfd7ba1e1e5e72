"""Tokenizers of released models: the ids of transformers, here and where we are not."""

import dataclasses
import functools
import inspect
import json
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._lm.data.make_tokenizer import make_tokenizer
from keras_idea._lm.runs.config import parse_config
from keras_idea._lm.runs.models import run_models
from keras_idea.hub.loading import load_with_notes, preprocessor_of
from keras_idea.hub.tokenizers import first_of_prompt
from tests.support import released_tokenizers as made
from tests.support.released_models import release
from tests.support.released_rows import ALL
from tests.support.tiny_run import ONE_LAYER

# Not those that `hub.load` compares on.
PLAIN = (
    "a lazy dog's 12,345 dollars",
    "x\n\n\n    y\t\t= 10\r\n",
    "We'll say: naïve cafés, 漢字漢字, and 1024 more...",
    "0001 22 333 4444 55555",
)
CASES = {
    "gpt2": ("gpt2", functools.partial(made.byte_level, "gpt2")),
    "llama3": ("llama", functools.partial(made.byte_level, "llama3", starts=True)),
    "instruct": ("llama", functools.partial(made.byte_level, "instruct")),
    # Its Llama 3 tokenizer demands tokens that it has not.
    "smollm": ("llama tied", functools.partial(made.byte_level, "smollm")),
    "qwen2": ("qwen2", functools.partial(made.byte_level, "qwen2")),
    "qwen3": ("qwen3", functools.partial(made.byte_level, "qwen2")),
    "llama2": ("llama", lambda: made.sentencepiece(True)[0]),
    "llama2 without a space": ("llama", lambda: made.sentencepiece(False)[0]),
    "mistral": ("mistral", lambda: made.sentencepiece(True)[0]),
    "mixtral": ("mixtral", lambda: made.sentencepiece(True)[0]),
    "bert": ("bert", made.word_piece),
    "bert cased": ("bert", lambda: made.word_piece(lowercase=False)),
}
CUT = ("gpt2", "llama3", "instruct", "smollm", "qwen2", "qwen3")


def save(folder, row, tokenizer):
    """A released model of a row, of as many tokens as its tokenizer has."""
    sizes = {**ALL[row].sizes, "vocab_size": len(tokenizer)}
    release(folder, dataclasses.replace(ALL[row], sizes=sizes))
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A function of a case that returns its folder."""

    @functools.cache
    def folder_of(name):
        row, tokenizer = CASES[name]
        folder = tmp_path_factory.mktemp("released")
        save(folder, row, tokenizer())
        return folder

    return folder_of


@pytest.fixture(scope="module")
def loaded(released):
    """A function of a case that returns what `hub.load` makes of it."""
    return functools.cache(lambda name: load_with_notes(released(name)))


@pytest.fixture(scope="module")
def saved(loaded, tmp_path_factory):
    """A function of a case that returns the folder of its preset."""

    @functools.cache
    def folder_of(name):
        folder = tmp_path_factory.mktemp("preset")
        loaded(name).model.save_to_preset(str(folder))
        return folder

    return folder_of


def theirs(folder):
    import transformers

    return transformers.AutoTokenizer.from_pretrained(folder)


def ids(tokenizer, text):
    return np.asarray(tokenizer(text)).tolist()


@pytest.mark.parametrize("name", CASES)
def test_ids_are_those_of_transformers(name, released, loaded):
    other = theirs(released(name))
    tokenizer = loaded(name).model.preprocessor.tokenizer
    for text in PLAIN:
        assert ids(tokenizer, text) == other.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("name", [*CUT, "bert"])
def test_special_tokens_in_a_text(name, released, loaded):
    other = theirs(released(name))
    tokenizer = loaded(name).model.preprocessor.tokenizer
    for token in set(other.all_special_tokens) - {"[UNK]"}:
        text = f"a dog{token}\n again"
        assert ids(tokenizer, text) == other.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("name", ["llama2", "mistral"])
def test_special_tokens_that_are_read_otherwise_are_told(name, loaded):
    assert any("spells out" in line for line in loaded(name).lines)


@pytest.mark.parametrize(
    "name, start",
    [("llama3", True), ("instruct", False), ("qwen2", False), ("llama2", False)],
)
def test_a_text_gets_the_start_token_if_it_does_in_transformers(name, start, loaded):
    assert loaded(name).model.preprocessor.add_start_token is start


@pytest.mark.parametrize("name", ["llama2", "llama2 without a space"])
def test_a_llama_with_sentencepiece_is_no_llama3(name, loaded):
    model = loaded(name).model
    assert type(model).__name__ == "LlamaCausalLM"
    assert type(model.backbone).__name__ == "LlamaBackbone"
    assert type(model.preprocessor.tokenizer).__name__ == "LlamaTokenizer"


@pytest.mark.parametrize("name", ["bert", "bert cased"])
def test_an_encoder_is_given_the_tokens_around_a_text(name, released, loaded):
    model = loaded(name).model
    made_of = {k: np.asarray(v) for k, v in model.preprocessor(PLAIN[0]).items()}
    received = made_of["token_ids"][made_of["padding_mask"].astype(bool)]
    assert received.tolist() == theirs(released(name)).encode(PLAIN[0])


# What the tokenizer_config of a released folder names makes another one of the files.
@pytest.mark.parametrize("scheme", ["prepend", "first"])
@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_of_a_named_class(prefix, scheme, tmp_path):
    tokenizer, model = made.sentencepiece(prefix, scheme=scheme)
    save(tmp_path, "llama", tokenizer)
    (tmp_path / "tokenizer.model").write_bytes(model)
    made.named(tmp_path, "LlamaTokenizer")
    loaded = load_with_notes(tmp_path)
    tokenizer, other = loaded.model.preprocessor.tokenizer, theirs(tmp_path)
    for text in PLAIN:
        assert ids(tokenizer, text) == other.encode(text, add_special_tokens=False)
    # transformers 5 puts no space before this one; that is told.
    spaced = "  two spaces"
    if ids(tokenizer, spaced) != other.encode(spaced, add_special_tokens=False):
        assert any("other token ids" in line for line in loaded.lines)


def test_a_tokenizer_that_kerashub_cannot_have_is_refused(tmp_path):
    """It folds texts, and KerasHub's SentencePiece does not."""
    from tokenizers import normalizers

    tokenizer, _ = made.sentencepiece(True)
    backend = tokenizer.backend_tokenizer
    backend.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), backend.normalizer]
    )
    save(tmp_path, "mistral", tokenizer)
    with pytest.raises(ki.errors.LoadRefused, match="other token ids"):
        ki.hub.load(tmp_path)


@pytest.mark.parametrize(
    "row, tokenizer, kind",
    [
        ("mistral", functools.partial(made.byte_level, "llama3"), "byte-level BPE"),
        ("gemma", functools.partial(made.byte_level, "gpt2"), "byte-level BPE"),
        ("llama", made.unigram, "Unigram"),
        ("gpt2", made.word_piece, "WordPiece"),
        ("bert", functools.partial(made.byte_level, "gpt2"), "byte-level BPE"),
    ],
)
def test_a_tokenizer_of_another_kind_is_refused(row, tokenizer, kind, tmp_path):
    save(tmp_path, row, tokenizer())
    with pytest.raises(ki.errors.LoadRefused, match=f"Tokenizer.* is {kind}"):
        preprocessor_of(tmp_path)


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    release(tmp_path, ALL["llama"])  # which has 96 tokens
    made.byte_level("llama3").save_pretrained(tmp_path)
    with pytest.raises(ki.errors.LoadRefused, match="more tokens than its model"):
        ki.hub.load(tmp_path)


@pytest.mark.parametrize("name", ["smollm", "qwen2", "llama2", "bert"])
def test_a_saved_preset_has_the_same_ids_and_outputs(name, loaded, saved):
    model, again = loaded(name).model, ki.hub.load(saved(name))
    assert type(again) is type(model)
    for text in (*PLAIN, "a<|im_end|>b"):
        one, other = (m.preprocessor.tokenizer for m in (model, again))
        assert ids(one, text) == ids(other, text)
    for a, b in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (a, b)))


def test_a_llama_3_tokenizer_says_its_tokens(released, monkeypatch):
    """What KerasHub's config leaves out; it is mended once a process."""
    import keras_hub

    kind = keras_hub.tokenizers.Llama3Tokenizer
    monkeypatch.setattr(kind, "get_config", inspect.unwrap(kind.get_config))
    tokenizer = load_with_notes(released("smollm")).model.preprocessor.tokenizer
    assert tokenizer.get_config()["eos_token"] == "<|im_end|>"


# Nothing of ours can be imported in this process.
STRANGER = """
import json, sys
sys.modules["keras_idea"] = None
import numpy as np, keras_hub
found = {}
for name, folder in json.loads(sys.argv[1]).items():
    lm = keras_hub.models.CausalLM.from_preset(folder)
    ids = np.asarray(lm.preprocessor.tokenizer("dog")).tolist()
    lm.compile(sampler="greedy")
    found[name] = [ids, lm.generate("the quick", max_length=24)]
print(json.dumps(found))
"""


@pytest.mark.daily()
def test_a_process_without_us_loads_the_presets_and_generates(loaded, saved):
    names = ("smollm", "instruct", "qwen3", "llama2", "mistral")
    presets = {name: str(saved(name)) for name in names}
    command = [sys.executable, "-c", STRANGER, json.dumps(presets)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    found = json.loads(process.stdout.splitlines()[-1])
    for name in names:
        model = loaded(name).model
        received, text = found[name]
        assert received == ids(model.preprocessor.tokenizer, "dog")
        assert text.startswith("the quick") and len(text) > len("the quick")


@pytest.mark.parametrize("name", CUT)
def test_a_start_token_that_generate_alone_puts(name, loaded, released):
    """Before a prompt, where transformers puts none; and how to leave it out."""
    import transformers

    model, lines = loaded(name).model, loaded(name).lines
    theirs = transformers.AutoTokenizer.from_pretrained(released(name)).encode("the")
    preprocessor = model.preprocessor

    def ids():
        made = preprocessor.generate_preprocess("the", 16)
        ids, mask = (np.asarray(made[n]) for n in ("token_ids", "padding_mask"))
        return ids[mask.astype(bool)].tolist()

    told = any("`generate` puts" in line for line in lines)
    assert told == (ids() != theirs)
    if told:
        assert name in ("gpt2", "instruct", "smollm")
        start = preprocessor.packer.start_value
        preprocessor.packer.start_value = None
        assert ids() == theirs
        preprocessor.packer.start_value = start


@pytest.mark.parametrize("family", ["Gemma", "Gemma3"])
def test_the_first_of_a_prompt(family):
    """Gemma 3's preprocessor takes the length by its name only."""
    import keras_hub

    proto = make_tokenizer("gemma", "bytes", "").proto
    more = {"has_vision_tokens": False} if family == "Gemma3" else {}
    tokenizer = getattr(keras_hub.models, f"{family}Tokenizer")(proto, **more)
    preprocessor = getattr(keras_hub.models, f"{family}CausalLMPreprocessor")(tokenizer)
    assert first_of_prompt(preprocessor, "x") == tokenizer.start_token_id


@pytest.mark.parametrize("name", ["smollm", "llama2"])
def test_a_run_saves_the_tokenizer_of_its_checkpoint(
    name, released, saved, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(made.TEXT * 4)
    table = f"[model]\npreset = {str(saved(name))!r}\ntarget_dim = 8\n"
    config = parse_config(table + ONE_LAYER[ONE_LAYER.index("sequence_length") :])
    models = run_models(config)
    models.save(models.wide(), tmp_path / "runs/mine/preset")
    lm = ki.hub.load("runs/mine/preset")
    for text in PLAIN:
        expected = theirs(released(name)).encode(text, add_special_tokens=False)
        assert ids(lm.preprocessor.tokenizer, text) == expected
