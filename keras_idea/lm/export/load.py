"""The narrow model of a run folder, or any checkpoint that `hub.load` takes."""

import os
import pathlib

import keras

from keras_idea.errors import ExportRefused
from keras_idea.hub.families import NUM_BYTES, is_task
from keras_idea.hub.folder import is_hf_folder
from keras_idea.hub.loading import check_language_model, load
from keras_idea.models.decoder import compute_in

_WEIGHTS = ("model.weights.h5", "model.weights.json")


def load_run(path: str | os.PathLike, dtype: str = "float32") -> keras.Model:
    """Loads the narrow model of a finished run.

    Args:
        path: str or path. A run folder (`preset/` or `narrow.keras` in it), or what
            `keras_idea.hub.load` takes: a KerasHub preset's folder or handle, a
            Hugging Face folder, or a GGUF file.
        dtype: str. Dtype of the computations; a preset's weights follow this Keras
            policy, a decoder's stay float32. A quantized preset keeps its own.
            Defaults to "float32".

    Returns:
        A KerasHub `CausalLM`, or the `keras.Model` of this package's decoder.

    Raises:
        ValueError: If there is no such model, or it cannot be loaded.

    Example:
    >>> load_run("run").name
    'decoder'
    """
    location = find_model(path)
    if location.endswith(".keras"):
        return compute_in(_decoder(pathlib.Path(location)), dtype)
    model = load(location, dtype)
    check_language_model(location, model)
    return model


def find_model(path: str | os.PathLike) -> str:
    """Where the narrow model lies that `load_run` would load.

    A `.keras` file, or what `keras_idea.hub.load` takes.

    Raises:
        ExportRefused: if a folder holds none.
    """
    folder = pathlib.Path(path)
    for preset in (folder / "preset", folder):
        weights = any((preset / name).is_file() for name in _WEIGHTS)
        if weights and (preset / "config.json").is_file():
            return str(preset)
    for name in ("narrow.keras", "full.keras"):
        if (folder / name).is_file():
            return str(folder / name)
    if folder.is_dir() and not is_hf_folder(folder):
        unfinished = (folder / "config.toml").is_file()
        reason = "its run has not come to its end" if unfinished else "nothing is saved"
        raise ExportRefused(
            f"No model in {str(path)!r}: {reason} there. Give the folder of a finished "
            "run, a KerasHub preset, a Hugging Face folder or a GGUF file."
        )
    return str(path)


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

    try:
        return keras.models.load_model(file, compile=False, safe_mode=True)
    except Exception as error:
        raise ExportRefused(
            f"{str(file)!r} cannot be loaded: {error} Restore it from a copy, or train "
            "that run again."
        ) from error
