"""In which type a tensor is written to a GGUF file, and its bytes."""

import dataclasses
import importlib

import numpy as np

from keras_idea.errors import ExportRefused
from keras_idea.export.gguf.layouts import Tensor

#: Values of a block of Q8_0: they share a scale.
BLOCK = 32
# What llama.cpp keeps in float32, besides vectors: how names end.
_ALWAYS_FLOAT32 = ("position_embd.weight", "ffn_gate_inp.weight", ".bias")
#: `dtype` of an export -> type of the matrices, `general.file_type`.
DTYPES = {"float32": ("F32", 0), "float16": ("F16", 1), "q8_0": ("Q8_0", 7)}


@dataclasses.dataclass(frozen=True)
class Written:
    """How a tensor is written: its type is "F32", "F16" or "Q8_0"."""

    tensor: Tensor
    type: str

    @property
    def nbytes(self) -> int:
        """int, bytes in the file."""
        size = int(np.prod(self.tensor.shape))
        return {"F32": 4 * size, "F16": 2 * size, "Q8_0": size // BLOCK * 34}[self.type]

    def values(self) -> np.ndarray:
        """Array of float32, float16, or of the bytes of Q8_0.

        Of 32 values Q8_0 has a float16 scale and 32 int8.

        Raises:
            ExportRefused: if a value is not finite in this type.
        """
        values = self.tensor.values()
        dtype = "float32" if self.type == "F32" else "float16"
        # A scale of Q8_0 is a float16.
        limit = float(np.finfo(dtype).max) * (127 if self.type == "Q8_0" else 1)
        # Written so that NaN is refused.
        if not np.abs(values).max(initial=0.0) <= limit:
            raise ExportRefused(
                f"{self.tensor.name} has a value that {self.type} cannot hold: "
                f"{np.abs(values).max():.3g}. Export float32, if it is a number at all."
            )
        if self.type != "Q8_0":
            return values.astype(dtype)
        gguf = importlib.import_module("gguf")
        return gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)


def written(tensor: Tensor, dtype: str) -> Written:
    """Chooses a tensor's type.

    Vectors, biases of experts, what chooses among experts, and the table of GPT-2's
    positions are float32 in any case. Rows that are no multiple of 32 cannot be Q8_0:
    they are float16, as llama.cpp's own quantizer and converter write them.
    """
    shape = tensor.shape
    if len(shape) == 1 or tensor.name.endswith(_ALWAYS_FLOAT32):
        return Written(tensor, "F32")
    kind = DTYPES[dtype][0]
    if kind == "Q8_0" and shape[-1] % BLOCK:
        kind = "F16"
    return Written(tensor, kind)
