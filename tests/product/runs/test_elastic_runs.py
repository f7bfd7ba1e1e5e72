"""A run with `[elastic]`: what it trains, records and leaves, and what resumes it."""

import csv
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras_idea.hub.widths import RECORD

import keras_idea as ki
from keras_idea.errors import ExportRefused, LoadRefused
from keras_idea.export import export_preset, load_run
from keras_idea.lm.cli import main
from keras_idea.lm.report.run_record import read_run
from keras_idea.lm.runs.config import load_config
from keras_idea.lm.runs.run_folder import RunFolder
from keras_idea.lm.runs.train.elastic import DrawnWidth
from keras_idea.lm.runs.train.prepare import prepare
from tests.support.events import Events
from tests.support.tiny_run import ONE_LAYER, run_in, with_hub, write_inputs

STEPS, WIDTHS = 12, {"full": 32, "small": 8, "medium": 16}
RUN = ONE_LAYER.replace("target_dim = 8\n", "")
RUN = RUN.replace(
    "enlarge_steps = 4\nprune_steps = 3\nrecover_steps = 5\n", "steps = 12\n"
)
RUN = RUN.replace("seed = 1", "seed = 1\ntensorboard = true")
RUN += "\n[elastic]\nwidths = { small = 8, medium = 0.5 }\nbegin_step = 4\n"
TAUGHT = RUN + '\n[distillation]\nteacher = "runs/tiny"\n'


