"""Released encoders: embeddings as sentence-transformers computes them."""

import json

import numpy as np
import pytest

import keras_idea as ki
from keras_idea.hub.loading import load_with_notes
from tests.product.hub.test_released_models import ids_of
from tests.product.hub.test_released_tokenizers import save
from tests.support import released_tokenizers as made
from tests.support.released_models import release, rewrite_config, theirs
from tests.support.released_rows import ALL, LENGTH

TANH = {"hidden_act": "gelu_pytorch_tanh"}
POOLINGS = {
    "pooling_mode_mean_tokens": lambda x: x.mean(1),
    "pooling_mode_cls_token": lambda x: x[:, 0],
    "pooling_mode_max_tokens": lambda x: x.max(1),
}


def write_modules(folder, *modes, types=("Transformer", "Pooling", "Normalize")):
    """What sentence-transformers writes beside a model."""
    paths = ["", "1_Pooling", "2_Normalize", "3_Dense"]
    modules = [
        {"idx": i, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(types, paths, strict=False))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    told = {mode: mode in modes for mode in (*POOLINGS, *modes)}
    told["word_embedding_dimension"] = 24
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(told))


def embeddings(model, ids_BT):
    ones = np.ones_like(ids_BT)
    known = {"token_ids": ids_BT, "padding_mask": ones, "segment_ids": ones * 0}
    inputs = {tensor.name: known[tensor.name] for tensor in model.inputs}
    return np.asarray(model.predict_on_batch(inputs))


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("mode", POOLINGS)
@pytest.mark.parametrize("name", ["bert", "xlmroberta"])
def test_an_embedding(name, mode, normalized, tmp_path):
    release(tmp_path, ALL[name])
    types = ("Transformer", "Pooling", "Normalize")[: 2 + normalized]
    write_modules(tmp_path, mode, types=types)
    told = TANH if name == "bert" else {}
    expected = POOLINGS[mode](theirs(tmp_path, ids_of(20), **told))
    if normalized:
        expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    received = embeddings(load_with_notes(tmp_path).model, ids_of(20))
    np.testing.assert_allclose(received, expected, atol=1e-5)


def test_without_modules_it_is_the_mean_and_told(tmp_path):
    release(tmp_path, ALL["bert"])
    loaded = load_with_notes(tmp_path)
    expected = theirs(tmp_path, ids_of(20), **TANH).mean(1)
    np.testing.assert_allclose(
        embeddings(loaded.model, ids_of(20)), expected, atol=1e-5
    )
    assert any("the mean of its outputs" in line for line in loaded.lines)


@pytest.mark.parametrize(
    "modes, types, match",
    [
        (("pooling_mode_weightedmean_tokens",), ("Transformer", "Pooling"), "weighted"),
        (("pooling_mode_mean_sqrt_len_tokens",), ("Transformer", "Pooling"), "sqrt"),
        (
            ("pooling_mode_cls_token", "pooling_mode_mean_tokens"),
            ("Transformer", "Pooling"),
            "cls_token",
        ),
        (
            ("pooling_mode_mean_tokens",),
            ("Transformer", "Pooling", "Normalize", "Dense"),
            "Dense",
        ),
        ((), ("Transformer", "Pooling"), "pool by one of"),
    ],
)
def test_an_embedding_that_kerashub_cannot_compute_is_refused(
    modes, types, match, tmp_path
):
    release(tmp_path, ALL["bert"])
    write_modules(tmp_path, *modes, types=types)
    with pytest.raises(ki.errors.LoadRefused, match=match):
        ki.hub.load(tmp_path)


def test_it_is_given_as_many_tokens_as_it_was_trained_with(tmp_path):
    save(tmp_path, "bert", made.word_piece())
    write_modules(tmp_path, "pooling_mode_cls_token")
    file = tmp_path / "sentence_bert_config.json"
    file.write_text('{"max_seq_length": 24, "do_lower_case": false}')
    model = ki.hub.load(tmp_path)
    assert model.preprocessor.sequence_length == 24
    model.save_to_preset(str(tmp_path / "preset"))
    again = ki.hub.load(tmp_path / "preset")
    assert (again.pooling_mode, again.normalize) == ("cls", True)
    assert again.preprocessor.sequence_length == 24


@pytest.mark.parametrize("name", ["bert", "roberta", "xlmroberta", "distilbert"])
def test_an_encoder_of_few_positions(name, tmp_path):
    """No text is longer than it can take, and RoBERTa's first two take none."""
    row = ALL[name]
    few = {**row.sizes, "max_position_embeddings": 12}
    release(tmp_path, type(row)(row.config, few, architecture=row.architecture))
    assert load_with_notes(tmp_path).lines[0].startswith("Compared with transformers")
    # Longer than its weights say: words, whatever it is.
    rewrite_config(tmp_path, max_position_embeddings=LENGTH)
    with pytest.raises(ki.errors.LoadRefused):
        ki.hub.load(tmp_path)
