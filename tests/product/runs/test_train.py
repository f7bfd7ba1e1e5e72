"""Runs from their file to their folder: what they leave, killed and resumed."""

import json

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._lm.runs import train as train_module
from keras_idea._lm.runs.config import load_config, parse_config
from keras_idea._lm.runs.fitting import Progress, Run
from keras_idea._lm.runs.models import run_models
from keras_idea_cli import main
from tests.support.tiny_run import (
    ALONE,
    CONFIG,
    ONE_LAYER,
    load,
    metrics,
    run_in,
    with_hub,
    with_keys,
    write_inputs,
)


def test_the_folder_of_a_finished_run(finished):
    run, printed = finished
    assert sorted(path.name for path in run.iterdir()) == [
        "config.toml",
        "metrics.csv",
        "preset",
        "run.png",
        "sample.txt",
        "status.json",
        "table.json",
        "table.md",
    ]
    rows = json.loads((run / "table.json").read_text())["rows"]
    assert [row["name"] for row in rows] == [
        "wide before pruning",
        "pruned",
        "narrow from scratch",
    ]
    wide, pruned, scratch = rows
    assert pruned["parameters"] == scratch["parameters"] < wide["parameters"]
    assert pruned["bits_per_byte"] < wide["bits_per_byte"]
    assert all(row["step_ms"] > 0 for row in rows)
    assert (run / "sample.txt").read_text().startswith("the ")
    assert "the pruned model is" in printed
    lines = metrics(run)
    assert [line["width"] for line in lines] == ["32", "8", "8"] * 1 + ["8"] * 3
    assert [line["step"] for line in lines] == ["4", "8", "12"] * 2


class Killed(BaseException):
    """Ends a run as a signal does."""


@pytest.mark.parametrize("step", [4, 8, 12])
def test_a_killed_run_ends_with_the_same_bits(
    finished, tmp_path, monkeypatch, capsys, step
):
    """Killed after the checkpoint of a step: wide, within pruning, and at its end."""
    straight, _ = finished
    write_inputs(tmp_path, CONFIG)
    monkeypatch.chdir(tmp_path)
    on_epoch_end = ki.Checkpoint.on_epoch_end

    def dying(self, epoch, logs=None):
        on_epoch_end(self, epoch, logs)
        if (epoch + 1) * 4 == step:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(ki.Checkpoint, "on_epoch_end", dying)
        main(["train", "tiny.toml"])
    status = json.loads((tmp_path / "runs/tiny/status.json").read_text())
    assert (status["state"], status["step"]) == ("training", step)
    assert main(["train", "tiny.toml"]) == 0
    assert f"Resuming at step {step} of 12" in capsys.readouterr().out
    run = tmp_path / "runs/tiny"
    assert metrics(run) == metrics(straight)
    assert (run / "sample.txt").read_text() == (straight / "sample.txt").read_text()
    saved, expected = (load(each).get_weights() for each in (run, straight))
    for weight, other in zip(saved, expected, strict=True):
        np.testing.assert_array_equal(weight, other)


def test_checkpoints_go_even_if_it_is_killed_at_the_very_end(
    tmp_path, monkeypatch, capsys
):
    write_inputs(tmp_path, ONE_LAYER)
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(
            train_module.RunFolder, "remove_checkpoints", lambda self: raise_killed()
        )
        main(["train", "tiny.toml"])
    assert (tmp_path / "runs/tiny/checkpoints").exists()
    assert main(["train", "tiny.toml"]) == 2
    assert "finished" in capsys.readouterr().err
    assert not (tmp_path / "runs/tiny/checkpoints").exists()


def raise_killed():
    raise Killed


def test_another_text_does_not_resume(tmp_path, monkeypatch, capsys):
    write_inputs(tmp_path, ONE_LAYER)
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(train_module, "_check_pruned", lambda *_: raise_killed())
        main(["train", "tiny.toml"])
    (tmp_path / "text.txt").write_text("another text, and much longer than that " * 99)
    assert main(["train", "tiny.toml"]) == 2
    assert "text" in capsys.readouterr().err


def test_in_parts_it_ends_as_whole(tmp_path):
    """Parts of a step change no result; but for TensorFlow, which refuses them."""
    if keras.backend.backend() == "tensorflow":
        pytest.skip("Keras accumulates wrongly there")
    key = "gradient_accumulation_steps = 2"
    whole, parts = (
        run_in(folder, config)[0]
        for folder, config in (
            (tmp_path / "a", ONE_LAYER),
            (tmp_path / "b", with_keys(ONE_LAYER, "optimizer", key)),
        )
        if not folder.mkdir()
    )
    for line, other in zip(metrics(whole), metrics(parts), strict=True):
        for name in ("bits_per_byte", "validation"):
            assert float(line[name]) == pytest.approx(float(other[name]), abs=1e-5)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, monkeypatch, capsys):
    keys = "peak_learning_rate = 1e30"
    write_inputs(tmp_path, with_keys(ONE_LAYER, "optimizer", keys))
    monkeypatch.chdir(tmp_path)
    assert main(["train", "tiny.toml"]) in (1, 2)
    assert "peak_learning_rate" in capsys.readouterr().err


