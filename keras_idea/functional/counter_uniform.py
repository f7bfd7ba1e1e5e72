"""Random numbers that are a pure function of a key and a counter.

A recomputed forward pass, a resumed run and another backend draw the same; a
`SeedGenerator` would have to be assigned in the forward pass, and Keras's seeded
draws differ by backend (on torch they also wait for the device).
"""

from keras import ops

from keras_idea._typing import Tensor


def counter_uniform(key: int, counter: int | Tensor, size: int) -> Tensor:
    r"""Draws uniform numbers in [0, 1), equal everywhere for equal arguments.

    With `h` a mixing function of 32-bit integers (Wellons' lowbias32),

    $$u_i = \lfloor h(h(a + i) + h(a \oplus c)) / 2^8 \rfloor / 2^{24}, \quad
    a = h(key + h(counter)), \quad c = \mathtt{5BD1E995}_{16}$$

    Args:
        key: int in [0, 2^32). The stream.
        counter: int or integer scalar tensor. The number of the draw in the stream.
        size: int. How many numbers to draw.

    Returns:
        Tensor `(size,)`, float32.

    Example:
    >>> u = keras.ops.convert_to_numpy(counter_uniform(key=7, counter=0, size=3))
    >>> np.round(u.astype("float64"), 4).tolist()
    [0.288, 0.1627, 0.158]
    """
    start = _mix(_mix(ops.cast(counter, "int32")) + _signed(key))
    salt = _mix(ops.bitwise_xor(start, _signed(0x5BD1E995)))
    bits = _mix(_mix(ops.arange(size, dtype="int32") + start) + salt)
    top = ops.bitwise_and(ops.right_shift(bits, 8), 0xFFFFFF)
    return ops.cast(top, "float32") / float(2**24)


def _mix(x: Tensor) -> Tensor:
    # int32 products wrap around on every backend; a shift of a negative number
    # drags its sign along, so the bits that came with it are masked.
    x = ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 16), 0xFFFF))
    x = x * _signed(0x7FEB352D)
    x = ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 15), 0x1FFFF))
    x = x * _signed(0x846CA68B)
    return ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 16), 0xFFFF))


def _signed(number: int) -> int:
    """The int32 of the same bits."""
    return (number + 2**31) % 2**32 - 2**31
