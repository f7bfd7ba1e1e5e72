"""The narrow model of a run folder, or any checkpoint that `hub.load` takes."""

import os
import pathlib

import keras

from keras_idea.errors import ExportRefused
from keras_idea.hub.folder import is_hf_folder
from keras_idea.hub.loading import check_language_model, load

_WEIGHTS = ("model.weights.h5", "model.weights.json")


def load_run(path: str | os.PathLike, dtype: str = "float32") -> keras.Model:
    """Loads the narrow model of a finished run.

    Args:
        path: str or path. A run folder, or what `keras_idea.hub.load` takes: a
            KerasHub preset's folder or handle, a Hugging Face folder or a GGUF file.
        dtype: str. The Keras dtype policy; a quantized preset keeps its own. Defaults
            to "float32".

    Returns:
        A KerasHub `CausalLM`.

    Raises:
        ValueError: If there is no such model, or it cannot be loaded.

    Example:
    >>> type(load_run("run")).__name__
    'Llama3CausalLM'
    """
    location = find_model(path)
    model = load(location, dtype)
    check_language_model(location, model)
    return model


def find_model(path: str | os.PathLike) -> str:
    """Returns the place of the model that `load_run` would load.

    Raises:
        ExportRefused: If a folder holds none.
    """
    folder = pathlib.Path(path)
    for preset in (folder / "preset", folder):
        weights = any((preset / name).is_file() for name in _WEIGHTS)
        if weights and (preset / "config.json").is_file():
            return str(preset)
    if folder.is_dir() and not is_hf_folder(folder):
        unfinished = (folder / "config.toml").is_file()
        reason = "its run has not come to its end" if unfinished else "nothing is saved"
        raise ExportRefused(
            f"No model in {str(path)!r}: {reason} there. Give the folder of a finished "
            "run, a KerasHub preset, a Hugging Face folder or a GGUF file."
        )
    return str(path)
