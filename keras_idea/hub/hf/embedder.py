"""How an encoder's outputs become an embedding, as sentence-transformers says it."""

import json
from typing import Any

from keras_idea.errors import LoadRefused
from keras_idea.hub.hf.stage import Stage

_MODULES = "modules.json"
_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
_NOT_SAID = (
    f"It has no {_MODULES}: its embeddings are the mean of its outputs, as in "
    "sentence-transformers."
)


def embedder_options(stage: Stage, kind: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Arguments of KerasHub's `TextEmbedder`, and notes.

    Raises:
        LoadRefused: if it has a module that KerasHub has not.
    """
    if kind is None:
        return {}, ()
    file = stage.source / _MODULES
    if not file.is_file():
        return {"pooling_mode": "mean", "normalize": False}, (_NOT_SAID,)
    modules = json.loads(file.read_text(encoding="utf-8"))
    types = [str(module["type"]).rpartition(".")[2] for module in modules]
    if types not in (
        ["Transformer", "Pooling"],
        ["Transformer", "Pooling", "Normalize"],
    ):
        raise LoadRefused(
            "KerasHub's embedders know Transformer, Pooling and Normalize alone. "
            f"Received: {_MODULES} with {', '.join(types)}. Give another checkpoint."
        )
    return {
        "pooling_mode": _pooling(stage, modules[1]),
        "normalize": len(types) == 3,
    }, ()


def _pooling(stage: Stage, module: dict[str, Any]) -> str:
    file = stage.source / module["path"] / "config.json"
    pooling = json.loads(file.read_text(encoding="utf-8"))
    modes = [
        k for k, on in pooling.items() if k.startswith("pooling_mode_") and on is True
    ]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise LoadRefused(
            f"KerasHub's embedders pool by one of {', '.join(_POOLINGS)}. Received: "
            f"{', '.join(modes) or pooling!r}. Give another checkpoint."
        )
    return _POOLINGS[modes[0]]
