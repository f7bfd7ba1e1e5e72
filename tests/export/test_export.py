"""Exports: loaded back by others, refused with a reason, or nothing left of them."""

import dataclasses
import importlib.util
import json
import types

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.cli import main
from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.export import (
    compare,
    export_hf,
    export_onnx,
    export_preset,
    hf_rules,
    hf_tokenizer,
    load_run,
    onnx_file,
    preset,
    stock,
    target,
)
from keras_idea.hub.make_tokenizer import make_tokenizer
from keras_idea.models import DecoderConfig, decoder
from tests.hub_models import randomize, tiny_backbone, tiny_lm

TEXT = (
    "def f(x):\n    while x > 10:\n        x = x - 2024\n\n    return x\n"
    "the quick brown fox jumps over the lazy dog, and 'again'\n"
) * 4
VOCABULARY = 320
NARROW = 10
BACKEND = keras.backend.backend()


def with_tokenizer(lm, family, kind="bytes", vocabulary_size=None):
    """`lm` with the preprocessor of its own family."""
    import keras_hub

    prefix = type(lm).__name__.removesuffix("CausalLM")
    preprocessor = getattr(keras_hub.models, f"{prefix}CausalLMPreprocessor")
    tokenizer = make_tokenizer(family, kind, TEXT, vocabulary_size)
    lm.preprocessor = preprocessor(tokenizer, sequence_length=16)
    return lm


def logits(model, ids):
    return compare.model_subject(model).logits(ids)


