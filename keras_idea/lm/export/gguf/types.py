"""In which type a tensor is written to a GGUF file, and its bytes."""

import dataclasses
import importlib

import numpy as np

from keras_idea.errors import ExportRefused
from keras_idea.lm.export.gguf.layouts import Tensor

#: Values of a block, which share a scale.
BLOCK = 32
# Of a type in blocks: bytes of a block, and its largest value over its scale.
_BLOCKS = {"Q4_0": (18, 8), "Q5_0": (22, 16), "Q8_0": (34, 127)}
# What is Q8_0 where other matrices have fewer bits.
_ENDS = ("token_embd.weight", "output.weight")
# What llama.cpp keeps in float32, besides vectors: how names end.
_ALWAYS_FLOAT32 = ("position_embd.weight", "ffn_gate_inp.weight", ".bias")
#: `dtype` of an export -> type of the matrices, `general.file_type`.
DTYPES = {
    "float32": ("F32", 0),
    "float16": ("F16", 1),
    "q8_0": ("Q8_0", 7),
    "q5_0": ("Q5_0", 8),
    "q4_0": ("Q4_0", 2),
}


@dataclasses.dataclass(frozen=True)
class Written:
    """How a tensor is written: its type is "F32", "F16", or one in blocks."""

    tensor: Tensor
    type: str

    @property
    def nbytes(self) -> int:
        """int, bytes in the file."""
        size = int(np.prod(self.tensor.shape))
        if self.type in _BLOCKS:
            return size // BLOCK * _BLOCKS[self.type][0]
        return size * (4 if self.type == "F32" else 2)

    def values(self) -> np.ndarray:
        """Array of float32, float16, or of the bytes of blocks.

        A block of 32 values has a float16 scale and 32 integers of 8, 5 or 4 bits.

        Raises:
            ExportRefused: if a value is not finite in this type.
        """
        values = self.tensor.values()
        dtype = "float32" if self.type == "F32" else "float16"
        _, steps = _BLOCKS.get(self.type, (0, 1))
        limit = float(np.finfo(dtype).max) * steps  # a scale is a float16
        # Written so that NaN is refused.
        if not np.abs(values).max(initial=0.0) <= limit:
            raise ExportRefused(
                f"{self.tensor.name} has a value that {self.type} cannot hold: "
                f"{np.abs(values).max():.3g}. Export float32, if it is a number at all."
            )
        if self.type not in _BLOCKS:
            return values.astype(dtype)
        gguf = importlib.import_module("gguf")
        return gguf.quants.quantize(values, gguf.GGMLQuantizationType[self.type])


def written(tensor: Tensor, dtype: str) -> Written:
    """Chooses a tensor's type.

    Vectors, biases of experts, what chooses among experts, and the table of GPT-2's
    positions are float32 in any case. Rows that are no multiple of 32 are no blocks:
    they are float16, as llama.cpp's own quantizer and converter write them. The table
    of tokens and the last matrix are at least Q8_0: llama.cpp's quantizer, too, keeps
    more bits of them than of other matrices.
    """
    shape = tensor.shape
    if len(shape) == 1 or tensor.name.endswith(_ALWAYS_FLOAT32):
        return Written(tensor, "F32")
    kind = DTYPES[dtype][0]
    if kind in _BLOCKS and shape[-1] % BLOCK:
        kind = "F16"
    elif kind in _BLOCKS and tensor.name in _ENDS:
        kind = "Q8_0"
    return Written(tensor, kind)
