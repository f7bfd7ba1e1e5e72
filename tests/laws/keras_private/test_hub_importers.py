"""What KerasHub's byte-level tokenizers keep inside, and what its converters read."""

import json

import pytest
from tokenizers import pre_tokenizers

from keras_idea._keras.hub_importers import (
    byte_characters,
    keys_read,
    python_tokenizer,
    replace_python_tokenizer,
)

keras_hub = pytest.importorskip("keras_hub")

CONFIG = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "mlp_bias": True,
}


def test_also_in_a_pipeline_of_tensorflow():
    """KerasHub's own code there would make one token of "ab"."""
    tf = pytest.importorskip("tensorflow")
    vocabulary = {"a": 0, "b": 1, "ab": 2}
    tokenizer = keras_hub.tokenizers.BytePairTokenizer(vocabulary, ["a b"])
    texts = tf.data.Dataset.from_tensor_slices(["ab", "b"])
    assert [x.tolist() for x in texts.map(tokenizer).as_numpy_iterator()] == [[2], [1]]
    spec = json.loads(python_tokenizer(tokenizer).to_str())
    spec["model"]["merges"] = []
    inside = type(python_tokenizer(tokenizer))
    replace_python_tokenizer(tokenizer, inside.from_str(json.dumps(spec)))
    found = [x.tolist() for x in texts.map(tokenizer).as_numpy_iterator()]
    assert found == [[0, 1], [1]]


def test_keys_that_a_converter_reads():
    read = keys_read(CONFIG)
    assert {"vocab_size", "tie_word_embeddings", "rope_theta"} <= read
    assert "mlp_bias" not in read
    with pytest.raises(ValueError, match="no converter"):
        keys_read({"model_type": "phi"})


def test_bytes_have_the_characters_of_byte_level_bpe():
    characters = byte_characters()
    assert len(set(characters)) == 256
    assert sorted(characters) == sorted(pre_tokenizers.ByteLevel.alphabet())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ((written, _),) = level.pre_tokenize_str("é \n")
    assert written == "".join(characters[byte] for byte in "é \n".encode())
