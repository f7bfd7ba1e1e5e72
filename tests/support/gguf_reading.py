"""A GGUF file as transformers computes it, told all that the file says.

transformers' own reader leaves some keys out: those are handed to it here.
"""

import gguf
import numpy as np
import torch
import transformers

#: llama.cpp's key -> the config's attribute, where transformers does not read it.
UNREAD_KEYS = {
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}


def read(path):
    """What gguf's reader finds: the metadata, and the tensors by their names."""
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    return fields, {tensor.name: tensor for tensor in reader.tensors}


def config_of(path):
    """The config of transformers for a file, with the keys that it does not read."""
    fields, tensors = read(path)
    arch = fields["general.architecture"]
    keys = {
        name.removeprefix(f"{arch}."): value
        for name, value in fields.items()
        if name.startswith(f"{arch}.")
    }
    config = transformers.AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    config.tie_word_embeddings = "output.weight" not in tensors
    config.pad_token_id = None
    for key, name in UNREAD_KEYS.items():
        if key in keys and hasattr(config, name):
            setattr(config, name, keys[key])
    if arch == "gpt2":
        config.n_inner = keys["feed_forward_length"]
        config.vocab_size = keys["vocab_size"]
        config.n_positions = keys["context_length"]
    if arch in ("gemma2", "gemma3"):
        config.query_pre_attn_scalar = keys["attention.key_length"]
    if arch == "gemma3":
        _gemma3(config, keys)
    elif "rope.scaling.factor" in keys:
        config.rope_parameters = _linear(keys, keys["rope.freq_base"])
    return config, keys["context_length"]


def _gemma3(config, keys):
    windowed = "attention.sliding_window" in keys
    config.layer_types = [
        "sliding_attention" if windowed and (i + 1) % 6 else "full_attention"
        for i in range(keys["block_count"])
    ]
    config.rope_parameters = {
        "full_attention": _linear(keys, keys["rope.freq_base"]),
        "sliding_attention": {
            "rope_type": "default",
            "rope_theta": keys.get("rope.freq_base_swa", keys["rope.freq_base"]),
        },
    }


def _linear(keys, theta):
    factor = keys.get("rope.scaling.factor", 1.0)
    return {"rope_type": "linear", "factor": factor, "rope_theta": theta}


def logits_of(path, ids):
    """Logits of as many of the tokens as the file allows at once.

    Args:
        path: path of a GGUF file.
        ids: int array (B, T).

    Returns:
        float32 array (B, t, V), t the smaller one of T and the file's context.
    """
    config, context = config_of(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, config=config, dtype="float32"
    ).eval()
    factors = read(path)[1].get("rope_freqs.weight")
    for module in model.modules() if factors is not None else ():
        if hasattr(module, "inv_freq"):
            module.inv_freq /= torch.tensor(np.array(factors.data))
    with torch.no_grad():
        return model(torch.tensor(ids[:, :context].astype("int64"))).logits.numpy()
