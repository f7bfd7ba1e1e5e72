"""Runs with a teacher."""

import csv
import json
import math

import keras
import numpy as np
import pytest

from keras_idea.errors import ConfigError
from keras_idea.export import load_run
from keras_idea.finding.work_count import multiply_adds
from keras_idea.lm.cli import main
from keras_idea.lm.runs.config import parse_config
from keras_idea.lm.runs.plan import plan
from keras_idea.lm.runs.run_folder import RunFolder
from keras_idea.lm.runs.train.prepare import prepare
from keras_idea.lm.runs.train.teacher import load_teacher, taught, teacher_bits
from tests.support.hub_models import tiny_lm
from tests.support.tiny_run import ALONE, curve, write_inputs


class TestDistillation:
    @pytest.mark.parametrize("of", ["a run", "a preset"])
    def test_a_plan_counts_the_teacher(self, trained, tmp_path, of):
        trained("teacher")
        source = "runs/teacher"
        if of == "a preset":
            source, real = str(tmp_path / "preset"), tiny_lm("llama3")
            real.save_to_preset(source)
        else:
            real = load_run(source)
        alone = plan(parse_config(ALONE, "tiny"))
        lines = f"\n[distillation]\nteacher = {source!r}\n"
        beside = plan(parse_config(ALONE + lines, "tiny"))
        weights = real.backbone.variables if of == "a preset" else real.variables
        assert beside.teacher.parameters == sum(math.prod(v.shape) for v in weights)
        assert beside.teacher.weights == 4 * beside.teacher.parameters
        compared = plan(parse_config(f"{ALONE}{lines}features = true\n", "tiny"))
        assert compared.teacher.activations > beside.teacher.activations
        for with_it, without in zip(beside.stages, alone.stages, strict=True):
            passed = 2 * multiply_adds(real, 16) * without.tokens
            assert with_it.flops == pytest.approx(without.flops + passed)

    def softmax(self, logits):
        exp = np.exp(logits - logits.max(-1, keepdims=True))
        return exp / exp.sum(-1, keepdims=True)

    @pytest.mark.parametrize("top_k", [None, 5, 1000])
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_loss(self, trained, tmp_path, top_k, dtype):
        trained("teacher")
        lines = '\n[distillation]\nteacher = "runs/teacher"\n'
        lines += f"temperature = 2.0\nweight = 0.25\nteacher_dtype = '{dtype}'\n"
        lines += "" if top_k is None else f"top_k = {top_k}\n"
        config = parse_config(ALONE + lines)
        run = prepare(config, RunFolder(tmp_path / "other"))
        teacher = load_teacher("runs/teacher", dtype, run.models.vocabulary)
        student = run.models.wide()
        x, y = run.models.corpus.batch(0, seed=0, batch_size=4, length=16)
        logs = taught(config, student, teacher).evaluate(
            x, y, verbose=0, return_dict=True
        )
        known, own = (
            keras.ops.convert_to_numpy(m(x)).astype("float64")
            for m in (teacher, student)
        )
        nats = -np.log(np.take_along_axis(self.softmax(own), y[..., None], -1)).mean()
        places = np.argsort(-known, axis=-1, kind="stable")[..., :top_k]
        known, own = (np.take_along_axis(a, places, -1) for a in (known, own))
        p, q = self.softmax(known / 2.0), self.softmax(own / 2.0)
        divergence = (p * np.log(p / q)).sum(-1).mean()
        assert logs["student_loss"] == pytest.approx(nats, rel=1e-5)
        assert logs["loss"] == pytest.approx(
            0.75 * nats + 0.25 * 2.0**2 * divergence, rel=1e-4
        )

    @pytest.mark.parametrize("features", ["false", "true"])
    def test_a_run_with_a_teacher(self, trained, features):
        alone = curve(trained("teacher"))
        lines = f'weight = 0.9\nfeatures = {features}\nteacher = "runs/teacher"'
        told = ("[data]", f"[distillation]\n{lines}\n[data]")
        folder = trained("student", told)
        columns = curve(folder)
        # The text's loss, not the sum; the first step's is of the same model.
        assert columns["bits_per_byte"][0] == alone["bits_per_byte"][0]
        assert (columns["bits_per_byte"][1:] != alone["bits_per_byte"][1:]).any()
        assert columns["width"][-1] == 8
        assert keras.models.load_model(folder / "narrow.keras").count_params()

    def test_a_model_that_is_trained_already(self, trained):
        """Pruned from its first step: the table has it before, and with no teacher."""
        trained("teacher")
        folder = trained(
            "student",
            ("enlarge_steps = 4", "enlarge_steps = 0"),
            ("recover_steps = 5", "recover_steps = 6"),
            ("validate_every = 4", "validate_every = 3"),
            (
                "[data]",
                '[distillation]\nteacher = "runs/teacher"\n'
                "compare_without = true\n[data]",
            ),
        )
        table = json.loads((folder / "table.json").read_text())["rows"]
        bits = {row["name"]: row["bits_per_byte"] for row in table}
        assert list(bits) == [
            "teacher",
            "wide before pruning",
            "pruned, not recovered",
            "pruned",
            "pruned, no teacher",
        ]
        # An untrained model of 256 bytes knows nothing; the teacher has learnt.
        assert bits["wide before pruning"] == pytest.approx(8.0, abs=0.3)
        assert bits["teacher"] < bits["wide before pruning"] - 0.2
        assert bits["pruned"] != bits["pruned, no teacher"]
        with open(folder / "metrics.csv", newline="") as file:
            runs = {
                row["run"]: float(row["validation"])
                for row in csv.DictReader(file)
                if row["validation"]
            }
        assert runs["pruned"] == pytest.approx(bits["pruned"], abs=1e-4)

    def test_a_teacher_is_judged_in_parts_of_a_batch(self, tmp_path, monkeypatch):
        """As large as those of a step, for which there is memory."""
        monkeypatch.chdir(tmp_path)
        write_inputs(tmp_path)
        parts = "[optimizer]\ngradient_accumulation_steps = 4\n"
        config = parse_config(ALONE.replace("[optimizer]\n", parts), "tiny")
        run = prepare(config, RunFolder(tmp_path / "run"))
        rows = set()

        class Teacher(keras.Model):
            def call(self, x):
                rows.add(x.shape[0])
                return keras.ops.one_hot(x, 256)

        nats = np.log(np.e + 255) - (run.validation[0] == run.validation[1]).mean()
        bits = nats / np.log(2.0)  # a byte is a token
        assert teacher_bits(run, Teacher()) == pytest.approx(bits, rel=1e-5)
        assert rows == {1}

    def test_compared_with_nothing(self):
        with pytest.raises(
            ConfigError, match="`distillation.compare_without`.*there is no teacher"
        ):
            parse_config(ALONE + "\n[distillation]\ncompare_without = true\n")

    @pytest.mark.parametrize(
        "teacher, match",
        [("nowhere", "there is no such folder"), (".", "neither a run folder nor")],
    )
    def test_no_teacher(self, tmp_path, monkeypatch, capsys, teacher, match):
        monkeypatch.chdir(tmp_path)
        write_inputs(tmp_path, ALONE + f'\n[distillation]\nteacher = "{teacher}"\n')
        assert main(["train", "tiny.toml"]) == 2
        error = capsys.readouterr().err
        assert "`distillation.teacher`" in error and match in error
        assert not (tmp_path / "runs").exists()

    def test_a_teacher_of_other_tokens(self, trained, tmp_path, capsys):
        trained("teacher")
        text = ALONE.replace('text = "text.txt"\n', "") + (
            '\n[corpus]\npaths = ["text.txt"]\n'
            '[distillation]\nteacher = "runs/teacher"\n'
        )
        (tmp_path / "other.toml").write_text(text)
        assert main(["train", "other.toml"]) == 2
        assert "must read the tokens of the run" in capsys.readouterr().err
