"""`keras-idea shrink`: what `ki.shrink` gives, saved, judged, exported; or refused."""

import importlib
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.data import open_text, tokenizer_vocabulary
from keras_idea.evaluation import TokenScorer
from keras_idea.evaluation import perplexity as perplexity_of
from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.cli import main
from keras_idea.methods import METHODS
from keras_idea_cli.arguments import make_parser
from tests.support.encoders import backbone
from tests.support.hub_models import tiny_lm
from tests.support.with_tokenizer import VOCABULARY, with_tokenizer

TEXT = "the quick brown fox jumps over the lazy dog, and again: " * 60
WINDOW, TOKENS = 16, 512
HELD_OUT = 32 * WINDOW
ROWS = ["--text", "text.txt", "--tokens", str(TOKENS), "--window", str(WINDOW)]
WIDE = ["shrink", "wide", "--to", "small"]
NATS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture
def wide(tmp_path, monkeypatch):
    """A preset of three blocks with FFNs of 24 neurons; beside it a text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    lm = tiny_lm("llama3", num_layers=3, vocabulary_size=VOCABULARY)
    with_tokenizer(lm, "llama3").save_to_preset("wide")
    return tmp_path


def command(*options):
    return main([*WIDE, *ROWS, *options])


def rows(source="wide", fraction=HELD_OUT / (TOKENS + HELD_OUT)):
    """The rows as the command says that it takes them, to measure on and held out."""
    text = open_text(paths="text.txt", validation_fraction=fraction)
    tokenizer = ki.hub.load(source).preprocessor.tokenizer
    found = []
    for part in (text.train, text.held_out):
        ids = tokenizer_vocabulary(tokenizer).encode(bytes(part.tolist()).decode())
        count = (len(ids) - 1) // WINDOW
        chosen = [i * count // 32 for i in range(32)] if count > 32 else range(count)
        of_part = np.stack([ids[i * WINDOW : (i + 1) * WINDOW + 1] for i in chosen])
        found.append((of_part[:, :-1], of_part[:, 1:]))
    return found


def loaded(source="wide"):
    lm = ki.hub.load(source, "float32")
    lm.compile("sgd", NATS)
    return lm


def equal(path, model):
    """Whether a preset holds a model's weights, bit by bit."""
    found = ki.hub.load(path).get_weights()
    pairs = zip(found, model.get_weights(), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def perplexity(model, x, y):
    """By hand, in float64."""
    logits = keras.ops.convert_to_numpy(model(token_inputs(model, x))).astype("float64")
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return np.exp(-np.take_along_axis(logs, y[..., None], -1).mean())


@pytest.mark.parametrize(
    "options, targets, method",
    [
        (
            ["--neurons", "0.5", "--refit", "--by-weights"],
            {"neurons": 0.5},
            "activation",
        ),
        (["--neurons", "0.4", "--round-to", "8"], {"neurons": 8}, "magnitude"),
        (
            ["--neurons", "12", "--blocks", "2"],
            {"neurons": 12, "blocks": 2},
            "sensitivity",
        ),
    ],
    ids=["refit by weights", "rounded", "blocks"],
)
def test_it_is_what_the_function_gives(wide, options, targets, method, capsys):
    assert command(*options, "--method", method) == 0
    out = capsys.readouterr().out
    measured, held_out = rows()
    lm = loaded()
    data = (token_inputs(lm, measured[0]), measured[1])
    how = {"refit": "--refit" in options, "batch_size": 8192 // WINDOW}
    ranks_by = ki.methods.get(method)
    if "--by-weights" in options:
        ranks_by = ki.methods.Activation(by_weights=True)
    small = ki.shrink(lm, targets, data, ranks_by, **how)
    assert equal("small", small)
    assert f"{measured[0].size:,} tokens in {len(measured[0])} rows of 16" in out
    for name, model in (("before", lm), ("after", small)):
        width = max(ffn.width for ffn in ki.find_ffns(model))
        ffns, size = len(ki.find_ffns(model)), model.count_params()
        [shown] = re.findall(
            rf" *{name} +{size:,} +{4 * size:,} +{ffns} +{width} +([\d.]+)\n", out
        )
        assert float(shown) == pytest.approx(perplexity(model, *held_out), rel=1e-4)
    assert f"on {held_out[0].size} held-out tokens, in windows of 16 tokens" in out


def test_the_most_neurons_within_a_budget(wide, capsys):
    most = loaded().count_params() - 3 * 3 * 16 * 10 - 1  # 10 of 24 are not enough
    assert command("--target-parameters", str(most)) == 0
    assert {ffn.width for ffn in ki.find_ffns(ki.hub.load("small"))} == {13}
    assert "Shrinking to neurons 13, by activation" in capsys.readouterr().out


def test_a_search_and_an_export(wide, capsys):
    lm = loaded()
    most = round(0.9 * lm.count_params())
    options = ["--search", "--target-bytes", str(4 * most), "--candidates", "3"]
    assert command(*options, "--export", "gguf", "--gguf-dtype", "q8_0") == 0
    out = capsys.readouterr().out
    [measured, _] = rows()
    data = (token_inputs(lm, measured[0]), measured[1])
    batch_size = 8192 // WINDOW
    found = ki.search(
        lm,
        data,
        target_parameters=most,
        kinds=("neurons", "blocks"),
        candidates=3,
        batch_size=batch_size,
        verbose=0,
    )
    assert equal("small", ki.shrink(lm, found[0].targets, data, batch_size=batch_size))
    assert all(f"{candidate.loss:.4f}" in out for candidate in found)
    assert "small.gguf: a GGUF file of Llama3CausalLM" in out
    assert sorted(path.name for path in wide.iterdir()) == [
        "small",
        "small.gguf",
        "text.txt",
        "wide",
    ]


def test_the_vocabulary_by_the_whole_text(wide, capsys):
    """Counted in all that is not held out; both judged on the same bytes."""
    lm = tiny_lm("llama3", num_layers=3, vocabulary_size=VOCABULARY)
    lm = with_tokenizer(lm, "llama3", "bpe", VOCABULARY)
    lm.save_to_preset("merged")
    size = (261 + lm.preprocessor.tokenizer.vocabulary_size()) // 2
    options = ["--vocabulary", str(size), "--neurons", "12", "--export", "hf"]
    assert main(["shrink", "merged", *WIDE[2:], *ROWS, *options]) == 0
    out = capsys.readouterr().out
    lm, (measured, _) = loaded("merged"), rows("merged", 0.1)
    x = token_inputs(lm, measured[0])
    narrow = ki.shrink(lm, {"neurons": 12}, x, batch_size=8192 // WINDOW)
    whole = open_text(paths="text.txt", validation_fraction=0.1)
    train = bytes(whole.train.tolist()).decode()
    small = ki.shrink(narrow, {"vocabulary": size}, train)
    assert equal("small", small)
    found = ki.hub.load("small").preprocessor.tokenizer.vocabulary
    assert found == small.preprocessor.tokenizer.vocabulary and len(found) == size
    assert (wide / "small-hf/tokenizer.json").exists()
    judged = {}
    for name, model in (("before", lm), ("after", small)):
        own = tokenizer_vocabulary(model.preprocessor.tokenizer)
        count = int(re.search("same ([0-9,]+) held-out bytes", out)[1].replace(",", ""))
        ids = own.encode(bytes(whole.held_out[:count].tolist()).decode())
        scorer = TokenScorer(model, WINDOW, lambda ids, m=model: token_inputs(m, ids))
        bits = perplexity_of(scorer, ids, own.token_bytes, WINDOW).bits_per_byte
        tokens = model.backbone.vocabulary_size
        [shown] = re.findall(rf" *{name} .* {tokens:,} +([0-9.]+)\n", out)
        assert float(shown) == pytest.approx(bits, abs=1e-3)
        judged[name] = len(ids)
    assert judged["after"] > judged["before"]
    assert "prune its FFNs" not in out  # which it was told to do
    old = tokenizer_vocabulary(lm.preprocessor.tokenizer).encode(train)
    assert f"counted on {len(old):,} tokens, of which {len(set(old))} are" in out


def test_progress_says_of_how_many(wide, monkeypatch, capsys):
    stages = importlib.import_module("keras_idea.lm.runs.shrink.one_shot")
    monkeypatch.setattr(stages, "_INTERVAL", 0.0)
    monkeypatch.setattr(stages, "most_tokens", lambda model: 8 * WINDOW)
    assert command("--neurons", "0.5", "--refit") == 0
    lines = re.findall(r"^  (\w+) (\d+) of (\d+)", capsys.readouterr().out, re.M)
    assert {(unit, of) for unit, _, of in lines} == {("batch", "4"), ("row", "32")}
    counts = [int(done) for unit, done, _ in lines if unit == "batch"]
    assert counts == [1, 2, 3, 4] * (len(counts) // 4) and len(counts) > 4


def test_an_encoder_is_rejected_before_its_weights_are_read(wide, capsys):
    backbone("bert").save_to_preset("encoder")

    def assert_rejected(*words):
        before = sorted(wide.rglob("*"))
        assert main(words) == 2
        error = capsys.readouterr().err
        assert "'encoder', a Bert" in error and error.count("\n") == 1
        assert sorted(wide.rglob("*")) == before

    assert_rejected("evaluate", "encoder", "--text", "text.txt")
    assert_rejected("export", "encoder", "--preset", "small")
    (wide / "encoder/model.weights.h5").unlink()
    assert_rejected("shrink", "encoder", *WIDE[2:], *ROWS, "--neurons", "0.5")
    assert_rejected("import", "encoder", "--preset", "small")


def test_a_process_without_us_loads_it(wide):
    assert command("--neurons", "0.5") == 0
    code = (
        "import sys; sys.modules['keras_idea'] = None\n"
        "import keras_hub, numpy\n"
        "lm = keras_hub.models.CausalLM.from_preset('small')\n"
        "print(lm.backbone.intermediate_dim, lm.generate('the ', max_length=12))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.startswith("12 the "), ended.stderr


@pytest.mark.parametrize(
    "options, message",
    [
        ([], "Received: neither"),
        (["--neurons", "0.5", "--target-bytes", "9k"], "Received: both"),
        (["--target-bytes", "9k", "--target-flops", "1k"], "Give one of"),
        (["--neurons", "1.5"], "`targets['neurons']` must be an integer >= 1"),
        (["--neurons", "25"], "`targets['neurons']` is 25, but"),
        (["--neurons", "9", "--round-to", "8"], "Give 8 or 16, or a fraction"),
        (["--blocks", "4"], "`targets['blocks']` is 4, but"),
        (["--kv-groups", "1"], "has no 'kv_groups' that can be cut"),
        (
            ["--search", "--target-flops", "1k", "--kinds", "kv_groups"],
            "has no 'kv_groups' that can be cut",
        ),
        (["--hidden-dim", "8"], "hidden size of 'llama3_backbone' cannot"),
        (["--blocks", "2", "--refit"], "`--refit` fits what reads neurons"),
        (
            ["--neurons", "0.5", "--method", "random", "--by-weights"],
            "Received: --method random",
        ),
        (["--neurons", "0.5", "--search"], "`--search` looks for the best shape"),
        (["--search", "--target-flops", "1k", "--kinds", "x"], "`--kinds` must be"),
        (["--target-parameters", "1k"], "cannot be met"),
        (["--target-parameters", "1M"], "The model itself is within"),
        (["--vocabulary", "100"], "must be from 261 to 261 tokens"),
        (["--vocabulary", "0.9", "--refit"], "`--refit` fits what reads neurons"),
        (["--neurons", "0.5", "--window", "513"], "`--window` must be at most"),
        (["--neurons", "0.5", "--tokens", "16", "--refit"], "Give 64 tokens or more"),
        (["--neurons", "0.5", "--text", "no.txt"], "No text at 'no.txt'"),
        (["--neurons", "0.5", "--to", "wide"], "'wide' exists already"),
        (["--neurons", "0.5", "--to", "text.txt"], "exists already"),
        (["--neurons", "0.5", "--gguf-dtype", "f16"], "is for `--export gguf` only"),
        (
            ["--neurons", "0.5", "--to", "text", "--export", "gguf"],
            "'text.gguf' exists already",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_the_weights_are_read(
    wide, options, message, capsys
):
    (wide / "wide/model.weights.h5").unlink()
    (wide / "text.gguf").touch()
    before = sorted(wide.rglob("*"))
    assert command(*options) == 2
    error = capsys.readouterr().err
    # No Python to type at a command line.
    assert message in error and "keras_idea." not in error
    assert sorted(wide.rglob("*")) == before


@pytest.mark.parametrize("mode", ["int8", "float8"])
def test_a_quantized_preset(wide, mode, capsys):
    lm = loaded()
    lm.backbone.quantize(mode, filters="feedforward_output")
    lm.save_to_preset("wide")
    (wide / "wide/model.weights.h5").unlink()
    for options in (
        [*WIDE, *ROWS, "--neurons", "0.5"],
        [*WIDE, *ROWS, "--vocabulary", "0.9"],
        [*WIDE, *ROWS, "--search", "--target-parameters", "9k"],
        ["new", "run.toml", "--preset", "wide", "--tokens", "1M", *ROWS[:2]],
    ):
        assert main(options) == 2
        error = capsys.readouterr().err
        assert "'wide' is quantized" in error and "Prune first" in error


def test_no_checkpoint(wide, capsys):
    assert main(["shrink", "nowhere", *WIDE[2:], *ROWS, "--neurons", "0.5"]) == 2
    assert "No checkpoint can be loaded from 'nowhere'" in capsys.readouterr().err


def test_every_method_that_ranks_without_training():
    parsed = [
        make_parser().parse_args([*WIDE, *ROWS, "--method", name]).method
        for name in METHODS
        if name != "learned_mask"
    ]
    assert len(parsed) == len(METHODS) - 1
    with pytest.raises(SystemExit):
        make_parser().parse_args([*WIDE, *ROWS, "--method", "learned_mask"])


@pytest.mark.parametrize(
    "text, number",
    [("90M", 90_000_000), ("1.5B", 1_500_000_000), ("64k", 64_000), ("1_000", 1000)],
)
def test_large_numbers(text, number):
    options = make_parser().parse_args([*WIDE, *ROWS, "--target-parameters", text])
    assert options.target_parameters == number
