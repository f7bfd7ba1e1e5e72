"""What hidden activations pass through while a method measures or learns."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import keras
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.typing import Tensor

Tensors: TypeAlias = Sequence[Tensor]


class Overwritten(keras.layers.Layer):
    """A layer, never called, whose variables the backward pass gives their values.

    Its forward pass assigns nothing: it goes through a custom gradient that returns
    the new values as the variables' gradients.
    """

    #: What the constructor takes beside the name, each an attribute.
    arguments: ClassVar[tuple[str, ...]]

    def add_overwritten(self, name: str, shape: tuple[int, ...]) -> keras.Variable:
        """A float32 variable of zeros that is overwritten with its gradient."""
        return self.add_weight(
            name=name,
            shape=shape,
            initializer="zeros",
            dtype="float32",
            autocast=False,
            overwrite_with_gradient=True,
        )

    def get_config(self) -> dict[str, Any]:
        """Dict of the constructor's arguments."""
        return {name: getattr(self, name) for name in (*self.arguments, "name")}

    def get_build_config(self) -> None:
        """Returns None: the owning layer builds it in its own name scope."""

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Takes its variables from a file, unless that is of a version with others."""
        own: dict[str, Any] = {}
        self.save_own_variables(own)
        if len(store.keys()) != len(own):
            raise ArgumentError(
                f"The file holds {len(store.keys())} variables of '{self.path}', which "
                f"has {len(own)}: it was saved while a pruning "
                "method measured, by another version of keras_idea. Load it there, end "
                "the method with `callback.on_train_end()`, and save it again."
            )
        super().load_own_variables(store)


#: Function of the gradient from above, of the activations, of the values of variables
#: and of constants, that returns the new values.
Update: TypeAlias = Callable[[Tensor, Tensor, Tensors, Tensors], Tensors]


def overwriting(
    activations: Tensor,
    values: Tensors,
    constants: Tensors,
    update: Update,
    factor: Callable[[Tensors, Tensors], Tensor] | None = None,
) -> Tensor:
    """The activations, times a factor (None: 1); backward, variables are overwritten.

    Their `values` are those of variables that `add_overwritten` made.
    """

    @ops.custom_gradient
    def tap(
        activations: Tensor, *given: Tensor
    ) -> tuple[Tensor, Callable[..., tuple[Tensor, ...]]]:
        values_now, constants_now = given[: len(values)], given[len(values) :]
        scale = None
        if factor is not None:
            scale = ops.cast(factor(values_now, constants_now), activations.dtype)

        def grad(*args: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, ...]:
            upstream = args[0] if upstream is None else upstream
            updated = update(upstream, activations, values_now, constants_now)
            below = upstream if scale is None else upstream * scale
            return below, *updated, *map(ops.zeros_like, constants_now)

        return activations if scale is None else activations * scale, grad

    return tap(activations, *values, *constants)


class Probe(Overwritten):
    """What a method puts in the way of one FFN's hidden activations.

    Subclass it if your method measures or changes hidden activations. A probe counts
    the optimizer steps in a variable that changes as its other variables do. If its
    count differs from the optimizer's, its other variables are wrong too.
    """

    def build(self) -> None:
        """Makes the variable that counts steps; subclasses add their own."""
        self._steps = self.add_overwritten("steps", ())
        self.built = True

    @property
    def steps(self) -> float:
        """float, the optimizer steps counted."""
        return float(keras.ops.convert_to_numpy(self._steps))

    def start_at(self, step: int) -> None:
        """Sets the count of optimizer steps."""
        self._steps.assign(float(step))

    def tap(
        self, activations: Tensor, training: bool = True, mask: Tensor | None = None
    ) -> Tensor:
        """Returns what the down projection reads.

        Args:
            activations: tensor `(..., F)`. The hidden activations.
            training: bool. Whether this forward pass trains the model. Defaults to
                True.
            mask: tensor `(...)` or None. Keras's mask of the tokens. Defaults to None.

        Returns:
            Tensor like `activations`.
        """
        raise NotImplementedError

    def scale(self) -> Tensor | None:
        """Factor `(F,)` for the activations in evaluation; None: nothing changes."""
        return None
