"""A Hugging Face folder, laid out so that KerasHub's converters find all they read."""

import contextlib
import dataclasses
import json
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

from keras_idea.errors import LoadRefused
from keras_idea.hub.hf.config import (
    as_dict,
    check_config,
    read_config,
    staged_config,
)
from keras_idea.hub.hf.tensors import stage_tensors
from keras_idea.hub.hf.tokenizer import read_tokenizer, write_tokenizer
from keras_idea.validation import require_installed

#: Files by which a folder is known to be Hugging Face's, and not KerasHub's.
CONFIG = "config.json"


@dataclasses.dataclass(frozen=True)
class Stage:
    """What is known of a checkpoint, and a folder that KerasHub can read.

    Attributes:
        source: path of the folder that was given.
        folder: path of the folder for KerasHub.
        config: the `PretrainedConfig`.
        hf_config: dict, all keys of that config.
        tokenizer: transformers' tokenizer, or None.
        notes: tuple of str, what the user should know of its weights.
    """

    source: pathlib.Path
    folder: pathlib.Path
    config: Any
    hf_config: dict[str, Any]
    tokenizer: Any
    notes: tuple[str, ...] = ()

    @property
    def weights(self) -> list[pathlib.Path]:
        """The files of its weights."""
        return sorted(self.folder.glob("*.safetensors"))


def is_hf_folder(path: str | os.PathLike) -> bool:
    """Whether `path` is a folder that transformers wrote, and no KerasHub preset.

    Raises:
        LoadRefused: if its config is no JSON.
    """
    file = pathlib.Path(path) / CONFIG
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        return False
    except ValueError as error:
        raise LoadRefused(
            f"{str(file)!r} is damaged, because it is no JSON: {error}. Get it again."
        ) from error
    return isinstance(config, dict) and "model_type" in config


@contextlib.contextmanager
def staged(source: str | os.PathLike) -> Iterator[Stage]:
    """A `Stage` of a Hugging Face folder; its own folder is removed at the end.

    Raises:
        LoadRefused: if the folder or its config cannot be read.
        MissingPackage: if transformers or torch is not installed.
    """
    what = "A Hugging Face checkpoint"
    require_installed(["transformers"], what, "export")
    require_installed(["torch"], what, "torch")
    given = pathlib.Path(source)
    config = read_config(given)
    hf_config = as_dict(config)
    check_config(config)
    tokenizer = read_tokenizer(given)
    with tempfile.TemporaryDirectory(prefix="keras_idea_") as temporary:
        folder = pathlib.Path(temporary)
        text = json.dumps(staged_config(hf_config), indent=1, default=str)
        (folder / CONFIG).write_text(text, encoding="utf-8")
        notes = _stage_weights(given, folder, hf_config)
        if tokenizer is not None:
            write_tokenizer(tokenizer, given, folder, hf_config["model_type"])
        yield Stage(given, folder, config, hf_config, tokenizer, notes)


def _stage_weights(
    given: pathlib.Path, folder: pathlib.Path, hf_config: dict[str, Any]
) -> tuple[str, ...]:
    files = [*given.glob("*.safetensors"), *given.glob("*.safetensors.index.json")]
    if not any(file.suffix == ".safetensors" for file in files):
        raise LoadRefused(
            f"No weights in {str(given)!r}: there is no *.safetensors file. Load it "
            "with transformers, and save it with `model.save_pretrained(folder)`."
        )
    for file in [*files, *given.glob("modules.json"), *given.glob("sentence_bert*")]:
        os.symlink(file.resolve(), folder / file.name)
    pooling = given / "1_Pooling"
    if pooling.is_dir():
        os.symlink(pooling.resolve(), folder / pooling.name)
    return stage_tensors(folder, hf_config)
