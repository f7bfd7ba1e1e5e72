"""Files of released checkpoints: dtypes, shards, more or fewer tensors, damage."""

import json

import numpy as np
import pytest

import keras_idea as ki
from keras_idea.hub.loading import load_with_notes
from tests.product.hub.test_released_models import assert_same
from tests.support.released_models import release, rewrite_config
from tests.support.released_rows import ALL

WEIGHTS = "model.safetensors"


def tensors_of(folder):
    import safetensors.torch

    return safetensors.torch.load_file(folder / WEIGHTS)


def save(folder, tensors):
    import safetensors.torch

    safetensors.torch.save_file(tensors, folder / WEIGHTS, {"format": "pt"})


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
# A Mistral's weights are assigned once more, unrounded; a RoBERTa's are added to.
@pytest.mark.parametrize("name", ["llama", "mistral", "roberta"])
def test_weights_of_half_precision(name, dtype, tmp_path):
    import torch

    release(tmp_path, ALL[name])
    kind = getattr(torch, dtype)
    save(tmp_path, {k: v.to(kind) for k, v in tensors_of(tmp_path).items()})
    rewrite_config(tmp_path, dtype=dtype)
    assert_same(ki.hub.load(tmp_path), tmp_path)


@pytest.mark.parametrize("name", ["llama", "mistral", "roberta", "albert masked"])
def test_sharded_weights(name, tmp_path):
    """Their names and places are in an index, which may have to be changed too."""
    release(tmp_path, ALL[name], max_shard_size="4KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_same(ki.hub.load(tmp_path), tmp_path)


def test_tensors_that_no_model_has_are_told(tmp_path):
    import torch

    release(tmp_path, ALL["llama"])
    more = {f"score.{i}.weight": torch.zeros(2) for i in range(5)}
    save(tmp_path, tensors_of(tmp_path) | more)
    loaded = load_with_notes(tmp_path)
    assert_same(loaded.model, tmp_path)
    (told,) = [line for line in loaded.lines if "score.0.weight" in line]
    assert "and 2 more" in told


@pytest.mark.parametrize(
    "name, gone",
    [
        ("llama", "model.layers.1.mlp.up_proj.weight"),
        ("llama", "lm_head.weight"),
        ("llama tied", "model.embed_tokens.weight"),
        ("gpt2", "transformer.h.0.ln_1.bias"),
        ("bert", "embeddings.LayerNorm.bias"),
        ("roberta", "encoder.layer.2.output.dense.weight"),
    ],
)
def test_weights_that_lack_a_tensor_are_refused(name, gone, tmp_path):
    release(tmp_path, ALL[name])
    tensors = tensors_of(tmp_path)
    del tensors[gone]
    save(tmp_path, tensors)
    with pytest.raises(ki.errors.LoadRefused, match=gone.removeprefix("transformer.")):
        ki.hub.load(tmp_path)


DAMAGED = {
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-1000]),
    "missing": lambda file: file.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_weights_are_refused(damage, tmp_path):
    release(tmp_path, ALL["llama"])
    DAMAGED[damage](tmp_path / WEIGHTS)
    with pytest.raises(ki.errors.LoadRefused):
        ki.hub.load(tmp_path)


def test_a_damaged_config_is_refused(tmp_path):
    release(tmp_path, ALL["llama"])
    (tmp_path / "config.json").write_text('{"model_type": "llama", ')
    with pytest.raises(ki.errors.LoadRefused, match=r"config\.json"):
        ki.hub.load(tmp_path)


def test_not_a_number_is_refused(tmp_path):
    release(tmp_path, ALL["llama"])
    tensors = tensors_of(tmp_path)
    tensors["model.layers.0.mlp.up_proj.weight"][0, 0] = np.nan
    save(tmp_path, tensors)
    with pytest.raises(ki.errors.LoadRefused, match="differ by nan"):
        ki.hub.load(tmp_path)


def test_a_folder_that_changes_is_compared_again(tmp_path):
    """A run loads its model more than once, and compares it once."""
    release(tmp_path, ALL["llama"])
    ki.hub.load(tmp_path)
    tensors = tensors_of(tmp_path)
    tensors["model.norm.weight"] *= 2
    save(tmp_path, tensors)
    assert_same(ki.hub.load(tmp_path), tmp_path)
    rewrite_config(tmp_path, rms_norm_eps=0.5)
    assert_same(ki.hub.load(tmp_path), tmp_path)


def test_how_it_was_compared_is_printed_once(tmp_path, capsys):
    release(tmp_path, ALL["llama"])
    for _ in range(2):
        ki.hub.load(tmp_path)
    printed = capsys.readouterr().out
    assert printed.count(f"Loaded {tmp_path}\nCompared with transformers") == 1


@pytest.mark.parametrize("index", [None, {"w": "a.safetensors", "v": "b.safetensors"}])
def test_only_what_the_index_names_is_downloaded(index, tmp_path, monkeypatch):
    """A repository may have the weights in several formats and precisions."""
    import huggingface_hub

    asked = []
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    text = json.dumps({"weight_map": index})
    (tmp_path / "model.safetensors.index.json").write_text(text)
    there = index is not None
    fakes = {
        "hf_hub_download": lambda name, file: str(tmp_path / file),
        "file_exists": lambda name, file: there,
        "snapshot_download": lambda name, allow_patterns: asked.extend(allow_patterns),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(huggingface_hub, name, fake)
    with pytest.raises(ki.errors.LoadRefused):  # nothing was downloaded
        ki.hub.load("hf://user/name")
    found = [pattern for pattern in asked if pattern.endswith(".safetensors")]
    assert found == (sorted(index.values()) if there else ["model.safetensors"])
