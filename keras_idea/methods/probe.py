"""What hidden activations pass through while a method measures or learns."""

import keras


class Overwritten(keras.layers.Layer):
    """A layer, never called, whose variables the backward pass gives their values.

    Its forward pass assigns nothing: it goes through a custom gradient that returns
    the new values as the variables' gradients.
    """

    def add_overwritten(self, name, shape):
        """A float32 variable of zeros that is overwritten with its gradient."""
        return self.add_weight(
            name=name,
            shape=shape,
            initializer="zeros",
            dtype="float32",
            autocast=False,
            overwrite_with_gradient=True,
        )

    def get_build_config(self):
        """None: whoever holds it builds it, in a name scope of its own."""


class Probe(Overwritten):
    """What a method hangs in the way of one FFN's hidden activations."""

    def tap(self, activations, steps, training=None, mask=None):
        """What the down projection gets to read.

        Args:
            activations: tensor `(..., F)`.
            steps: float scalar tensor, the optimizer steps taken.
            training: bool or None, Keras's flag of the forward pass; None too is
                training.
            mask: tensor `(...)` or None, Keras's mask of the tokens.

        Returns:
            Tensor like `activations`.
        """
        raise NotImplementedError