def carried_out(tmp_path_factory, config):
    folder = tmp_path_factory.mktemp("elastic")
    run, printed = run_in(folder, config)
    return folder, run, printed


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of this package's decoder: its folder, the run's, what it printed."""
    return carried_out(tmp_path_factory, RUN)


@pytest.fixture(scope="module")
def hub_run(tmp_path_factory):
    pytest.importorskip("keras_hub")
    _, run, _ = carried_out(tmp_path_factory, with_hub(RUN, 'hub = "llama3"'))
    return run


def prepared(folder, monkeypatch, name="tiny"):
    monkeypatch.chdir(folder)
    config = load_config(f"{name}.toml")
    return prepare(config, RunFolder(config.run.output))


def held_out_bits(run, model):
    """Bits per byte of the held-out windows, in float64: a token is a byte."""
    tokens, following = run.validation
    logits = np.asarray(model.predict(tokens, verbose=0), "float64")
    logits -= logits.max(-1, keepdims=True)
    odds = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(odds, following[..., None], -1).mean() / np.log(2.0)


def weights(model):
    return [np.array(keras.ops.convert_to_numpy(v)) for v in model.weights]


def assert_same(model, other):
    for one, two in zip(weights(model), weights(other), strict=True):
        np.testing.assert_array_equal(one, two)


class TestRun:
    def test_its_weights_are_those_of_a_plain_fit(self, finished, monkeypatch):
        folder, run, _ = finished
        made = prepared(folder, monkeypatch)
        keras.utils.set_random_seed(1)
        model = made.models.wide()
        elastic = ki.ElasticCallback({"small": 0.25, "medium": 16}, begin_step=4)
        batches = made.models.corpus.batches(seed=1, batch_size=4, length=16)
        given = {"epochs": 3, "steps_per_epoch": 4, "shuffle": False, "verbose": 0}
        model.fit(batches, callbacks=[elastic], **given)
        assert_same(load_run(run), ki.compact(model))
        assert_same(load_run(run, width="small"), elastic.sliced("small"))

    def test_each_width_is_judged(self, finished, monkeypatch):
        """By the saved file of each, and by the full model's."""
        folder, run, printed = finished
        made = prepared(folder, monkeypatch)
        rows = {
            row["name"]: row for row in json.loads(_read(run, "table.json"))["rows"]
        }
        assert list(rows) == list(WIDTHS)
        for name, neurons in WIDTHS.items():
            model = load_run(run, width=name)
            (ffn,) = ki.find_ffns(model)
            assert ffn.hidden_dim == neurons
            assert rows[name]["parameters"] == model.count_params()
            bits = held_out_bits(made, model)
            np.testing.assert_allclose(rows[name]["bits_per_byte"], bits, rtol=1e-5)
            perplexity = rows[name]["perplexity_per_token"]
            np.testing.assert_allclose(perplexity, 2.0**bits, rtol=1e-5)
            assert f"{rows[name]['parameters']:,}" in printed

    def test_a_step_s_width_is_recorded(self, finished):
        _, run, _ = finished
        with open(run / "metrics.csv", newline="") as file:
            lines = list(csv.DictReader(file))
        widths = [int(line["width"]) for line in lines]
        # Alone for 4 steps; then in turn, from the first step of all.
        turn = [(32, 8, 16)[step % 3] for step in range(STEPS)]
        assert widths == [32] * 4 + turn[4:]
        judged = [
            step for step, line in enumerate(lines, 1) if line["small_validation"]
        ]
        assert judged == [8, 12]
        assert {line["run"] for line in lines} == {"elastic"}

    def test_the_files(self, finished):
        _, run, _ = finished
        assert json.loads(_read(run, RECORD)) == WIDTHS
        small = keras.saving.load_model(run / "widths" / "small.keras", compile=False)
        assert_same(small, load_run(run, width="small"))
        record = read_run(run)  # as `keras-idea report` does
        assert [row.name for row in record.rows] == list(WIDTHS)

    def test_tensorboard(self, finished):
        _, run, _ = finished
        shown = Events(run / "tensorboard" / "elastic")
        with open(run / "metrics.csv", newline="") as file:
            lines = {int(line["step"]): line for line in csv.DictReader(file)}
        for step, nats in shown.scalars("metrics/val_small_loss").items():
            bits = float(lines[step]["small_validation"])
            np.testing.assert_allclose(nats / np.log(2.0), bits, atol=1e-5)
        # The steps at that width since the last validation: 9 and 12, for one.
        trained = shown.scalars("metrics/medium_loss")
        assert shown.tags > {"learning_rate", "metrics/small_loss", "metrics/full_loss"}
        bits = [float(lines[step]["bits_per_byte"]) for step in (9, 12)]
        np.testing.assert_allclose(trained[12] / np.log(2.0), np.mean(bits), atol=1e-4)

    def test_status(self, finished, capsys):
        _, run, _ = finished
        assert main(["status", str(run)]) == 0
        said = capsys.readouterr().out
        assert "full.keras" in said and "full, small, medium" in said

    def test_a_stopped_run_ends_with_the_same_bits(
        self, finished, tmp_path, monkeypatch
    ):
        """Stopped where the neurons are sorted next, and in the middle of the rest."""
        _, run, _ = finished
        monkeypatch.chdir(tmp_path)
        write_inputs(tmp_path, RUN)
        for step in (4, 8):
            with monkeypatch.context() as patch:
                stop_at(patch, step)
                assert main(["train", "tiny.toml"]) == 130
        assert main(["train", "tiny.toml"]) == 0
        assert _read(tmp_path / "runs/tiny", "metrics.csv") == _read(run, "metrics.csv")
        for name in WIDTHS:
            assert_same(
                load_run(tmp_path / "runs/tiny", width=name), load_run(run, width=name)
            )

    @pytest.mark.parametrize("sample", ["turn", "sandwich"])
    def test_with_a_teacher(self, finished, tmp_path, monkeypatch, sample):
        """Figures are those of the text alone; each width follows the teacher."""
        folder, _, _ = finished
        monkeypatch.chdir(folder)
        taught = TAUGHT.replace("[elastic]", f"[elastic]\nsample = '{sample}'")
        (folder / f"{sample}.toml").write_text(taught)
        assert main(["train", f"{sample}.toml"]) == 0
        made = prepared(folder, monkeypatch, sample)
        rows = json.loads(_read(folder / "runs" / sample, "table.json"))["rows"]
        assert [row["name"] for row in rows] == ["teacher", *WIDTHS]
        for row in rows[1:]:
            model = load_run(folder / "runs" / sample, width=row["name"])
            bits = held_out_bits(made, model)
            np.testing.assert_allclose(row["bits_per_byte"], bits, rtol=1e-5)


def stop_at(patch, step):
    """Has the next run end, as by Ctrl-C, in the interval after a step."""
    noted = DrawnWidth.on_train_batch_end

    def stop(self, batch, logs=None):
        noted(self, batch, logs)
        if int(self.model.optimizer.iterations.numpy()) > step:
            raise KeyboardInterrupt

    patch.setattr(DrawnWidth, "on_train_batch_end", stop)


@pytest.mark.parametrize(
    "sample", ["'sandwich'\nteacher = 'self'", "{ small = 0.4, full = 0.6 }"]
)
def test_other_ways_to_draw(tmp_path, monkeypatch, sample):
    config = RUN.replace("small = 8, medium = 0.5", "small = 8")
    run, _ = run_in(tmp_path, f"{config}sample = {sample}\nseed = 3\n")
    curve = read_run(run).curves[0]
    drawn = [{"small": 8, "full": 32}[name] for name in drawn_by_hand(sample)]
    np.testing.assert_array_equal(curve.width, drawn)
    mixed = "have the share of elastic.teacher" in _read(run, "table.md")
    assert mixed == ("teacher" in sample)


def drawn_by_hand(sample):
    names = np.array(["full", "small"])
    for step in range(STEPS):
        odds = np.random.default_rng([3, step]).choice(2, p=[0.6, 0.4])
        alone = step < 4 or "sandwich" in sample
        yield "full" if alone else names[odds]


