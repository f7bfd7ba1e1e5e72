"""Weights of encoders under the names that KerasHub 0.32 looks for.

A safetensors file is the size of a header in 8 bytes, the header in JSON, and the
numbers, whose places the header tells from its own end on.
"""

import json
import math
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

from keras_idea.errors import LoadRefused
from keras_idea.files import reserve

_INDEX = "model.safetensors.index.json"
# KerasHub's converters demand the prefix that a model with a head has, and that a bare
# encoder of transformers has not.
_PREFIXES = {"roberta": "roberta.", "distilbert": "distilbert.", "albert": "albert."}
# They demand a pooler, which a model with a head for masked words has not.
_POOLERS = {
    "bert": ("pooler.dense.weight", "pooler.dense.bias"),
    "albert": ("albert.pooler.weight", "albert.pooler.bias"),
}
_NO_POOLER = "Its file has no pooler: `pooled_output` is always 0."


def stage_tensors(
    folder: pathlib.Path, hf_config: Mapping[str, Any]
) -> tuple[str, ...]:
    """Replaces links to weights by files in which KerasHub finds all it looks for.

    Returns:
        tuple of str, what the user should know.
    """
    kind = hf_config["model_type"]
    prefix, poolers = _PREFIXES.get(kind, ""), _POOLERS.get(kind, ())
    files = sorted(folder.glob("*.safetensors"))
    names = {name for file in files for name in tensor_names(file)}
    if any(name.startswith(prefix) for name in names):
        prefix = ""
    names = {prefix + name for name in names}
    zeros: dict[str, tuple[int, ...]] = {}
    if not all(any(name.endswith(end) for name in names) for end in poolers):
        width = hf_config["hidden_size"]
        zeros = dict(zip(poolers, [(width, width), (width,)], strict=True))
    if not prefix and not zeros:
        return ()
    places = {}
    for file in files:
        last = file is files[-1]
        for name in _rewrite(file, prefix, zeros if last else {}):
            places[name] = file.name
    index = folder / _INDEX
    if index.exists():
        index.unlink()
        index.write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    return (_NO_POOLER,) if zeros else ()


def tensor_names(file: pathlib.Path) -> list[str]:
    """The names of a file's tensors.

    Raises:
        LoadRefused: if it is damaged.
    """
    import safetensors

    try:
        with safetensors.safe_open(file, framework="np") as opened:
            return list(opened.keys())
    except Exception as error:  # of safetensors, or of the system
        raise LoadRefused(
            f"{file.name!r} is no whole safetensors file: {error}. Get it again."
        ) from error


def drop_tensor(file: pathlib.Path, name: str) -> None:
    """Removes a tensor from a safetensors file, in place: what follows moves up."""
    with open(file, "r+b") as write, open(file, "rb") as read:
        header = _header(read)
        start = read.tell()
        first, last = header.pop(name)["data_offsets"]
        for tensor, entry in header.items():
            if tensor != "__metadata__" and entry["data_offsets"][0] >= last:
                offsets = entry["data_offsets"]
                entry["data_offsets"] = [place + first - last for place in offsets]
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        write.seek(8)
        write.write(text.ljust(start - 8))
        read.seek(start + last)
        write.seek(start + first)
        shutil.copyfileobj(read, write)
        write.truncate()


def _header(opened: Any) -> dict[str, Any]:
    size = int.from_bytes(opened.read(8), "little")
    header: dict[str, Any] = json.loads(opened.read(size))
    return header


def _rewrite(
    link: pathlib.Path, prefix: str, zeros: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """Makes a file of a link: a prefix before each name, and more tensors, of zeros."""
    source = link.resolve()
    link.unlink()
    reserve(link.parent, source.stat().st_size)
    with open(source, "rb") as read, open(link, "wb") as write:
        header = _header(read)
        header.pop("__metadata__", None)
        end = max(entry["data_offsets"][1] for entry in header.values())
        header = {prefix + name: entry for name, entry in header.items()}
        start = end
        for name, shape in zeros.items():
            places = [start, start + 4 * math.prod(shape)]
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": places}
            start = places[1]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        write.write(len(text).to_bytes(8, "little") + text)
        shutil.copyfileobj(read, write)
        write.write(bytes(start - end))
    return list(header)
