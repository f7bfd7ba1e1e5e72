"""The narrow model of a run folder, or of a preset folder."""

import os
import pathlib
import re
import zipfile

import keras

from keras_idea.errors import ExportRefused
from keras_idea.extras import require
from keras_idea.hub.families import is_task
from keras_idea.hub.family import NUM_BYTES
from keras_idea.models.dtype import compute_in

_MEND = "Restore it from a copy, or train that run again."
_WEIGHTS = ("model.weights.h5", "model.weights.json")


def load_run(
    path: str | os.PathLike, purpose: str = "export", dtype: str = "float32"
) -> keras.Model:
    """Loads the narrow model of a finished run.

    Args:
        path: str or path. A run folder (`preset/` or `narrow.keras` in it), a KerasHub
            preset folder, or a preset's handle, "hf://...".
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
    found = find_model(path, purpose)
    if found.endswith(".keras"):
        return compute_in(_load_decoder(pathlib.Path(found)), dtype)
    return _load_preset(found, dtype)


def find_model(path: str | os.PathLike, purpose: str = "export") -> str:
    """Where the narrow model lies that `load_run` would load.

    A preset folder, a `.keras` file, or a preset's handle.

    Raises:
        ExportRefused: if there is none.
    """
    if "://" in str(path):
        return str(path)
    folder = pathlib.Path(path)
    try:
        folder.stat()
    except FileNotFoundError:
        pass  # which is told below
    except (OSError, ValueError) as error:  # too long, or with a NUL
        raise ExportRefused(
            f"No model to {purpose} in {str(path)!r}: {error}. Give another path."
        ) from None
    for preset in (folder / "preset", folder):
        weights = any((preset / name).is_file() for name in _WEIGHTS)
        if weights and (preset / "config.json").is_file():
            return str(preset)
    if (folder / "narrow.keras").is_file():
        return str(folder / "narrow.keras")
    if folder.is_file():
        found = "it is a file"
    elif not folder.is_dir():
        found = "there is no such folder"
    elif (folder / "config.toml").is_file():
        found = "its run has not come to its end"
    else:
        found = "it is neither a run folder nor a preset"
    raise ExportRefused(
        f"No model to {purpose} in {str(path)!r}: {found}. Give the folder of a "
        "finished `keras-idea train` (with preset/ or narrow.keras), or a KerasHub "
        "preset folder (with config.json and its weights)."
    )


def reads_bytes(model: keras.Model) -> bool:
    """Whether a model without a tokenizer reads the bytes of UTF-8 text.

    Nothing but this package's own decoder is known to: a run trains it on bytes, with
    one id more if it reads documents. The ids of a KerasHub model are its tokenizer's.
    """
    size = model.output_shape[-1]
    return not is_task(model) and size in (NUM_BYTES, NUM_BYTES + 1)


def _load_preset(preset: str, dtype: str | None) -> keras.Model:
    hub = require("keras_hub", "A KerasHub model", "hub", ExportRefused)
    tokenizer = "://" in preset or (pathlib.Path(preset) / "tokenizer.json").is_file()
    # Where there is none KerasHub would not load a backbone's preset.
    options = {} if tokenizer else {"preprocessor": None}
    if is_quantized(preset):
        dtype = None  # its own: KerasHub reads its weights as no other
    try:
        lm = hub.models.CausalLM.from_preset(preset, dtype=dtype, **options)
        if tokenizer and lm.preprocessor is None:
            # Saved beside a task that had none.
            lm.preprocessor = hub.models.CausalLMPreprocessor.from_preset(preset)
        return lm
    # From many places: files that are damaged, a task of another kind.
    except Exception as error:
        raise ExportRefused(
            f"The preset {preset!r} cannot be loaded as a KerasHub CausalLM: "
            f"{error} {_MEND}"
        ) from error


def is_quantized(preset: str | os.PathLike) -> bool:
    """bool, whether a preset folder holds a quantized model, as Keras's `quantize`."""
    config = pathlib.Path(preset) / "config.json"
    try:
        text = config.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return (
        re.search(r'"(Quantized|QuantizedFloat8|Int4|GPTQ|AWQ)DTypePolicy"', text)
        is not None
    )


def _load_decoder(file: pathlib.Path) -> keras.Model:
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
