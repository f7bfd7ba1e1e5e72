"""Folders as transformers releases them: tiny random models with unusual configs.

torch and transformers are imported inside the functions.
"""

import json
import pathlib

import numpy as np

from tests.support.released_rows import Released


def release(folder: pathlib.Path, row: Released, **saving):
    """Saves a random model of a row as transformers does, and returns it."""
    import torch
    import transformers

    config = getattr(transformers, f"{row.config}Config")(**row.sizes)
    if row.architecture in ("ForCausalLM", "LMHeadModel"):
        config.bos_token_id, config.eos_token_id = 1, 2
    with torch.random.fork_rng():
        torch.manual_seed(0)
        kind = row.config.removesuffix("Text") + row.architecture
        model = getattr(transformers, kind)(config).float().eval()
    generator = torch.Generator().manual_seed(0)
    for weights in model.parameters():
        wide = weights.shape[-1] ** 0.5 if weights.ndim > 1 else 3
        noise = torch.randn(weights.shape, generator=generator)
        weights.data += 0.3 * noise / wide
    model.save_pretrained(folder, **saving)
    return model


def rewrite_config(folder: pathlib.Path, **told):
    """Changes keys of a folder's config; None removes one."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config |= told
    file.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def theirs(folder: pathlib.Path, ids_BT: np.ndarray, **told) -> np.ndarray:
    """What transformers computes of a folder: logits, or an encoder's outputs."""
    import torch
    import transformers

    kind = json.loads((folder / "config.json").read_text())["architectures"][0]
    causal = kind.endswith(("ForCausalLM", "LMHeadModel"))
    auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    told = {"dtype": torch.float32, "attn_implementation": "eager", **told}
    model = auto.from_pretrained(folder, **told).eval()
    with torch.no_grad():
        found = model(input_ids=torch.tensor(ids_BT, dtype=torch.long))
    return (found.logits if causal else found.last_hidden_state).numpy()