class TestOneFile:
    def test_a_width_is_what_sliced_makes(self, hub_run):
        full = ki.hub.load(hub_run / "preset")
        assert_same(full, ki.hub.load(hub_run / "preset", width="full"))
        for name, neurons in WIDTHS.items():
            if name != "full":
                expected = ki.sliced(full, neurons)
                assert_same(ki.hub.load(hub_run / "preset", width=name), expected)
                assert_same(ki.hub.load(hub_run / "widths" / name), expected)
        small = ki.hub.load(hub_run / "preset", width="small")
        assert small.backbone.intermediate_dim == 8
        assert small.preprocessor is not None

    def test_kerashub_alone_loads_each(self, hub_run):
        """In a process that has no keras_idea."""
        code = (
            "import sys, keras_hub\n"
            "for path in sys.argv[1:]:\n"
            "    lm = keras_hub.models.CausalLM.from_preset(path)\n"
            "    print(lm.backbone.intermediate_dim, lm.count_params())\n"
            "    assert lm.generate('the ', max_length=12).startswith('the ')\n"
            "assert not [m for m in sys.modules if m.startswith('keras_idea')]\n"
        )
        paths = ["preset", "widths/small", "widths/medium"]
        command = [sys.executable, "-c", code, *(str(hub_run / p) for p in paths)]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=hub_run)
        assert ended.returncode == 0, ended.stderr
        lines = [line.split() for line in ended.stdout.splitlines()]
        assert [int(width) for width, _ in lines] == list(WIDTHS.values())

    def test_exports_of_each(self, hub_run, tmp_path, capsys):
        pytest.importorskip("transformers")
        out = str(tmp_path / "mine")
        assert main(["export", str(hub_run), "--widths", "all", "--hf", out]) == 0
        assert capsys.readouterr().out.count("greedy tokens equal") == 3
        for name, neurons in WIDTHS.items():
            config = json.loads(_read(tmp_path / f"mine-{name}", "config.json"))
            assert config["intermediate_size"] == neurons
        known = ["export", str(hub_run), "--widths", "smal", "--hf", out]
        assert main(known) == 2
        assert "Did you mean 'small'?" in capsys.readouterr().err

    def test_from_python(self, hub_run, tmp_path):
        lm = ki.hub.load(hub_run / "preset")
        export = export_preset(lm, tmp_path / "mine", widths={"tiny": 4, "half": 0.5})
        assert "It holds the widths full, tiny, half." in str(export)
        assert_same(ki.hub.load(tmp_path / "mine", width="tiny"), ki.sliced(lm, 4))
        with pytest.raises(ExportRefused, match="quantized preset holds one width"):
            export_preset(lm, tmp_path / "8", quantize="int8", widths={"tiny": 4})

    def test_refused(self, hub_run, finished, tmp_path):
        _, run, _ = finished
        with pytest.raises(LoadRefused, match="width='smal'.*Did you mean 'small'"):
            ki.hub.load(hub_run / "preset", width="smal")
        with pytest.raises(LoadRefused, match="holds one width alone"):
            ki.hub.load(hub_run / "widths" / "small", width="small")
        with pytest.raises(ExportRefused, match="width='smal'"):
            load_run(run, width="smal")
        for text, reason in {
            "[": "is damaged",
            "[1]": "no object of names",
            '{"full": 32, "small": 2.5}': "no object of names",
            '{"small": 8}': "no 'full'",
            '{"full": 8, "small": 32}': "a width above it",
            '{"full": 64, "small": 8}': "of another model: 'full' is 64",
        }.items():
            copy = tmp_path / "copy"
            copy.mkdir(exist_ok=True)
            for entry in (hub_run / "preset").iterdir():
                if entry.name != RECORD and not (copy / entry.name).exists():
                    (copy / entry.name).symlink_to(entry)
            (copy / RECORD).write_text(text)
            with pytest.raises(LoadRefused, match=reason):
                ki.hub.load(copy, width="small")


def test_plan(tmp_path, monkeypatch):
    """Steps by width, and the operations that models built so take."""
    from keras_idea.lm.runs.plan import plan

    write_inputs(tmp_path, RUN)
    monkeypatch.chdir(tmp_path)
    planned = plan(load_config("tiny.toml"))
    steps = {stage.name: stage.steps for stage in planned.stages}
    assert steps == {"full": 4 + 3, "small": 3, "medium": 3}
    flops = {stage.name: stage.flops / stage.steps for stage in planned.stages}
    # 16 features to up, gate and down; 6 operations a weight and token, 4 x 16 tokens.
    for name, neurons in WIDTHS.items():
        less = 6 * 4 * 16 * 3 * 16 * (32 - neurons)
        np.testing.assert_allclose(flops["full"] - flops[name], less)


def _read(folder, name):
    return (folder / name).read_text()
