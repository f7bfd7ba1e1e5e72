"""What `keras-idea plan` says of a run, counted by hand."""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys

import keras
import keras_hub  # noqa: F401  (large itself: it is not to be measured)
import numpy as np
import pytest

from keras_idea.errors import ConfigError
from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.cli import main
from keras_idea.lm.runs.config import load_config, parse_config
from keras_idea.lm.runs.models.build import pruning
from keras_idea.lm.runs.plan import plan
from keras_idea.lm.runs.plan.table import advice
from keras_idea.lm.runs.plan.target_devices import parse_target
from keras_idea.lm.runs.run_folder import RunFolder
from keras_idea.lm.runs.train.prepare import prepare
from keras_idea.surgery import find_ffns
from tests.support import ROOT
from tests.support.tiny_run import CONFIG, with_hub, write_inputs

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
        (s.name, s.steps, s.tokens, s.units("neurons"), round(s.flops))
        for s in planned.stages
    ]
    wide, narrow = flops_a_step(32), flops_a_step(8)
    assert rows == [
        ("wide", 4, 4 * TOKENS, (32, 32), 4 * wide),
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
        "wide",
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
    assert all(word in printed for word in ("wide", "recovery", "32 to 8"))
    budget = f"{12 * 64 / 11_088:.3g} tokens per parameter of the narrow model"
    words = " ".join(printed.split())
    assert f"{budget}. FFNs enlarged 4×." in words
    assert "When pruning pays: docs/costs_and_benefits.md" in words
    assert (ROOT / "docs/costs_and_benefits.md").is_file()
    assert "Advice: enlarge at most 2×" in words and "This run enlarges 4×." in words
    assert "Advice: from 90" not in words  # it is a short run
    assert (ROOT / "docs/settings.md").is_file()
    assert "26,000" not in printed  # no comparison with models of another size
    assert sorted(in_folder.iterdir()) == before


def test_advice_follows_from_the_run(in_folder):
    long = CONFIG.replace("recover_steps = 5", "recover_steps = 19_997")
    long = long.replace("hidden_dim = 32", "hidden_dim = 16")
    long = long.replace("enlarge_steps = 4", "enlarge_steps = 20_000")
    told = advice(plan(parse_config(long, "tiny")))
    assert told[0].startswith("Advice: from 90 tokens per parameter on")
    assert told[0].endswith("This run has 50%.") and len(told) == 2
    short = long.replace("20_000", "8").replace("19_997", "9")
    assert advice(plan(parse_config(short, "tiny"))) == []
    planned = plan(parse_config(short, "tiny"))
    told = advice(dataclasses.replace(planned, of_checkpoint=True))
    assert told[0].startswith("Advice: set `distillation.teacher`")
    assert not planned.of_checkpoint


def test_a_text_that_is_read_too_often_is_warned_of_first(in_folder, capsys):
    text = (in_folder / "text.txt").read_text()
    tokens = 12 * TOKENS
    for size, warned in ((tokens // 4 + 1, False), (tokens // 8, True)):
        # A fifth is held out.
        (in_folder / "text.txt").write_text(text[: round(size / 0.8)])
        assert main(["plan", "tiny.toml"]) == 0
        first, second, *_ = capsys.readouterr().out.splitlines()
        assert first.startswith("Warning: the run reads its text 8 times.") == warned
        assert first.endswith("at most 6 steps in [budget].") == warned
        assert ("read 8 times" in second) == warned


def test_the_text_need_not_be_there(in_folder, capsys):
    with_text = plan(parse_config(CONFIG, "tiny"))
    (in_folder / "text.txt").unlink()
    assert main(["plan", "tiny.toml", "--without-text"]) == 0
    assert "Text: not read. Vocabulary: 256 tokens" in capsys.readouterr().out
    without = plan(parse_config(CONFIG, "tiny"), read_text=False)
    assert (without.stages, without.footprints) == (
        with_text.stages,
        with_text.footprints,
    )


def test_a_tokenizer_has_the_tokens_that_are_asked_for(in_folder):
    lines = "hub = 'llama3'\ntokenizer = 'bpe'\nvocabulary_size = 300"
    config = parse_config(with_hub(CONFIG, lines), "tiny")
    bytes_alone = parse_config(with_hub(CONFIG, "hub = 'llama3'"), "tiny")
    more, fewer = (
        plan(c, read_text=False).parameters[0] for c in (config, bytes_alone)
    )
    # 256 bytes and 5 special tokens; each has a row in two matrices of width 16.
    assert more - fewer == (300 - 261) * 2 * 16


@pytest.mark.parametrize("name", ["adamw", "adafactor", "muon", "lion"])
@pytest.mark.parametrize("hub", [False, True], ids=["decoder", "hub"])
def test_bytes_are_those_of_a_real_model(in_folder, hub, name):
    """Counted by the arrays that a model and its optimizer really hold."""
    text = CONFIG.replace("[optimizer]\n", f"[optimizer]\nname = {name!r}\n")
    text += "compare_from_scratch = false\n[pruning]\ncompact = 'progressive'\n"
    config = parse_config(with_hub(text, "hub = 'llama3'") if hub else text, "tiny")
    planned = plan(config)
    models = prepare(config, RunFolder("runs/none")).models
    model = models.wide()
    prune = pruning(config.pruning, config.budget, models.at_end.by_kind())
    held = {}

    class Note(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            ffns = find_ffns(model)
            state = [*model.variables, *model.optimizer.variables]
            for ffn in ffns:
                if not ffn.masks_itself:  # else they are the model's
                    state += ffn.state.variables_of_neurons
            aside = [*model.metrics_variables, *_seeds(state)]
            sizes = [_nbytes(v) for v in state if all(v is not a for a in aside)]
            held.setdefault(ffns[0].hidden_dim, sum(sizes))

    x, y = models.corpus.batch(0, seed=0, batch_size=4 * 12, length=16)
    inputs = token_inputs(model, x)
    model.fit(inputs, y, batch_size=4, verbose=0, callbacks=[prune, Note()])
    expected = {
        of.sizes.neurons: of.weights + of.optimizer + of.pruning
        for of in planned.footprints.values()
    }
    assert len(expected) == 4
    assert held == expected


def _seeds(variables):
    return [v for v in variables if "seed_generator" in v.path]


def _nbytes(variable):
    # By its shape: within `fit`, on jax, the variables have no values.
    return np.zeros(variable.shape, variable.dtype).nbytes


def test_what_train_refuses_is_refused(in_folder, capsys):
    (in_folder / "text.txt").unlink()
    assert main(["plan", "tiny.toml"]) == 2
    assert "No text at 'text.txt'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples/runs").glob("*.toml")), ids=lambda p: p.stem
)
def test_run_files_say_what_they_cost(path):
    """In their headers: the parameters, and the hours on what they are planned for."""
    if keras.backend.backend() == "tensorflow":  # all clip by the global norm
        with pytest.raises(ConfigError, match=r"`optimizer.global_clipnorm` cannot"):
            plan(load_config(path), read_text=False)
        return
    said = path.read_text()
    found = re.search(r"(\d+) x (h100|v5e)", said)
    target = parse_target(f"{found[2]}:{found[1]}") if found else None
    before = _resident("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    planned = plan(load_config(path), target, read_text=False)
    assert _resident("VmHWM") - before < 300e6  # the largest has 12 GB of weights
    wide, narrow = planned.parameters
    assert f"# With embeddings {wide:,} parameters, then {narrow:,}." in said
    if found:
        assert f"{planned.hours(0.4):.2f} hours" in said
    else:
        assert f"{sum(s.flops for s in planned.stages):.1e}".replace("+", "") in said


def test_a_run_holds_what_was_planned():
    """With a teacher, in a process of its own, whatever the backend compiles."""
    command = [sys.executable, "-m", "tests.support.peak_memory"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found = json.loads(done.stdout.splitlines()[-1])
    # On jax a third is the compiler's own, not the device's.
    least = 0.6 if keras.backend.backend() == "jax" else 0.75
    assert least < found["planned"] / found["held"] < 1.3


def _resident(field):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith(field))
    return 1024 * int(found.split()[1])


def test_a_compiler_is_asked(in_folder, capsys):
    if keras.backend.backend() != "jax":
        assert main(["plan", "tiny.toml", "--compile"]) == 2
        return
    planned = plan(parse_config(CONFIG, "tiny"), compile_step=True)
    wide, narrow = planned.footprints["wide"], list(planned.footprints.values())[-1]
    batch = 2 * 4 * TOKENS  # int32 tokens and targets
    for of in (wide, narrow):
        step = planned.compiled[of.sizes]
        more = step.arguments - of.weights - of.optimizer - batch
        assert 0 <= more < 200  # metrics and seeds
        assert step.arguments < step.peak and step.collectives == {}


def test_a_target_with_its_hours_price_and_room(in_folder, capsys):
    words = ["--target", "v5e:2x2", "--utilisation", "0.5", "--price", "1e9"]
    assert main(["plan", "tiny.toml", *words]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    planned = plan(parse_config(CONFIG, "tiny"))
    hours = sum(s.flops for s in planned.stages) / (197e12 * 4 * 0.5) / 3600
    assert f"{hours * 4 * 1e9:,.2f} at 1e+09 per device and hour" in printed
    assert "Memory of one v5e: 17,180 MB, enough for the" in printed
    assert "Devices: 4 along the data axis, 1 along the model." in printed


@pytest.mark.parametrize(
    "words, match",
    [
        (["--target", "v9"], "must be one of v5e, .*Received: 'v9'"),
        (
            ["--target", "v5:4x4"],
            r"Received: 'v5:4x4'. Did you mean 'v5[ep]' or 'v5[ep]'\?",
        ),
        (["--devices", "4"], "must be DATAxMODEL.*Received: '4'"),
        (
            ["--devices", "3x1"],
            "must divide the sequences.*data=3. Set `data.batch_size`",
        ),
        (
            ["--devices", "1x3"],
            "must divide the neurons at the start and at the end.*model=3. Set `dist",
        ),
        (["--utilisation", "2"], "--utilisation"),
        (["--target", "h100", "--utilisation", "0"], "--utilisation"),
        (["--price", "-3"], "--price"),
    ],
)
def test_devices_that_cannot_be(in_folder, capsys, words, match):
    assert main(["plan", "tiny.toml", *words]) == 2
    assert re.search(match, capsys.readouterr().err)
