"""Changing the shape of a Keras variable, in place."""


def resize(variable, value):
    """Gives a variable a value of another shape, in place.

    The object stays, so everything that refers to it goes on doing so; the
    layout over devices is kept. `Variable._initialize` is Keras's one way to do
    it on every backend; there is no public one.

    Args:
        variable: a Keras variable.
        value: tensor of the same rank and dtype.
    """
    variable._initialize(value)
    variable._shape = variable._validate_shape(value.shape)
