"""Models with a smaller vocabulary, exported: the same ids in every library."""

import json
import subprocess
import sys

import numpy as np
import pytest

from keras_idea.export import export_gguf, export_hf, export_preset
from keras_idea.lm.export.gguf.released import merges_of
from tests.support.exports import logits
from tests.support.gguf_reading import read
from tests.support.languages import SIZE, TEXTS, ids_of, narrow

NAMES = ("llama3 tied", "cut", "gemma")
# Nothing of ours can be imported in this process.
STRANGER = """
import json, sys
sys.modules["keras_idea"] = None
import keras, keras_hub, numpy as np
folder, texts, ids = json.loads(sys.argv[1])
lm = keras_hub.models.CausalLM.from_preset(folder)
ids = np.array([ids], "int32")
inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
logits = keras.ops.convert_to_numpy(lm(inputs, training=False)).tolist()
tokenizer = lm.preprocessor.tokenizer
lm.compile(sampler="greedy")
found = {
    "ids": [np.asarray(tokenizer(text)).tolist() for text in texts],
    "texts": [tokenizer.detokenize(np.asarray(tokenizer(text))) for text in texts],
    "logits": logits,
    "text": lm.generate("for (int", max_length=12, stop_token_ids=None),
}
print("FOUND", json.dumps(found))
"""


@pytest.mark.parametrize("name", NAMES)
def test_transformers_gives_the_same_ids(name, tmp_path):
    import transformers

    lm = narrow(name)
    told = str(export_hf(lm, tmp_path / "hf"))
    assert "Warning" not in told
    apart = tmp_path / "hf" / "tokenizer"
    folder = apart if apart.is_dir() else tmp_path / "hf"
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    config = json.loads((tmp_path / "hf/config.json").read_text())
    assert config["vocab_size"] == SIZE
    for text in TEXTS:
        found = theirs.encode(text, add_special_tokens=False)
        assert found == ids_of(lm.preprocessor.tokenizer, text)
        assert theirs.decode(found) == text


@pytest.mark.parametrize("name", NAMES)
def test_gguf(name, tmp_path):
    """Where llama.cpp is installed, the export compares its ids too."""
    lm = narrow(name)
    export_gguf(lm, tmp_path / "x.gguf")
    fields, tensors = read(tmp_path / "x.gguf")
    tokenizer = lm.preprocessor.tokenizer
    tokens = [tokenizer.id_to_token(i) for i in range(SIZE)]
    assert fields["tokenizer.ggml.tokens"] == tokens
    assert tensors["token_embd.weight"].shape.tolist()[-1] == SIZE
    if name != "gemma":
        assert fields["tokenizer.ggml.merges"] == merges_of(tokenizer)
    end = fields["tokenizer.ggml.eos_token_id"]
    assert tokens[end] == tokenizer.end_token


@pytest.mark.parametrize("name", ["llama3 tied", "gemma"])
def test_a_preset_where_we_are_not(name, tmp_path):
    lm = narrow(name)
    export_preset(lm, tmp_path / "preset")
    ids = list(range(5, 45))
    argument = json.dumps([str(tmp_path / "preset"), TEXTS, ids])
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, argument], stdout=subprocess.PIPE, text=True
    )
    [line] = [x for x in done.stdout.splitlines() if x.startswith("FOUND")]
    found = json.loads(line.removeprefix("FOUND"))
    assert tuple(found["texts"]) == TEXTS
    assert found["ids"] == [ids_of(lm.preprocessor.tokenizer, text) for text in TEXTS]
    own = logits(lm, np.array([ids], "int32"))
    np.testing.assert_allclose(found["logits"], own, rtol=0, atol=1e-5)
    assert found["text"].startswith("for (int")
