"""A preset that KerasHub 0.32 saved without an argument that its weights need."""

import contextlib
import json
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

# Their configs leave out the tie, see `rebuild.patch_get_config`.
_FORGETFUL = ("LlamaBackbone", "Llama3Backbone")
_TIE = "tie_word_embeddings"
_CONFIGS = ("config.json", "task.json")
_EMBEDDING = "layers/reversible_embedding/vars"


@contextlib.contextmanager
def whole_preset(source: str | os.PathLike) -> Iterator[str]:
    """The preset itself, or a copy, of links, whose config says that it is tied."""
    folder = pathlib.Path(source)
    if not _is_tied_and_says_nothing(folder):
        yield str(source)
        return
    with tempfile.TemporaryDirectory(prefix="keras_idea_") as temporary:
        copy = pathlib.Path(temporary)
        for entry in folder.iterdir():
            if entry.name in _CONFIGS:
                config = _tied(json.loads(entry.read_text(encoding="utf-8")))
                (copy / entry.name).write_text(json.dumps(config), encoding="utf-8")
            else:
                os.symlink(entry.resolve(), copy / entry.name)
        yield temporary


def _is_tied_and_says_nothing(folder: pathlib.Path) -> bool:
    """Whether a Llama's weights have one matrix of tokens, and its config no tie."""
    try:
        config = json.loads((folder / _CONFIGS[0]).read_text(encoding="utf-8"))
        if config["class_name"] not in _FORGETFUL or _TIE in config["config"]:
            return False
        import h5py

        with h5py.File(folder / "model.weights.h5") as weights:
            return list(weights[_EMBEDDING]) == ["0"]
    except (OSError, ValueError, KeyError, TypeError):  # KerasHub says what is wrong
        return False


def _tied(config: Any) -> Any:
    """The config with the tie, wherever in it the backbone is described."""
    if not isinstance(config, dict):
        return config
    config = {key: _tied(value) for key, value in config.items()}
    if config.get("class_name") in _FORGETFUL:
        config["config"] = {**config["config"], _TIE: True}
    return config