def test_a_full_disk_keeps_the_checkpoints(tmp_path, monkeypatch, capsys):
    write_inputs(tmp_path, ONE_LAYER)
    monkeypatch.chdir(tmp_path)

    def full(folder, size):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(train_module, "reserve", full)
        assert main(["train", "tiny.toml"]) == 1
    assert "No space left" in capsys.readouterr().err
    assert main(["train", "tiny.toml"]) == 0
    assert "Resuming at step 12 of 12" in capsys.readouterr().out


HEADS = with_hub(ONE_LAYER, 'hub = "mistral"').replace("num_heads = 2", "num_heads = 4")
HEADS = HEADS.replace("target_dim = 8", "targets = { neurons = 8, kv_groups = 2 }")


def test_heads_are_pruned_too(tmp_path):
    run, _ = run_in(tmp_path, HEADS)
    assert [line["kv_groups"] for line in metrics(run)] == ["4", "2", "2"]
    model = load(run)
    widths = {g.kind: g.width for g in ki.find_groups(model)}
    assert widths == {"neurons": 8, "kv_groups": 2}


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """The preset of a finished run."""
    run, _ = run_in(tmp_path_factory.mktemp("preset"), ONE_LAYER)
    return run / "preset"


def test_a_family_leaves_a_stock_preset(preset):
    lm = load(preset.parent)
    assert lm.backbone.intermediate_dim == 8
    assert lm.generate("the ", max_length=10).startswith("the ")


def test_a_checkpoint_is_pruned_with_itself_as_teacher(preset, tmp_path):
    table = ONE_LAYER[ONE_LAYER.index("sequence_length") :]
    config = f'[model]\npreset = "{preset}"\ntarget_dim = 0.5\n{table}'
    config = config.replace("enlarge_steps = 4", "enlarge_steps = 0")
    config = config.replace("recover_steps = 5", "recover_steps = 9")
    config = with_keys(config, "distillation", f'teacher = "{preset}"')
    run, _ = run_in(tmp_path, config)
    rows = {
        row["name"]: row for row in json.loads((run / "table.json").read_text())["rows"]
    }
    # The wide model is the checkpoint itself, and so is the teacher.
    wide, teacher = rows["wide before pruning"], rows["teacher"]
    assert wide["bits_per_byte"] == pytest.approx(teacher["bits_per_byte"], abs=1e-6)
    assert load(run).backbone.intermediate_dim == 4


def test_a_teacher_of_other_tokens_is_refused(finished, tmp_path, monkeypatch, capsys):
    config = with_hub(ONE_LAYER, 'hub = "mistral"')
    config = with_keys(config, "distillation", f'teacher = "{finished[0]}"')
    write_inputs(tmp_path, config)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "tiny.toml"]) == 2
    assert "tokenizer" in capsys.readouterr().err
    assert not (tmp_path / "runs/tiny").exists()


TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + "
    "'<|end_header_id|>' + m['content'] + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>' }}{% endif %}"
)


def test_conversations(tmp_path):
    lines = [{"prompt": f"What is {i}?", "response": f"It is {i}."} for i in range(200)]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    config = ONE_LAYER.replace("text.txt", "chat.jsonl")
    config = config.replace("sequence_length = 16", "sequence_length = 64")
    template = json.dumps(TEMPLATE)
    config = with_keys(config, "data", "chat = true", f"template = {template}")
    run, printed = run_in(tmp_path, config)
    assert "held-out responses alone" in printed
    lines = metrics(run)
    assert float(lines[-1]["validation"]) < float(lines[0]["validation"])


def test_a_size_limit_is_met(tmp_path):
    config = ONE_LAYER.replace("target_dim = 8", "target_parameters = 10000")
    run, _ = run_in(tmp_path, config)
    model = load(run)
    (ffn,) = ki.find_ffns(model)
    assert model.count_params() <= 10000 < model.count_params() + 3 * 16
    assert int(metrics(run)[-1]["width"]) == ffn.hidden_dim


def test_a_validation_reads_whole_batches(tmp_path, monkeypatch):
    """A fifth of the text is 27 sequences."""
    write_inputs(tmp_path, CONFIG.replace("tion_batches = 2", "tion_batches = 20"))
    monkeypatch.chdir(tmp_path)
    config = load_config("tiny.toml")
    run = Run(config, run_models(config), None, None)
    assert len(run.validation[0]) == 24


def test_progress_resumes_with_what_was_measured_before_the_first_step():
    progress = Progress(None, "pruned")
    progress.before = 2.5
    other = Progress(None, "pruned")
    other.set_state(progress.get_state())
    assert other.before == 2.5


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_saves_float32(tmp_path, dtype):
    if dtype == "mixed_float16" and keras.backend.backend() == "jax":
        pytest.skip("compiled attention of JAX 0.10 has no float16 on a CPU")
    config = with_keys(ONE_LAYER, "run", f'dtype = "{dtype}"')
    run, _ = run_in(tmp_path, config)
    model = load(run)
    assert {str(w.dtype) for w in model.weights} == {"float32"}
    assert model.dtype_policy.name == "float32"


def test_the_config_in_the_folder_is_the_run(finished):
    run, _ = finished
    text = (run / "config.toml").read_text()
    assert parse_config(text, "other") == parse_config(CONFIG, "tiny")
    assert parse_config(ALONE).run.compare_from_scratch is False
