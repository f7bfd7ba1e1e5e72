"""The narrow model of a run folder, or any checkpoint that `hub.load` takes."""

import os
import pathlib
import zipfile

import keras

from keras_idea.elastic import sliced
from keras_idea.errors import ExportRefused, LoadRefused
from keras_idea.finding.find import find_ffns
from keras_idea.hub.families import is_task
from keras_idea.hub.family import NUM_BYTES
from keras_idea.hub.hf.gguf import is_gguf
from keras_idea.hub.hf.stage import is_hf_folder
from keras_idea.hub.loading import check_language_model, is_builtin_preset, load
from keras_idea.hub.widths import FULL, check_record, neurons_in, read_widths
from keras_idea.models.decoder import compute_in

_MEND = "Restore it from a copy, or train that run again."
_WEIGHTS = ("model.weights.h5", "model.weights.json")


def load_run(
    path: str | os.PathLike,
    purpose: str = "export",
    dtype: str = "float32",
    width: str | None = None,
) -> keras.Model:
    """Loads the narrow model of a finished run; of one with [elastic], any width.

    Args:
        path: str or path. A run folder (`preset/`, `narrow.keras` or `full.keras` in
            it), or what
            `keras_idea.hub.load` takes: a KerasHub preset's folder or handle, a
            Hugging Face folder, or a GGUF file.
        purpose: str. The use of the model, for messages. Defaults to "export".
        dtype: str. Dtype of the computations; a preset's weights follow this Keras
            policy, a decoder's stay float32. A quantized preset keeps its own.
            Defaults to "float32".
        width: str or None. A name in the `widths.json` beside the model: the model of
            the first neurons of each FFN. Defaults to None: the whole model.

    Returns:
        A KerasHub `CausalLM`, or the `keras.Model` of this package's decoder.

    Raises:
        ExportRefused: If there is no such model or width, or it cannot be loaded.

    Example:
    >>> load_run("run").name
    'decoder'
    """
    location = find_model(path, purpose)
    try:
        if location.endswith(".keras"):
            return compute_in(_load_decoder(pathlib.Path(location), width), dtype)
        model = load(location, dtype, width)
        check_language_model(location, model)
        return model
    except LoadRefused as error:
        raise ExportRefused(str(error)) from error


def find_model(path: str | os.PathLike, purpose: str = "export") -> str:
    """Where the narrow model lies that `load_run` would load.

    A `.keras` file, or what `keras_idea.hub.load` takes.

    Raises:
        ExportRefused: if there is none.
    """
    if "://" in str(path):
        return str(path)
    folder = pathlib.Path(path)
    try:
        folder.stat()
    except FileNotFoundError:
        if is_builtin_preset(path):
            return str(path)  # what else is told below
    except (OSError, ValueError) as error:  # too long, or with a NUL
        raise ExportRefused(
            f"No model to {purpose} in {str(path)!r}: {error}. Give another path."
        ) from None
    for preset in (folder / "preset", folder):
        weights = any((preset / name).is_file() for name in _WEIGHTS)
        if weights and (preset / "config.json").is_file():
            return str(preset)
    if is_hf_folder(folder) or is_gguf(folder):
        return str(folder)
    for name in ("narrow.keras", "full.keras"):
        if (folder / name).is_file():
            return str(folder / name)
    if folder.is_file():
        reason = "it is a file"
    elif not folder.is_dir():
        reason = "there is no such folder"
    elif (folder / "config.toml").is_file():
        reason = "its run has not come to its end"
    else:
        reason = "it is neither a run folder nor a preset"
    raise ExportRefused(
        f"No model to {purpose} in {str(path)!r}: {reason}. Give the folder of a "
        "finished `keras-idea train` (with preset/ or narrow.keras), a KerasHub "
        "preset's folder or handle, a Hugging Face folder or a GGUF file."
    )


def reads_bytes(model: keras.Model) -> bool:
    """Whether a model without a tokenizer reads the bytes of UTF-8 text.

    Nothing but this package's own decoder is known to: a run trains it on bytes, with
    one id more if it reads documents. The ids of a KerasHub model are its tokenizer's.
    """
    size = model.output_shape[-1]
    return not is_task(model) and size in (NUM_BYTES, NUM_BYTES + 1)


def widths_at(path: str | os.PathLike, purpose: str = "export") -> list[str]:
    """The names of the widths that `load_run` would load, "full" among them.

    Raises:
        ExportRefused: if there is no model, or no record of widths beside it.
    """
    location = pathlib.Path(find_model(path, purpose))
    try:
        return list(read_widths(location if location.is_dir() else location.parent))
    except LoadRefused as error:
        raise ExportRefused(str(error)) from error


def _load_decoder(file: pathlib.Path, width: str | None) -> keras.Model:
    model = _whole_decoder(file)
    if width is None:
        return model
    record = read_widths(file.parent)
    neurons = neurons_in(record, width)
    check_record(record, [ffn.hidden_dim for ffn in find_ffns(model)])
    return model if width == FULL else sliced(model, neurons)


def _whole_decoder(file: pathlib.Path) -> keras.Model:
    # The decoder's classes register themselves.
    from keras_idea.models import DecoderBlock  # noqa: F401

    if not zipfile.is_zipfile(file):
        raise ExportRefused(
            f"{str(file)!r} cannot be loaded: it is no .keras file, or one that is cut "
            f"off. {_MEND}"
        )
    try:
        return keras.models.load_model(file, compile=False, safe_mode=True)
    except Exception as error:
        raise ExportRefused(
            f"{str(file)!r} cannot be loaded: {error} {_MEND}"
        ) from error
