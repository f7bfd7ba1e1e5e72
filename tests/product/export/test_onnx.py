"""ONNX files, made and run."""

import keras
import pytest

from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.export import export_onnx
from keras_idea.lm.export import onnx_file
from tests.support.exports import broken, hide, listing, own_decoder
from tests.support.hub_models import tiny_lm

BACKEND = keras.backend.backend()


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
