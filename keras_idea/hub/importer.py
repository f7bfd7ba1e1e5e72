"""KerasHub's importers of Hugging Face weights, run forwards and backwards.

An importer asks a loader for tensors by name, turns them, and assigns them. Forwards
the loader reads files. Backwards each entry of each tensor is its number: the importer
carries the numbers to the variables, which tells where each value belongs.
"""

import contextlib
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from keras_idea._keras.hub_importers import converter_of
from keras_idea._keras.models import instead
from keras_idea.errors import LoadRefused

# KerasHub's importers demand a pooler, which many checkpoints do not have.
_POOLERS = ("pooler.dense.weight", "pooler.dense.bias", "pooler.weight", "pooler.bias")
# KerasHub normalizes queries and keys with it, whatever the config says.
_QK_EPSILON = {"qwen3": 1e-5, "qwen3_moe": 1e-6}


class _Exact(np.ndarray):
    """An array that `astype` leaves alone: Mistral's importer rounds to float16."""

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        return self


class _Loader:
    """Stands in for KerasHub's `SafetensorLoader`."""

    safetensor_config = None
    get_tensor: Callable[[str], np.ndarray]

    def __init__(self, names: Mapping[str, Any], preset: str = "") -> None:
        self.names, self.prefix, self.preset = names, "", preset

    def find(self, name: str) -> str | None:
        """The tensor that an importer means.

        Importers name some tensors without the prefix that a model with a head puts
        before them, and some with the prefix that a bare model does not have.
        """
        bare = name.partition(".")[2]
        for full in (name, self.prefix + name, bare):
            if full in self.names:
                return full
        found = next((full for full in self.names if full.endswith(f".{name}")), None)
        if found is not None:
            self.prefix = found.removesuffix(name)
        return found

    def port_weight(
        self, keras_variable: Any, hf_weight_key: str, hook_fn: Any = None
    ) -> None:
        """Assigns a tensor, turned by a function of it and of the variable's shape."""
        value = self.get_tensor(hf_weight_key)
        if hook_fn:
            value = hook_fn(value, list(keras_variable.shape))
        keras_variable.assign(value)


class Files(_Loader):
    """Reads the tensors of a folder's safetensors files, as float32."""

    def __init__(self, folder: pathlib.Path) -> None:
        import safetensors

        self._open = contextlib.ExitStack()
        places: dict[str, Any] = {}
        for file in weight_files(folder):
            try:
                opened = self._open.enter_context(safetensors.safe_open(file, "pt"))
            except Exception as error:  # of safetensors, or of the system
                raise LoadRefused(
                    f"{file.name!r} is not a whole safetensors file: {error}. "
                    "Download it again."
                ) from error
            places |= dict.fromkeys(opened.keys(), opened)
        super().__init__(places, str(folder))
        self.width = 0

    def __enter__(self) -> "Files":
        return self

    def __exit__(self, *args: object) -> None:
        self._open.close()

    def get_tensor(self, name: str) -> np.ndarray:
        """A tensor, float32; zeros for a pooler that the files do not have."""
        full = self.find(name)
        if full is not None:
            value = self.names[full].get_tensor(full)
            return value.float().numpy().view(_Exact)
        if name.endswith(_POOLERS) and self.width:
            square = name.endswith("weight")
            return np.zeros((self.width,) * (2 if square else 1), "float32")
        raise KeyError(f"No tensor {name!r} in its weights")


class _Numbers(_Loader):
    """Every entry of every tensor is its number."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__(shapes)
        self.first: dict[str, int] = {}
        self.size = 0
        for name, shape in shapes.items():
            self.first[name], self.size = self.size, self.size + math.prod(shape)

    def get_tensor(self, name: str) -> np.ndarray:
        full = self.find(name)
        if full is None:
            raise KeyError(f"transformers has no tensor {name!r}")
        first, shape = self.first[full], self.names[full]
        numbers = np.arange(first, first + math.prod(shape))
        return numbers.reshape(shape).view(_Exact)


def weight_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The safetensors files of a folder, not those of Mistral's own format.

    Raises:
        LoadRefused: if there are none.
    """
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise LoadRefused(
            f"No weights in {str(folder)!r}: there is no model*.safetensors file. Load "
            "it with transformers, and save it with `model.save_pretrained(folder)`."
        )
    return files


