"""Names of types that Keras has none for."""

from typing import Any, TypeAlias

#: A tensor of the backend in use, or what `keras.ops.convert_to_tensor` takes.
Tensor: TypeAlias = Any
