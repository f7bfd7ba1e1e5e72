"""The narrow model of a run folder, or any checkpoint that `hub.load` takes."""

import os
import pathlib
import zipfile

import keras

from keras_idea.errors import ExportRefused, LoadRefused
from keras_idea.hub.families import is_task
from keras_idea.hub.family import NUM_BYTES
from keras_idea.hub.folder import is_hf_folder
from keras_idea.hub.gguf_file import is_gguf
from keras_idea.hub.loading import check_language_model, is_builtin_preset, load
from keras_idea.models.decoder import compute_in

_WEIGHTS = ("model.weights.h5", "model.weights.json")


def load_run(
    path: str | os.PathLike, purpose: str = "export", dtype: str = "float32"
) -> keras.Model:
    """Loads the narrow model of a finished run.

    Args:
        path: str or path. A run folder (`preset/` or `narrow.keras` in it), or what
            `keras_idea.hub.load` takes: a KerasHub preset's folder or handle, a
            Hugging Face folder, or a GGUF file.
        purpose: str. The use of the model, for messages. Defaults to "export".
        dtype: str. Dtype of the computations; a preset's weights follow this Keras
            policy, a decoder's stay float32. A quantized preset keeps its own.
            Defaults to "float32".

    Returns:
        A KerasHub `CausalLM`, or the `keras.Model` of this package's decoder.

    Raises:
        ExportRefused: If there is no such model, or it cannot be loaded.

    Example:
    >>> load_run("run").name
    'decoder'
    """
    location = find_model(path, purpose)
    if location.endswith(".keras"):
        return compute_in(_decoder(pathlib.Path(location)), dtype)
    try:
        model = load(location, dtype)
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
            return str(path)
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
    unfinished = (folder / "config.toml").is_file()
    reason = "its run has not come to its end" if unfinished else "nothing is saved"
    raise ExportRefused(
        f"No model to {purpose} in {str(path)!r}: {reason} there. Give the folder of a "
        "finished run, a KerasHub preset, a Hugging Face folder or a GGUF file."
    )


def reads_bytes(model: keras.Model) -> bool:
    """Whether a model without a tokenizer reads the bytes of UTF-8 text.

    Nothing but this package's own decoder is known to: a run trains it on bytes, with
    one id more if it reads documents. The ids of a KerasHub model are its tokenizer's.
    """
    size = model.output_shape[-1]
    return not is_task(model) and size in (NUM_BYTES, NUM_BYTES + 1)


def _decoder(file: pathlib.Path) -> keras.Model:
    # The decoder's classes register themselves.
    from keras_idea.models import DecoderBlock  # noqa: F401

    cure = "Restore it from a copy, or train that run again."
    if not zipfile.is_zipfile(file):
        raise ExportRefused(f"{str(file)!r} is no whole .keras file. {cure}")
    try:
        return keras.models.load_model(file, compile=False, safe_mode=True)
    except Exception as error:
        raise ExportRefused(
            f"{str(file)!r} cannot be loaded: {error} {cure}"
        ) from error
