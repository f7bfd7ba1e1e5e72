"""Export to an ONNX file, by Keras, checked with onnxruntime or onnx itself."""

import os
import pathlib
import warnings
from collections.abc import Callable

import keras
import numpy as np

from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.hub.families import FAMILIES, is_task
from keras_idea.hub.inputs import text_inputs
from keras_idea.lm.export.compare import (
    SHORTEST,
    Subject,
    compare,
    model_subject,
    probe_length,
    subject_of,
)
from keras_idea.lm.export.stock import check_compacted, stock
from keras_idea.lm.export.target import (
    Export,
    ExportKind,
    check_target,
    replacing_target,
)
from keras_idea.validation import check_int, missing, require_installed

ONNX = ExportKind("an ONNX file", suffix=".onnx")
_TOLERANCE = 1e-4
_ELSEWHERE = (
    "A run trained on any backend can be exported by another one: "
    "KERAS_BACKEND={backend} keras-idea export ... --onnx ..."
)


# Backend -> the modules that Keras needs to make an ONNX file on it. Measured with
# keras 3.15.1, tf2onnx 1.17, onnxscript 0.7 and jax2onnx 0.17.
_CONVERTERS = {"tensorflow": ("onnx", "tf2onnx"), "torch": ("onnx", "onnxscript")}


def export_onnx(
    model: keras.Model,
    path: str | os.PathLike,
    overwrite: bool = False,
    length: int | None = None,
) -> Export:
    """Saves a narrow model as an ONNX file: token ids to logits, in float32.

    The file is loaded back before it is kept: logits and greedy tokens must match the
    model's.

    Args:
        model: keras.Model. A stock KerasHub `CausalLM`, as `compact` or `load_run`
            returns it, with inputs `token_ids` and `padding_mask`; or this package's
            compacted decoder, with `token_ids` alone.
        path: str or path. The file. Its name ends in ".onnx".
        overwrite: bool. Whether to replace an existing file. Defaults to False.
        length: int or None. On torch, required: the file takes one sequence of so many
            tokens; pad shorter ones on the right. On tensorflow None: the file takes
            any number of sequences of any length. Defaults to None.

    Returns:
        `Export`.

    Raises:
        ExportRefused: If the path is taken, a package is missing, the model cannot be
            exported, or the backend cannot make the file; says which one can.
        ExportFailed: If the file does not match the model. Nothing of it is left.

    Example:
    >>> # On tensorflow; torch needs a `length`.
    >>> print(export_onnx(ki.compact(lm), "narrow.onnx"))  # doctest: +SKIP
    narrow.onnx: an ONNX file for any length, float32; loaded back: ... tokens equal.
    """
    check_target(path, ONNX, overwrite)
    check_compacted(model)
    length = _check_backend(model, length)
    model, subject, vocabulary_size, longest = _described(model)
    shape = (None, None) if length is None else (1, length)
    with replacing_target(path) as temporary:
        _write(model, temporary, shape)
        others = [e.name for e in temporary.parent.iterdir() if e != temporary]
        if others:
            raise ExportFailed(
                f"It is too large for one file: {others[0]!r} beside it."
            )
        match = compare(
            subject,
            _subject(temporary, _names(model), length),
            vocabulary_size,
            _TOLERANCE,
            longest if length is None else min(longest, length),
        )
    sizes = "any length" if length is None else f"one text of {length} tokens"
    return Export(path, f"an ONNX file for {sizes}, float32", match)


def _check_backend(model: keras.Model, length: int | None) -> int | None:
    """Returns the length, or refuses what the backend cannot do."""
    backend = keras.backend.backend()
    if backend not in _CONVERTERS:
        raise ExportRefused(
            f"Keras makes no ONNX file of such a model on {backend} (jax2onnx cannot "
            f"convert `arange`). {_ELSEWHERE.format(backend='tensorflow')}"
        )
    what = f"An ONNX file made on {backend}"
    require_installed(_CONVERTERS[backend], what, "onnx", ExportRefused)
    family = FAMILIES.get(type(getattr(model, "backbone", None)).__name__)
    wrong = family and family.onnx_wrong.get(backend)
    if wrong:
        raise ExportRefused(
            f"On {backend} the ONNX file would be wrong: {wrong}. "
            f"{_ELSEWHERE.format(backend='torch')}"
        )
    if backend == "tensorflow":
        if length is not None:
            raise ExportRefused(
                f"`length` is for torch; on {backend} the file takes any length. "
                f"Received: length={length!r}. Leave it out."
            )
        return None
    if length is None:
        raise ExportRefused(
            f"On {backend} Keras makes ONNX files for one length: give it with "
            "--length, or make a file for any length. "
            f"{_ELSEWHERE.format(backend='tensorflow')}"
        )
    try:
        return check_int("length", length, minimum=SHORTEST)
    except ValueError as error:
        raise ExportRefused(str(error)) from None


def _described(model: keras.Model) -> tuple[keras.Model, Subject, int, int]:
    """The model in float32, its `Subject`, token ids, and tokens to compare on."""
    if not is_task(model):
        number_of_ids = model.output_shape[-1]
        return model, model_subject(model), number_of_ids, probe_length(model)
    source = stock(model, in_float32=True)
    return source.lm, source.subject, source.vocabulary_size, source.probe_length


def _write(
    model: keras.Model, path: pathlib.Path, shape: tuple[int | None, ...]
) -> None:
    specs = {
        name: keras.InputSpec(shape=shape, dtype="int32", name=name)
        for name in _names(model)
    }
    signature = [specs] if isinstance(model.input, dict) else list(specs.values())
    try:
        with warnings.catch_warnings():
            # Of the converters: about versions to come.
            warnings.simplefilter("ignore")
            model.export(
                str(path),
                format="onnx",
                verbose=False,
                input_signature=signature,
            )
    except Exception as error:
        raise ExportFailed(f"Keras cannot export it: {error}") from error


def _names(model: keras.Model) -> list[str]:
    return list(model.input) if isinstance(model.input, dict) else ["token_ids"]


def _subject(path: pathlib.Path, names: list[str], length: int | None) -> Subject:
    """What the file computes, as a `Subject`."""
    run, inputs = _session(path)
    if sorted(inputs) != sorted(names):
        raise ExportFailed(f"The ONNX file has the inputs {inputs}, not {names}.")

    def some(ids_BT: np.ndarray) -> np.ndarray:
        try:
            return run(None, text_inputs(names, ids_BT))[0]
        except Exception as error:
            raise ExportFailed(f"The ONNX file does not run: {error}") from error

    def logits(ids_BT: np.ndarray) -> np.ndarray:
        if length is None:
            return some(ids_BT)
        tokens = ids_BT.shape[1]
        padded = np.pad(ids_BT, ((0, 0), (0, length - tokens)))
        return np.concatenate([some(row[None])[:, :tokens] for row in padded])

    return subject_of(logits, length or SHORTEST)


def _session(path: pathlib.Path) -> tuple[Callable, list[str]]:
    """What runs a file, and the names of its inputs."""
    try:
        if missing(["onnxruntime"]):
            from onnx.reference import ReferenceEvaluator

            evaluator = ReferenceEvaluator(str(path))
            return evaluator.run, list(evaluator.input_names)
        import onnxruntime

        session = onnxruntime.InferenceSession(
            str(path), providers=["CPUExecutionProvider"]
        )
        return session.run, [entry.name for entry in session.get_inputs()]
    except Exception as error:
        raise ExportFailed(f"The ONNX file cannot be loaded: {error}") from error
