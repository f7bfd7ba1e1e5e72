"""A KerasHub preset, loaded back."""

import functools

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.export import export_hf, export_onnx, export_preset, load_run
from keras_idea.hub.hf.folder import loading_class
from keras_idea.models import DecoderConfig, decoder
from tests.support.exports import listing, logits, own_decoder
from tests.support.hub_models import tiny_lm
from tests.support.masks import prune_by_hand
from tests.support.with_tokenizer import TEXT, VOCABULARY

BACKEND = keras.backend.backend()


class TestPreset:
    def test_keeps_tokenizer_and_function(self, lm, run):
        import keras_hub

        loaded = keras_hub.models.CausalLM.from_preset(str(run / "preset"))
        assert type(loaded) is type(lm)
        ids = np.arange(96, dtype="int32").reshape(2, 48)
        np.testing.assert_allclose(logits(loaded, ids), logits(lm, ids), atol=1e-5)
        tokens = np.asarray(loaded.preprocessor.tokenizer(TEXT))
        np.testing.assert_array_equal(tokens, lm.preprocessor.tokenizer(TEXT))

    def test_two_classes_of_one_backbone(self, tmp_path):
        """`CausalLM.from_preset` may take a Gemma 4 for its assistant, and fails then.

        Which of the two it takes is the order of a set of classes: of their addresses.
        """
        import keras_hub

        lm = tiny_lm("gemma4")
        export_preset(lm, tmp_path / "preset")
        assert loading_class(lm) == "Gemma4CausalLM"
        assert loading_class(tiny_lm("llama3", num_layers=1)) == "CausalLM"
        kind = getattr(keras_hub.models, loading_class(lm))
        loaded = kind.from_preset(str(tmp_path / "preset"), preprocessor=None)
        ids = np.arange(32, dtype="int32").reshape(2, 16)
        np.testing.assert_allclose(logits(loaded, ids), logits(lm, ids), atol=1e-6)
        assistant = keras_hub.models.Gemma4AssistantCausalLM
        assert assistant.backbone_cls is type(lm).backbone_cls  # else it is mended

    def test_quantized(self, tmp_path):
        """As Keras's own `quantize` of the backbone; the model keeps its weights."""
        import keras_hub

        lm = tiny_lm("llama3", num_layers=1)
        before = lm.get_weights()
        # As if it had more than 10 GB, and its int8 fewer.
        lm.save_to_preset = functools.partial(lm.save_to_preset, max_shard_size=1e-5)
        export = export_preset(lm, tmp_path / "preset", quantize="int8")
        assert not list((tmp_path / "preset").glob("model_*"))
        assert "logits are those of int8" in str(export)
        for a, b in zip(before, lm.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)
        loaded = keras_hub.models.CausalLM.from_preset(str(tmp_path / "preset"))
        ids = np.arange(32, dtype="int32").reshape(2, 16)
        apart = np.abs(logits(loaded, ids) - logits(lm, ids)).max()
        assert 0 < apart < 0.05 * np.abs(logits(lm, ids)).max()
        lm.backbone.quantize("int8")
        np.testing.assert_allclose(logits(loaded, ids), logits(lm, ids), atol=1e-6)
        # It is evaluated, but not exported again.
        again = load_run(tmp_path / "preset")
        np.testing.assert_allclose(logits(again, ids), logits(lm, ids), atol=1e-6)
        with pytest.raises(ExportRefused, match=r"is quantized \(int8\). Export"):
            export_hf(again, tmp_path / "hf")
        with pytest.raises(ValueError, match="`quantize` must be one of None, 'int8'"):
            export_preset(lm, tmp_path / "other", quantize="int4")

    @pytest.mark.skipif(BACKEND == "jax", reason="compiles each operation once more")
    def test_half_precision_is_compared_in_it(self, tmp_path):
        lm = tiny_lm("llama3", num_layers=1, dtype="mixed_bfloat16")
        export = export_preset(lm, tmp_path / "preset")
        assert export.match.difference <= 1e-2

    @pytest.mark.skipif(BACKEND == "jax", reason="compiles each operation once more")
    @pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
    def test_half_precision_is_quantized(self, tmp_path, dtype):
        """In float32, to be loaded as any quantized preset."""
        lm = tiny_lm("llama3", num_layers=1, dtype=dtype)
        export = export_preset(lm, tmp_path / "preset", quantize="int8")
        assert export.match.difference <= 1e-5
        assert "cannot read the dtype" not in str(export)

    def test_own_decoder_becomes_a_llama3(self, tmp_path):
        import keras_hub

        model = own_decoder(tie_embeddings=True)
        export = export_preset(model, tmp_path / "preset")
        assert "there is no tokenizer in it" in str(export)
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

    @pytest.mark.parametrize("uses_keras_hub", [True, False])
    def test_models_that_are_not_compact_are_refused(self, tmp_path, uses_keras_hub):
        if uses_keras_hub:
            model = tiny_lm("llama3", num_layers=1)
            [ffn] = ki.find_ffns(model)
            prune_by_hand(ffn, np.arange(ffn.hidden_dim) > 0)
        else:  # it has a mask, though all of its neurons are active
            model = own_decoder(ffn=ki.PrunableGatedFFN)
        for export in (export_preset, export_hf):
            with pytest.raises(ExportRefused, match="keras_idea.compact"):
                export(model, tmp_path / "out")
        with pytest.raises(ExportRefused, match="keras_idea.compact"):
            export_onnx(model, tmp_path / "out.onnx")
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
