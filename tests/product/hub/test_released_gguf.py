"""GGUF files go in as they come out: what llama.cpp is given is loaded again."""

import numpy as np
import pytest

import keras_idea as ki
from keras_idea.export import export_gguf
from keras_idea.hub.loading import load_with_notes
from tests.product.hub.test_released_models import outputs
from tests.support.training_text import with_tokenizer


@pytest.fixture(scope="module", params=["llama", "llama3"])
def written(request, tmp_path_factory):
    """A tiny stock model, and the GGUF file of it."""
    kind = {"llama": "sentencepiece", "llama3": "bpe"}[request.param]
    lm = with_tokenizer(request.param, kind)
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    export_gguf(lm, file, "f32")
    return lm, file


def theirs(file, ids_BT):
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    with torch.no_grad():
        return model(torch.tensor(ids_BT).long()).logits.numpy()


def test_a_file_computes_what_transformers_computes_of_it(written):
    lm, file = written
    loaded = load_with_notes(file)
    ids_BT = np.random.default_rng(5).integers(0, 290, (2, 24), dtype="int32")
    found = outputs(loaded.model, ids_BT)
    np.testing.assert_allclose(found, theirs(file, ids_BT), atol=1e-5)
    np.testing.assert_allclose(found, outputs(lm, ids_BT), atol=1e-5)
    assert any("float32 now" in line for line in loaded.lines)
    ours, other = (m.preprocessor.tokenizer for m in (loaded.model, lm))
    for text in ("the lazy dog", "  x = 2024\n    y", "again, 'again' 1234567"):
        assert np.asarray(ours(text)).tolist() == np.asarray(other(text)).tolist()


def test_a_way_to_cut_text_that_is_not_known_is_refused(tmp_path):
    file = tmp_path / "tiny.gguf"
    export_gguf(with_tokenizer("llama3", "bpe"), file)
    file.write_bytes(file.read_bytes().replace(b"superbpe", b"newerbpe"))
    with pytest.raises(ki.errors.LoadRefused, match=r"ggml\.pre='newerbpe'"):
        ki.hub.load(file)


DAMAGED = {
    "cut": lambda data: data[: len(data) // 2],
    "magic alone": lambda data: b"GGUF",
    "no magic": lambda data: b"GGML" + data[4:],
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_refused(damage, written, tmp_path):
    file = tmp_path / "damaged.gguf"
    file.write_bytes(DAMAGED[damage](written[1].read_bytes()))
    with pytest.raises(ki.errors.LoadRefused, match=r"damaged\.gguf"):
        ki.hub.load(file)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ki.errors.LoadRefused, match=r"absent\.gguf"):
        ki.hub.load(tmp_path / "absent.gguf")


def test_what_came_from_a_file_goes_into_one(written, tmp_path):
    """Its way to cut text is known by name in both directions."""
    loaded, again = ki.hub.load(written[1]), tmp_path / "again.gguf"
    export_gguf(loaded, again, "f32")
    text = "again, 'again' 1234567 and 3.14"
    first, second = (
        np.asarray(lm.preprocessor.tokenizer(text)).tolist()
        for lm in (loaded, ki.hub.load(again))
    )
    assert first == second
    ids_BT = np.random.default_rng(6).integers(0, 290, (1, 16), dtype="int32")
    np.testing.assert_allclose(
        theirs(again, ids_BT), theirs(written[1], ids_BT), atol=1e-6
    )
