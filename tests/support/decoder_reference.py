"""The decoder in float64 NumPy, written from the definitions alone.

Shapes: B batch, T tokens, D model_dim, N query heads, K key/value heads, H head_dim.
"""

import keras
import numpy as np


def numpy_of(tensor):
    return keras.ops.convert_to_numpy(tensor).astype("float32")


def rotary_reference(x_BTNH, max_wavelength):
    num_pairs = x_BTNH.shape[-1] // 2
    z = x_BTNH[..., :num_pairs] + 1j * x_BTNH[..., num_pairs:]
    for t in range(x_BTNH.shape[1]):
        for p in range(num_pairs):
            z[:, t, :, p] *= np.exp(1j * t / max_wavelength ** (p / num_pairs))
    return np.concatenate([z.real, z.imag], axis=-1)


def attention_reference(x_BTD, query, key, value, output, kv_heads, max_wavelength):
    batch, tokens, model_dim = x_BTD.shape
    head_dim = key.shape[1] // kv_heads
    num_heads = query.shape[1] // head_dim
    heads = [
        (x_BTD @ kernel).reshape(batch, tokens, -1, head_dim)
        for kernel in (query, key, value)
    ]
    q, k = (rotary_reference(x, max_wavelength) for x in heads[:2])
    v = heads[2]
    y = np.zeros((batch, tokens, num_heads, head_dim))
    for n in range(num_heads):
        shared = n // (num_heads // kv_heads)
        for t in range(tokens):
            logits = np.einsum("bh,bsh->bs", q[:, t, n], k[:, : t + 1, shared])
            weights = np.exp(logits / np.sqrt(head_dim))
            weights /= weights.sum(-1, keepdims=True)
            y[:, t, n] = np.einsum("bs,bsh->bh", weights, v[:, : t + 1, shared])
    return y.reshape(batch, tokens, model_dim) @ output


def rms_norm_reference(x, scale, epsilon):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * scale


def decoder_reference(model, config, ids_BT):
    def weight(*names):
        (found,) = [v for v in model.variables if set(names) <= set(v.path.split("/"))]
        return numpy_of(found).astype("float64")

    embeddings = weight("token_embedding", "embeddings")
    x = embeddings[ids_BT]
    for i in range(config.num_layers):
        block = model.get_layer(f"block_{i}")
        h = rms_norm_reference(
            x, weight(block.name, "attention_norm", "scale"), config.rms_norm_epsilon
        )
        x = x + attention_reference(
            h,
            *(
                weight(block.name, "attention", part, "kernel")
                for part in ("query", "key", "value", "output")
            ),
            kv_heads=config.num_key_value_heads or config.num_heads,
            max_wavelength=config.rope_max_wavelength,
        )
        h = rms_norm_reference(
            x, weight(block.name, "ffn_norm", "scale"), config.rms_norm_epsilon
        )
        up, gate, down = (
            numpy_of(kernel).astype("float64")
            for kernel in (
                block.ffn.up_kernel,
                block.ffn.gate_kernel,
                block.ffn.down_kernel,
            )
        )
        a = h @ up
        x = x + (a / (1 + np.exp(-a)) * (h @ gate)) @ down
    x = rms_norm_reference(x, weight("final_norm", "scale"), config.rms_norm_epsilon)
    return x @ (embeddings.T if config.tie_embeddings else weight("logits", "kernel"))