def read_weights(
    backbone: keras.Model, hf_config: Mapping[str, Any], folder: pathlib.Path
) -> None:
    """Assigns a backbone the weights of a Hugging Face folder."""
    convert = converter_of(hf_config["model_type"]).convert_weights
    with Files(folder) as files:
        files.width = hf_config.get("hidden_size", 0)
        convert(backbone, files, hf_config)
        if hf_config["model_type"] == "roberta":
            # KerasHub's has no segments, so the first one goes to every position.
            segment = files.get_tensor(
                "roberta.embeddings.token_type_embeddings.weight"
            )
            for variable in backbone.variables:
                if variable.path.endswith("position_embedding/embeddings"):
                    variable.assign_add(np.asarray(segment[0]))
    for variable, factor, offset in scales(backbone, hf_config):
        variable.assign(factor * (variable.value + offset) - offset)


def written_weights(
    model: keras.Model,
    backbone: keras.Model,
    hf_config: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
) -> tuple[dict[str, np.ndarray], set[str]]:
    """The tensors of a model as transformers names and shapes them.

    Args:
        model: the backbone, or a classifier around it, whose head is written too.
        backbone: its KerasHub backbone.
        hf_config: dict, the config of the folder to be written.
        shapes: dict, name of a tensor -> its shape.

    Returns:
        dict, name -> float32 array, and the names that KerasHub never asked for, whose
        values are zeros.
    """
    converter = converter_of(hf_config["model_type"])
    loader = _Numbers(shapes)
    flat = np.full(loader.size, np.nan, "float32")
    changed = {id(v): (f, o) for v, f, o in scales(backbone, hf_config)}
    done = set()

    def record(variable: Any, value: Any, *args: Any, **kwargs: Any) -> None:
        # What is no number is computed of others: embeddings that are interpolated.
        numbers = np.asarray(value) if isinstance(value, np.ndarray) else None
        if numbers is None or numbers.dtype.kind != "i" or id(variable) in done:
            return
        done.add(id(variable))
        values = keras.ops.convert_to_numpy(keras.ops.cast(variable.value, "float32"))
        factor, offset = changed.get(id(variable), (1.0, 0.0))
        if factor != 1.0:
            values = (values + offset) / factor - offset
        flat[numbers.ravel()] = values.ravel()

    owner: Any = next(c for c in keras.Variable.__mro__ if "assign" in vars(c))
    with instead(owner, "assign", record):
        converter.convert_weights(backbone, loader, hf_config)
        if model is not backbone and hasattr(converter, "convert_head"):
            loader.prefix = ""
            converter.convert_head(model, loader, hf_config)
    tensors = {
        name: flat[first : first + math.prod(shapes[name])].reshape(shapes[name])
        for name, first in loader.first.items()
    }
    untouched = {n for n, values in tensors.items() if np.isnan(values).all()}
    # Positions of the padding, and what KerasHub's model does not have.
    flat[np.isnan(flat)] = 0.0
    return tensors, untouched


def scales(
    backbone: keras.Model, hf_config: Mapping[str, Any]
) -> list[tuple[keras.Variable, float, float]]:
    r"""Variables that KerasHub computes with differently: (variable, factor, offset).

    KerasHub's is `factor * (theirs + offset) - offset`. Its fixed epsilon $\epsilon'$
    acts as the checkpoint's own, for $c x / \sqrt{c^2 m + \epsilon'} = x / \sqrt{m +
    \epsilon}$ with $c = \sqrt{\epsilon' / \epsilon}$. Its division of the queries by
    the root of a head's size $d$ acts as that by $\sqrt s$, for $c = \sqrt{d / s}$.
    """
    kind, paths = hf_config["model_type"], {v.path: v for v in backbone.variables}
    queries = [path for path in paths if path.endswith("attention/query/kernel")]
    if kind in _QK_EPSILON:
        factor = math.sqrt(_QK_EPSILON[kind] / hf_config["rms_norm_eps"])
        keys = [path.replace("query/kernel", "key/kernel") for path in queries]
        return [(paths[path], factor, 0.0) for path in (*queries, *keys)]
    if kind not in ("gemma2", "gemma3_text"):
        return []
    factor = math.sqrt(hf_config["head_dim"] / hf_config["query_pre_attn_scalar"])
    found = []
    for path in queries if factor != 1.0 else ():
        # The norm behind the queries, which multiplies by 1 + w, or their kernel.
        norm = paths.get(path.replace("query/kernel", "query_norm/scale"))
        kernel = norm is None
        found.append((paths[path] if kernel else norm, factor, 0.0 if kernel else 1.0))
    return found
