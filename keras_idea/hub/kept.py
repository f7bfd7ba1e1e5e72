"""What a model keeps of its Hugging Face folder: everything but the weights.

Config, tokenizer, chat template, generation settings and pooling belong to a checkpoint
and not to KerasHub's model, so the files stay with the model until it is exported.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from keras_idea.hub.families import is_task

#: The folder of a KerasHub preset in which the files lie.
FOLDER = "huggingface"
_KEPT = "_huggingface_files"
_SUFFIXES = (".json", ".txt", ".model", ".jinja")
_WEIGHTS = ".safetensors.index.json"
_SMALL = 64 * 2**20
#: The files of a tokenizer, which go if the vocabulary changes.
TOKENIZER_FILES = tuple(
    "tokenizer.json tokenizer_config.json tokenizer.model special_tokens_map.json "
    "added_tokens.json vocab.json vocab.txt merges.txt sentencepiece.bpe.model "
    "spiece.model".split()
)


@dataclasses.dataclass(frozen=True)
class Kept:
    """Files by their names below the folder: "config.json", "1_Pooling/config.json"."""

    files: Mapping[str, bytes]

    @property
    def has_tokenizer(self) -> bool:
        """bool, whether transformers finds a tokenizer in the files."""
        return any(name in self.files for name in TOKENIZER_FILES)

    def without_tokenizer(self) -> "Kept":
        """The files without those of the tokenizer, and without ids of its tokens."""
        gone = (*TOKENIZER_FILES, "generation_config.json")
        left = {n: data for n, data in self.files.items() if n not in gone}
        settings = json.loads(self.files.get("tokenizer_config.json", b"{}"))
        if isinstance(settings.get("chat_template"), str):
            template = settings["chat_template"].encode()
            left.setdefault("chat_template.jinja", template)
        return Kept(left)

    def write(self, folder: pathlib.Path) -> None:
        """Writes the files to a folder, which is made."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def read_kept(folder: pathlib.Path) -> Kept | None:
    """The small files of a Hugging Face folder and of the folders in it."""
    files = {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for pattern in ("*", "*/*")
        for file in sorted(folder.glob(pattern))
        if file.suffix in _SUFFIXES
        and not file.name.endswith(_WEIGHTS)
        and file.is_file()
        and file.stat().st_size < _SMALL
    }
    return Kept(files) if files else None


def keep(model: Any, kept: Kept | None) -> None:
    """Has a KerasHub task or backbone keep files, if there are any."""
    if kept is not None:
        setattr(_backbone(model), _KEPT, kept)


def kept_of(model: Any) -> Kept | None:
    """The files that a KerasHub task or backbone keeps."""
    return getattr(_backbone(model), _KEPT, None)


def save_preset(model: Any, folder: pathlib.Path) -> None:
    """Saves a KerasHub preset, with the files that its model keeps."""
    model.save_to_preset(str(folder))
    kept = kept_of(model)
    if kept is not None:
        kept.write(folder / FOLDER)


def _backbone(model: Any) -> Any:
    return model.backbone if is_task(model) else model