def listing(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.fixture(scope="module")
def lm():
    """A small stock Llama3 with a byte-level tokenizer."""
    return with_tokenizer(
        tiny_lm("llama3", num_layers=1, vocabulary_size=VOCABULARY), "llama3"
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory, lm):
    """A run folder as a run of a KerasHub model leaves it, as far as exports go."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "config.toml").write_text("")
    export_preset(lm, folder / "preset")
    return folder


def own_decoder(tie_embeddings=False):
    """This package's decoder, compacted."""
    config = DecoderConfig(
        vocabulary_size=VOCABULARY,
        model_dim=16,
        num_layers=2,
        num_heads=2,
        num_key_value_heads=1,
        hidden_dim=NARROW,
        sequence_length=16,
        rope_max_wavelength=5000.0,
        tie_embeddings=tie_embeddings,
    )
    return randomize(decoder(config, ffn=ki.GatedFFN), 0.3)


def broken(monkeypatch, module):
    """What is loaded back computes something else."""

    def subject(model):
        right = compare.model_subject(model)
        return dataclasses.replace(right, logits=lambda ids: right.logits(ids) + 0.5)

    monkeypatch.setattr(module, "model_subject", subject)


class TestHuggingFace:
    """What transformers makes of a pruned and compacted model."""

    @pytest.mark.parametrize(
        "name, kind",
        [
            ("llama", "sentencepiece"),
            ("llama3", "bpe"),
            ("mistral", "sentencepiece"),
            ("qwen", "bpe"),
            ("gemma", "sentencepiece"),
        ],
    )
    def test_equals_the_pruned_model(self, name, kind, tmp_path):
        import torch
        import transformers

        lm = tiny_lm(name, num_layers=1, vocabulary_size=VOCABULARY)
        with_tokenizer(lm, name, kind, VOCABULARY)
        ki.make_prunable(lm)
        rng = np.random.default_rng(0)
        for ffn in ki.find_ffns(lm):
            ffn.mask.assign(rng.permutation(ffn.hidden_dim) < NARROW)
        export = export_hf(ki.compact(lm), tmp_path / "hf")
        assert export.match.difference <= 1e-4

        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
        assert model.config.intermediate_size == NARROW
        assert model.dtype == torch.float32
        ids = rng.integers(0, VOCABULARY, (2, 48)).astype("int32")
        with torch.no_grad():
            found = model(torch.tensor(ids, dtype=torch.long)).logits.numpy()
        np.testing.assert_allclose(found, logits(lm, ids), rtol=0, atol=1e-4)
        model.generation_config.eos_token_id = None
        prompts = torch.tensor(ids[:, :5], dtype=torch.long)
        greedy = model.generate(prompts, do_sample=False, max_new_tokens=12)
        expected = compare.model_subject(lm).greedy(ids[:, :5], 12)
        assert greedy.tolist() == expected.tolist()

        # Some versions cut the text for Qwen as they like, beside the model.
        apart = "tokenizer" if "'tokenizer'" in str(export) else "."
        assert apart == "." or name == "qwen"
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf" / apart)
        ours = lm.preprocessor.tokenizer
        text = TEXT + "\n\n  It's 1234 naïve 漢字"
        tokens = np.asarray(ours(text)).tolist()
        start = [] if ours.start_token is None else [ours.start_token_id]
        assert tokenizer.encode(text) == start + tokens
        assert tokenizer.decode(tokens) == ours.detokenize(tokens) == text

    def test_a_tokenizer_that_cannot_be_exported_is_left_out(
        self, lm, tmp_path, monkeypatch
    ):
        difference = "'x' becomes [1]."
        monkeypatch.setattr(
            hf_tokenizer, "first_difference", lambda *encodes: difference
        )
        export = export_hf(lm, tmp_path / "hf")
        assert "There is NO tokenizer in it" in str(export)
        assert "'x' becomes [1]." in str(export)
        assert listing(tmp_path / "hf") == ["config.json", "model.safetensors"]

    def test_without_transformers_it_says_so(self, lm, tmp_path, monkeypatch):
        hide(monkeypatch, "transformers")
        export = export_hf(lm, tmp_path / "hf")
        assert export.match is None
        assert "NOT CHECKED" in str(export)
        assert 'pip install "keras-idea[export,torch]"' in str(export)
        assert (tmp_path / "hf/model.safetensors").is_file()

    def test_without_safetensors_it_is_refused(self, lm, tmp_path, monkeypatch):
        hide(monkeypatch, "safetensors")
        with pytest.raises(ExportRefused, match="needs safetensors, not installed"):
            export_hf(lm, tmp_path / "hf")
        assert listing(tmp_path) == []

    @pytest.mark.parametrize(
        "name, arguments, match",
        [
            ("gemma", {"num_key_value_heads": 2}, "exports the first of them only"),
            ("gemma", {"head_dim": 4}, "transposes the queries wrongly"),
            ("gemma", {"layer_norm_epsilon": 1e-5}, "leaves it out"),
            ("gemma2", {}, "exports Gemma 2 as Gemma 1"),
            ("mistral", {"rope_scaling_factor": 2.0}, "scaling of the positions out"),
            ("qwen", {"rope_scaling_factor": 2.0}, "scaling of the positions out"),
            ("qwen3", {}, "no export to Hugging Face for Qwen3Backbone"),
            ("phi3", {}, "no export to Hugging Face for Phi3Backbone"),
            ("smollm3", {}, "no export to Hugging Face for SmolLM3Backbone"),
        ],
    )
    def test_what_kerashub_exports_wrongly_is_refused(self, name, arguments, match):
        with pytest.raises(ExportRefused, match=match):
            hf_rules.hf_export_of(tiny_backbone(name, **arguments))

    @pytest.mark.parametrize("name", ["Mixtral", "QwenMoe", "Qwen3Moe", "GptOss"])
    def test_experts_are_refused(self, name):
        backbone = type(f"{name}Backbone", (), {})()
        with pytest.raises(ExportRefused, match=f"{name}Backbone; it has one for"):
            hf_rules.hf_export_of(backbone)

    def test_is_refused_before_anything_is_written(self, tmp_path, monkeypatch):
        lm = tiny_lm("qwen3", num_layers=1)
        monkeypatch.setattr(type(lm), "export_to_transformers", pytest.fail)
        with pytest.raises(ExportRefused, match="--preset"):
            export_hf(lm, tmp_path / "hf")
        assert listing(tmp_path) == []


def hide(monkeypatch, *modules):
    """Makes packages look as if they were not installed."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name in modules else find_spec(name, *rest),
    )


class TestPreset:
    def test_keeps_tokenizer_and_function(self, lm, run):
        import keras_hub

        loaded = keras_hub.models.CausalLM.from_preset(str(run / "preset"))
        assert type(loaded) is type(lm)
        ids = np.arange(96, dtype="int32").reshape(2, 48)
        np.testing.assert_allclose(logits(loaded, ids), logits(lm, ids), atol=1e-5)
        tokens = np.asarray(loaded.preprocessor.tokenizer(TEXT))
        np.testing.assert_array_equal(tokens, lm.preprocessor.tokenizer(TEXT))

    @pytest.mark.skipif(BACKEND == "jax", reason="compiles each operation once more")
    def test_half_precision_is_compared_in_it(self, tmp_path):
        lm = tiny_lm("llama3", num_layers=1, dtype="mixed_bfloat16")
        export = export_preset(lm, tmp_path / "preset")
        assert export.match.difference <= 1e-2

    def test_own_decoder_becomes_a_llama3(self, tmp_path):
        import keras_hub

        model = own_decoder(tie_embeddings=True)
        export = export_preset(model, tmp_path / "preset")
        assert "token ids are the bytes" in str(export)
        loaded = keras_hub.models.CausalLM.from_preset(str(tmp_path / "preset"))
        assert type(loaded).__name__ == "Llama3CausalLM"
        assert loaded.count_params() == model.count_params()
        ids = np.random.default_rng(0).integers(0, VOCABULARY, (2, 48)).astype("int32")
        np.testing.assert_allclose(
            logits(loaded, ids), logits(model, ids), rtol=0, atol=1e-5
        )

    @pytest.mark.parametrize("arguments", [{"activation": "gelu"}, {"use_bias": True}])
    def test_other_decoders_are_refused(self, tmp_path, arguments):
        config = DecoderConfig(
            vocabulary_size=256,
            model_dim=16,
            num_layers=1,
            num_heads=4,
            hidden_dim=24,
            sequence_length=16,
        )
        model = decoder(
            config, ffn=lambda h, name: ki.GatedFFN(h, name=name, **arguments)
        )
        with pytest.raises(ExportRefused, match='write hub = "llama3"'):
            export_preset(model, tmp_path / "preset")

    def test_prunable_models_are_refused(self, tmp_path):
        lm = ki.make_prunable(tiny_lm("llama3", num_layers=1))
        for export in (export_preset, export_hf):
            with pytest.raises(ExportRefused, match="keras_idea.compact"):
                export(lm, tmp_path / "out")
        with pytest.raises(ExportRefused, match="keras_idea.compact"):
            export_onnx(lm, tmp_path / "out.onnx")
        assert listing(tmp_path) == []

    def test_other_models_are_refused(self, lm, tmp_path):
        with pytest.raises(ExportRefused, match="Received: Llama3Backbone"):
            export_preset(lm.backbone, tmp_path / "preset")

    def test_a_config_of_ours_is_not_stock(self, lm, tmp_path, monkeypatch):
        def save(self, folder):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "config.json").write_text('{"module": "keras_idea"}')

        monkeypatch.setattr(type(lm), "save_to_preset", save)
        with pytest.raises(ExportFailed, match="config.json .* refers to keras_idea"):
            export_preset(lm, tmp_path / "preset")
        assert listing(tmp_path) == []


class TestOnnx:
    @pytest.mark.skipif(BACKEND != "jax", reason="what jax cannot do")
    def test_jax_is_refused(self, tmp_path):
        with pytest.raises(ExportRefused, match="KERAS_BACKEND=tensorflow keras-idea"):
            export_onnx(own_decoder(), tmp_path / "x.onnx")

    @pytest.mark.skipif(BACKEND == "jax", reason="jax is refused anyway")
    def test_missing_packages_are_named(self, tmp_path, monkeypatch):
        hide(monkeypatch, "onnx")
        with pytest.raises(ExportRefused, match=r'"keras-idea\[onnx\]"'):
            export_onnx(own_decoder(), tmp_path / "x.onnx", length=24)

    @pytest.mark.parametrize(
        "backend, length, match",
        [
            ("tensorflow", 24, "`length` is for torch"),
            ("torch", None, "give it with --length"),
            ("torch", 10, "`length` must be an integer >= 24"),
        ],
    )
    def test_lengths(self, tmp_path, monkeypatch, backend, length, match):
        monkeypatch.setattr(keras.backend, "backend", lambda: backend)
        monkeypatch.setattr(onnx_file, "require_installed", lambda *arguments: None)
        with pytest.raises(ExportRefused, match=match):
            export_onnx(own_decoder(), tmp_path / "x.onnx", length=length)

    def test_gemma_on_tensorflow_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(keras.backend, "backend", lambda: "tensorflow")
        monkeypatch.setattr(onnx_file, "require_installed", lambda *arguments: None)
        with pytest.raises(ExportRefused, match="KERAS_BACKEND=torch"):
            export_onnx(tiny_lm("gemma", num_layers=1), tmp_path / "x.onnx")

    @pytest.mark.skipif(BACKEND == "jax", reason="jax cannot make ONNX files")
    @pytest.mark.parametrize("evaluator", ["onnxruntime", "onnx"])
    def test_computes_the_same(self, lm, tmp_path, monkeypatch, evaluator):
        pytest.importorskip("onnx")
        pytest.importorskip("tf2onnx" if BACKEND == "tensorflow" else "onnxscript")
        pytest.importorskip(evaluator)
        if evaluator == "onnx":
            hide(monkeypatch, "onnxruntime")
        length = 30 if BACKEND == "torch" else None
        path = tmp_path / "x.onnx"
        model = lm if evaluator == "onnxruntime" else own_decoder()
        export = export_onnx(model, path, length=length)
        assert export.match.difference <= 1e-4 and export.match.tokens == 32
        assert listing(tmp_path) == ["x.onnx"]

    @pytest.mark.skipif(BACKEND == "jax", reason="jax cannot make ONNX files")
    def test_another_function_is_refused(self, tmp_path, monkeypatch):
        pytest.importorskip("onnx")
        pytest.importorskip("tf2onnx" if BACKEND == "tensorflow" else "onnxscript")
        broken(monkeypatch, onnx_file)
        length = 30 if BACKEND == "torch" else None
        with pytest.raises(ExportFailed, match="differ by 0.5"):
            export_onnx(own_decoder(), tmp_path / "x.onnx", length=length)
        assert listing(tmp_path) == []


class TestNothingIsLeft:
    """An export that fails leaves what there was, and nothing of its own."""

    def test_failed_check(self, lm, tmp_path, monkeypatch):
        broken(monkeypatch, preset)
        path = tmp_path / "not/yet/there"
        with pytest.raises(ExportFailed, match=r"differ by 0.5, allowed are \d"):
            export_preset(lm, path)
        assert listing(tmp_path) == []

    def test_failed_check_keeps_the_earlier_one(self, lm, run, monkeypatch):
        before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
        broken(monkeypatch, preset)
        with pytest.raises(ExportFailed):
            export_preset(lm, run / "preset", overwrite=True)
        assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before

    def test_other_tokenizer(self, lm, tmp_path, monkeypatch):
        monkeypatch.setattr(preset, "first_difference", lambda *encodes: "'x'.")
        with pytest.raises(ExportFailed, match="tokenizer is another one: 'x'."):
            export_preset(lm, tmp_path / "preset")
        assert listing(tmp_path) == []

    def test_overwrite_replaces(self, lm, tmp_path):
        for name in ("config.json", "metadata.json", "model_00000.weights.h5"):
            (tmp_path / "preset").mkdir(exist_ok=True)
            (tmp_path / "preset" / name).write_text("earlier")
        with pytest.raises(ExportRefused, match="exists already"):
            export_preset(lm, tmp_path / "preset")
        export_preset(lm, tmp_path / "preset", overwrite=True)
        names = [path.name for path in (tmp_path / "preset").iterdir()]
        assert "model_00000.weights.h5" not in names and "model.weights.h5" in names
        assert [path.name for path in tmp_path.iterdir()] == ["preset"]


class TestTarget:
    KIND = target.Kind("a thing", names=("config.json", "*.h5"), marks=("config.json",))
    FILE = target.Kind("a file", suffix=".onnx")

    @pytest.mark.parametrize(
        "path, match",
        [
            ("", "needs a path"),
            ("file", r"is not a thing \(it is a file\)"),
            ("file/below", "'.*file' is a file"),
            ("mine", r"is not a thing \(it holds 'notes.txt'\) and is never"),
            ("half", r"is not a thing \(it has no 'config.json'\)"),
        ],
    )
    def test_what_others_own_is_refused(self, tmp_path, monkeypatch, path, match):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "file").write_text("x")
        for file in ("mine/config.json", "mine/notes.txt", "half/model.h5"):
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_text("x")
        with pytest.raises(ExportRefused, match=match):
            target.check_target(path, self.KIND, overwrite=True)

    def test_what_is_free_is_not(self, tmp_path):
        (tmp_path / "empty").mkdir()
        for name in ("new", "new/deep", "empty"):
            target.check_target(tmp_path / name, self.KIND)
        target.check_target(tmp_path / "x.onnx", self.FILE)

    def test_files(self, tmp_path):
        (tmp_path / "x.onnx").write_text("earlier")
        (tmp_path / "y.onnx").mkdir()
        for name, match in [
            ("x.on", "ends in '.onnx'"),
            ("x.onnx", "exists already"),
            ("y.onnx", "it is a folder"),
        ]:
            with pytest.raises(ExportRefused, match=match):
                target.check_target(tmp_path / name, self.FILE)
        with target.replacing(tmp_path / "x.onnx") as temporary:
            temporary.write_text("new")
        assert (tmp_path / "x.onnx").read_text() == "new"

    def test_no_room_is_told(self, tmp_path):
        (tmp_path / "file").write_text("x")
        with pytest.raises(ExportRefused, match="below' cannot be written: .*file"):
            with target.replacing(tmp_path / "file" / "below"):
                pass


class TestCompare:
    @staticmethod
    def subject(table, shift=0.0, greedy=None):
        """Logits that depend on the last token alone."""

        def logits(ids):
            return table[ids] + shift

        return compare.Subject(logits, greedy or compare.subject_of(logits).greedy)

    def table(self):
        return np.random.default_rng(1).normal(size=(12, 12))

    def test_match(self):
        table = self.table()
        match = compare.compare(
            self.subject(table), self.subject(table, 1e-6), 12, 1e-5
        )
        assert match.difference == pytest.approx(1e-6, rel=1e-3)
        assert match.allowed == pytest.approx(1e-5 * np.abs(table).max())
        assert match.tokens == 2 * compare.NUM_TOKENS
        assert "within 1.0e-06" in str(match)

    @pytest.mark.parametrize("shift", [1e-3, np.nan, np.inf])
    def test_other_logits(self, shift):
        table = self.table()
        with pytest.raises(ExportFailed, match="computes other logits"):
            compare.compare(self.subject(table), self.subject(table, shift), 12, 1e-5)

    def test_a_share_of_the_tokens(self):
        table = self.table()
        other = table + 0
        other[:6] *= -1  # half of the tokens
        right = self.subject(table)
        match = compare.compare(right, self.subject(other), 12, 1e-5, share=0.1)
        assert match.difference == 0 and match.tokens < 2 * compare.NUM_TOKENS
        assert "logits of 10% of the tokens within 0.0" in str(match)
        for wrong in (table + 1, np.where(other == table, table, np.nan)):
            with pytest.raises(ExportFailed, match="computes other logits"):
                compare.compare(right, self.subject(wrong), 12, 1e-5, share=0.1)

    def test_other_shapes(self):
        with pytest.raises(ExportFailed, match=r"shape \(2, 48, 5\), the model \(2"):
            compare.compare(
                self.subject(self.table()), self.subject(self.table()[:, :5]), 12, 1e-5
            )

    def test_other_tokens(self):
        def zeros(ids, n):
            return np.pad(ids, ((0, 0), (0, n)))

        table = self.table()
        table[:, 0] -= 9
        with pytest.raises(ExportFailed, match="chooses other tokens"):
            compare.compare(
                self.subject(table), self.subject(table, greedy=zeros), 12, 1e-5
            )

    def test_shorter_text(self):
        table = self.table()
        right = self.subject(table)
        short = self.subject(table, greedy=lambda ids, n: right.greedy(ids, n)[:, :-2])
        with pytest.raises(ExportFailed, match="chooses other tokens"):
            compare.compare(right, short, 12, 1e-5)

    def test_a_tie_is_no_difference(self):
        table = np.zeros((4, 4))
        table[:, 1:3] = 1.0  # 1 and 2 are equally likely
        other = table.copy()
        other[:, 2] += 1e-7
        match = compare.compare(self.subject(table), self.subject(other), 4, 1e-5)
        assert match.tokens == 0

    def test_windows_are_looked_through(self):
        assert compare.probe_length(tiny_backbone("mistral", sliding_window=100)) == 116
        assert compare.probe_length(tiny_backbone("mistral", sliding_window=None)) == 48
        assert compare.probe_length(tiny_backbone("llama3")) == 48
        assert compare.probe_length(tiny_backbone("gpt2")) == 48
        with pytest.raises(ExportRefused, match="has 16 positions.* texts of 48"):
            compare.probe_length(tiny_backbone("gpt2", max_sequence_length=16))

    def test_a_model_of_images_is_refused(self):
        lm = types.SimpleNamespace(input=dict.fromkeys(["token_ids", "images"]))
        with pytest.raises(ExportRefused, match="this one takes 'images' too"):
            stock.check_text_alone(lm)


class TestLoad:
    def test_run_and_preset_folder(self, lm, run):
        for folder in (run, run / "preset"):
            loaded = load_run(folder)
            assert type(loaded) is type(lm) and loaded.compute_dtype == "float32"

    @pytest.mark.parametrize(
        "files, match",
        [
            (None, "there is no such folder"),
            ([], "neither a run folder nor a preset"),
            (["config.toml"], "its run has not come to its end"),
            (["narrow.keras"], "narrow.keras' cannot be loaded"),
            (["config.json", "model.weights.h5"], "cannot be loaded as a KerasHub"),
        ],
    )
    def test_refused(self, tmp_path, files, match):
        folder = tmp_path / "run"
        if files is not None:
            folder.mkdir()
        for name in files or ():
            (folder / name).write_text("{}")
        with pytest.raises(ExportRefused, match=match):
            load_run(folder)


class TestCommandLine:
    def test_preset_of_a_run(self, run, tmp_path, capsys):
        assert main(["export", str(run), "--preset", str(tmp_path / "out")]) == 0
        printed = capsys.readouterr().out
        assert "a KerasHub preset, Llama3CausalLM; loaded back: logits" in printed
        assert json.loads((tmp_path / "out/config.json").read_text())

    def test_hugging_face_of_our_decoder(self, tmp_path, capsys):
        (tmp_path / "run").mkdir()
        own_decoder().save(tmp_path / "run/narrow.keras")
        arguments = ["export", str(tmp_path / "run"), "--hf", str(tmp_path / "hf")]
        assert main(arguments) == 0
        assert "32 greedy tokens equal" in capsys.readouterr().out
        assert main(arguments) == 2
        assert "exists already" in capsys.readouterr().err
        assert main([*arguments, "--overwrite"]) == 0

    def test_a_failed_check_is_status_1(self, run, tmp_path, capsys, monkeypatch):
        broken(monkeypatch, preset)
        assert main(["export", str(run), "--preset", str(tmp_path / "out")]) == 1
        captured = capsys.readouterr()
        assert "keras-idea: The export computes other logits" in captured.err
        assert captured.out == "" and listing(tmp_path) == []

    @pytest.mark.parametrize(
        "arguments, match",
        [
            (["none", "--hf", "out"], "No model to export in 'none'"),
            (["none", "--hf", "out", "--length", "64"], "`--length` is for --onnx"),
        ],
    )
    def test_refused(self, tmp_path, monkeypatch, capsys, arguments, match):
        monkeypatch.chdir(tmp_path)
        assert main(["export", *arguments]) == 2
        captured = capsys.readouterr()
        assert match in captured.err and captured.err.count("\n") == 1
        assert captured.out == "" and listing(tmp_path) == []

    @pytest.mark.parametrize("formats", [[], ["--hf", "a", "--preset", "b"]])
    def test_one_format_at_a_time(self, formats, capsys):
        with pytest.raises(SystemExit, match="2"):
            main(["export", "run", *formats])
        assert "--preset" in capsys.readouterr().err
