"""The other commands, each once on real files."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

import keras_idea_cli
from keras_idea._lm.runs.config import load_config, parse_config
from keras_idea._lm.runs.judge import load_judged
from keras_idea._lm.runs.plan import plan
from keras_idea_cli import app, main
from tests.support.processes import MODULE, python
from tests.support.tiny_run import CONFIG, TEXT, with_hub, write_inputs

COMMANDS = "new plan train status shrink import export evaluate report".split()


def test_the_commands():
    found = [c.name or c.callback.__name__ for c in app.registered_commands]
    assert found == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_on_one_screen_and_shows_an_example(command, capsys):
    assert main([command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 32 and max(map(len, lines)) <= 80
    assert f"keras-idea {command} " in " ".join(lines[-3:])


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["trian"], "Did you mean 'train'"),
        (["train", "--ouput", "x"], "--output"),
        (["train", "none.toml"], "none.toml"),
        (["new", "a.toml", "--tokens", "many"], "90M"),
        (["export", "run", "--hf", "a", "--gguf", "b"], "--gguf"),
        (["export", "run"], "--hf"),
        (["shrink", "a", "--to", "b", "--text", "c"], "--neurons"),
        (["report", "nowhere"], "nowhere"),
        (["evaluate", "nowhere", "--text", "stdlib"], "nowhere"),
    ],
)
def test_wrong_input_is_one_message_and_status_2(
    tmp_path, monkeypatch, capsys, arguments, said
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


def test_an_error_of_the_program_keeps_its_trace(monkeypatch):
    monkeypatch.setattr(keras_idea_cli, "app", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["status"])


def test_status_needs_no_backend(tmp_path):
    """Before the first step, and of a finished run."""
    ended = python(*MODULE, "status", "tiny.toml", folder=tmp_path, PYTHONPATH=cwd())
    assert ended.returncode == 0, ended.stderr
    assert "keras-idea train tiny.toml" in ended.stdout
    code = "import os, sys, keras_idea_cli as c; c.main(['status'])\n"
    code += "print(os.environ['TF_CPP_MIN_LOG_LEVEL'], *sys.modules)"
    ended = python("-c", code, folder=tmp_path, PYTHONPATH=cwd())
    level, *modules = ended.stdout.splitlines()[-1].split()
    assert level == "3" and "keras" not in modules  # TensorFlow does not greet


def cwd():
    return str(pathlib.Path.cwd())


def test_status_of_a_finished_run(finished, capsys):
    assert main(["status", str(finished[0])]) == 0
    printed = capsys.readouterr().out
    assert "finished" in printed and "resume" not in printed


def test_ctrl_c_is_one_line_and_the_same_command_resumes(tmp_path):
    write_inputs(tmp_path, CONFIG.replace("recover_steps = 5", "recover_steps = 40001"))
    command = [sys.executable, *MODULE, "train", "tiny.toml"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": cwd()},
        # Of a shell's background job it is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        checkpoints = tmp_path / "runs/tiny/checkpoints/pruned"
        until = time.monotonic() + 240
        while not list(checkpoints.glob("checkpoint-*")):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert [line for line in error.splitlines() if "keras-idea" in line] == [
        "keras-idea: interrupted. The same `train` command resumes a run."
    ]
    assert "Traceback" not in error and list(checkpoints.glob("checkpoint-*"))


def test_report(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runs = [str(finished[0]), str(shutil.copytree(finished[0], tmp_path / "two"))]
    for _ in range(2):  # it replaces a report
        assert main(["report", *runs]) == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("<img ") == 2 and "http" not in page.replace("http-equiv", "")
    (tmp_path / "report.html").write_text("a letter")
    assert main(["report", *runs]) == 2  # but nothing else
    (tmp_path / "two/table.json").write_text("{")
    assert main(["report", "two", "--output", "b.html"]) == 2
    assert "two" in capsys.readouterr().err


def test_evaluate_counts_every_token(finished, tmp_path, capsys):
    (tmp_path / "held_out.txt").write_text(TEXT)
    text = str(tmp_path / "held_out.txt")
    assert main(["evaluate", str(finished[0]), "--text", text]) == 0
    printed = dict(
        line.split(":") for line in capsys.readouterr().out.strip().splitlines()
    )
    assert int(printed["predicted tokens"].replace(",", "")) == len(TEXT) - 1
    assert printed["window"].split() == ["16", "tokens"]


def test_windows_never_exceed_the_model_s_positions(tmp_path):
    import keras_hub

    from keras_idea._lm.data.make_tokenizer import make_tokenizer
    from tests.support.hub_models import tiny_lm

    lm = tiny_lm("gpt2", vocabulary_size=261)
    bytes_alone = make_tokenizer("llama3", "bytes", "")
    words = {t: i for t, i in bytes_alone.vocabulary.items() if i < 256}
    words["<|endoftext|>"] = 256
    tokenizer = keras_hub.models.GPT2Tokenizer(words, bytes_alone.merges)
    lm.preprocessor = keras_hub.models.GPT2CausalLMPreprocessor(tokenizer)
    lm.save_to_preset(str(tmp_path / "preset"))
    judged = load_judged(tmp_path / "preset", length=100_000)
    assert judged.scorer.max_length == lm.backbone.max_sequence_length


def test_plan_counts_what_a_run_does():
    planned = plan(parse_config(CONFIG))
    steps = {stage.name: stage.steps for stage in planned.stages}
    assert steps == {
        "wide": 4,
        "pruning": 3,
        "recovery": 5,
        "narrow from scratch": 12,
    }
    # 2 layers of 3 kernels lose 24 neurons of 16 weights; AdamW has two slots.
    wide, narrow = planned.parameters
    assert wide - narrow == 2 * 3 * 24 * 16
    assert planned.weights == (4 * wide, 4 * narrow)
    assert 8 * narrow <= planned.optimizer[1] < 8 * narrow + 64
    wide_flops = planned.stages[0].flops / 4
    assert planned.stages[2].flops / 5 < wide_flops
    assert "train FLOPs" in str(planned) and planned.loading == 0
    table = [line for line in str(planned).splitlines() if line.startswith("|")]
    assert len(set(map(len, table[:5]))) == 1  # in columns
    sizes = [line.split("|")[4].strip() for line in table[2:5]]
    assert sizes == ["FFN width 32", "FFN width 32 to 8", "FFN width 8"]


def test_plan_says_how_much_memory_loading_takes(tmp_path):
    from tests.support.hub_models import tiny_lm

    tiny_lm("llama3").save_to_preset(str(tmp_path / "preset"))
    table = f"[model]\npreset = {str(tmp_path / 'preset')!r}\ntarget_dim = 8\n"
    planned = plan(parse_config(table + "sequence_length = 16\n"))
    most = 2.2 * 4 * planned.parameters[0]
    assert planned.loading == pytest.approx(most, abs=1)
    assert f"takes up to {most / 1e6:,.3f} MB" in str(planned)


def test_new_writes_a_file_that_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    new = ["new", "my.toml", "--tokens", "200k", "--text", "text.txt"]
    assert main([*new, "--target-dim", "0.5"]) == 0
    config = load_config("my.toml")
    assert config.model.target_dim == 0.5 and config.data.paths == ["text.txt"]
    assert config.run.output == "runs/my"
    assert all("#" in line for line in keys_of(tmp_path / "my.toml"))
    assert main(new) == 2  # nothing is replaced
    # No text is read: it may come later.
    assert main(["new", "b.toml", "--tokens", "200k", "--text", "later.jsonl"]) == 0


def keys_of(path):
    return [line for line in path.read_text().splitlines() if " = " in line]


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    from tests.support.hub_models import tiny_lm
    from tests.support.with_tokenizer import with_tokenizer

    folder = tmp_path_factory.mktemp("preset")
    (folder / "text.txt").write_text(TEXT)
    heads = {"num_query_heads": 4, "num_key_value_heads": 2}
    lm = tiny_lm("qwen3", num_layers=2, vocabulary_size=261, **heads)
    with_tokenizer(lm, "qwen3").save_to_preset(str(folder / "preset"))
    return folder


def test_new_for_a_checkpoint(preset, monkeypatch):
    monkeypatch.chdir(preset)
    new = ["new", "c.toml", "--tokens", "1M", "--text", "text.txt"]
    assert main([*new, "--preset", "preset"]) == 0
    config = load_config("c.toml")
    assert config.model.preset == config.distillation.teacher == "preset"
    assert not config.budget.enlarge_steps


@pytest.mark.parametrize(
    "options",
    [
        ["--neurons", "0.5", "--refit"],
        ["--kv-groups", "1", "--blocks", "1", "--features", "12"],
        ["--target-parameters", "9000"],
        ["--vocabulary", "258"],
    ],
)
def test_shrink(preset, tmp_path, monkeypatch, capsys, options):
    import keras_hub

    monkeypatch.chdir(preset)
    to = str(tmp_path / "small")
    command = ["shrink", "preset", "--to", to, "--text", "text.txt", "--window", "16"]
    status = main([*command, *options])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    lines = [line.split("|") for line in printed.out.splitlines() if "|" in line]
    before, after = (int(line[2].replace(",", "")) for line in lines[2:4])
    found = keras_hub.models.CausalLM.from_preset(to)
    assert found.count_params() == after
    assert after < before
    assert main([*command, *options]) == 2  # what exists is not replaced


def test_a_tokenizer_is_trained_and_saved(tmp_path):
    from tests.support.tiny_run import ONE_LAYER, load, run_in

    keys = ('tokenizer = "bpe"', "vocabulary_size = 280")
    run, _ = run_in(tmp_path, with_hub(ONE_LAYER, *keys))
    lm = load(run)
    size = lm.preprocessor.tokenizer.vocabulary_size()
    assert 262 < size <= 280 == lm.backbone.vocabulary_size or size <= 280
    assert json.loads((run / "status.json").read_text())["state"] == "finished"
