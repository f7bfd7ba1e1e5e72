"""What all FFNs that can be pruned have in common."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import keras
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.functional.by_numbers import why_not_each_number
from keras_idea.groups.state import NeuronState, Scoring
from keras_idea.keras_private.call_context import mask_of
from keras_idea.layers.ffn_layer import FFNLayer
from keras_idea.layers.plain_ffns import PlainFFN
from keras_idea.typing import Tensor


class Prunable(FFNLayer):
    """Base class of `PrunableGatedFFN` and `PrunableFFN`: an FFN with a pruning state.

    Attributes:
        plain_class: type. The class that `compact` returns.
        state: `NeuronState`. The scores and the mask.
    """

    plain_class: ClassVar[type[PlainFFN]]
    state: NeuronState

    def _set_arguments(self, hidden_dim: int, *arguments: Any) -> None:
        super()._set_arguments(hidden_dim, *arguments)
        why_not = why_not_each_number(self.activation, (2, self.hidden_dim))
        if why_not is not None:
            given = getattr(self.activation, "__name__", self.activation)
            raise ArgumentError(
                "`activation` must act on each neuron alone, or a narrow layer would "
                f"compute something else. Received: activation={given}, which "
                f"{why_not}. Use another activation, or {self.plain_class.__name__}, "
                "which is not pruned then."
            )

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the variables for inputs `(..., input_dim)`."""
        super().build(input_shape)
        self.state.build(self.hidden_dim, self.up_kernel.shape[0], len(self.matrices))

    def call(self, inputs: Tensor) -> Tensor:
        """Returns the output, of the shape of `inputs`."""
        # Not as an argument, which the narrow layer in its place would be given too.
        hidden = functools.partial(self.state.hidden, mask=mask_of(inputs))
        return self._feed_forward(inputs, self.state.masked, hidden)

    @property
    def mask(self) -> keras.Variable:
        """Variable `(hidden_dim,)`, float32 in {0, 1}: 1 marks the active neurons."""
        self._check_built("mask")
        return self.state.mask

    @property
    def scores(self) -> keras.Variable:
        """Variable, float32: the averaged scores of its M matrices.

        `(M, hidden_dim)`; with row_reduce="max", `(M, hidden_dim, input_dim)`.
        """
        self._check_built("scores")
        return self.state.scores

    @property
    def width(self) -> int:
        """int, the number of active neurons."""
        return len(self.state.kept_neurons()) if self.built else self.hidden_dim

    def importance(self) -> Tensor:
        """Computes the importance of each neuron from the current scores.

        Returns:
            Tensor `(hidden_dim,)`, float32, at least zero.
        """
        self._check_built("importance()")
        return self.state.importance()

    def compact(self) -> PlainFFN:
        """Makes a new plain FFN of the active neurons, with the same outputs.

        Returns:
            A built `GatedFFN` (or `UngatedFFN`) with `hidden_dim == width`. This layer
            is not changed.

        Raises:
            ValueError: If the layer is not built, or a pruning method is still
                measuring it.
        """
        self._check_built("compact()")
        if self.state.probe is not None:
            raise ArgumentError(
                f"Layer '{self.name}' still has the probe of a pruning method, which "
                "changes what it computes. End it with `callback.on_train_end()`, "
                "before compact()."
            )
        kept = self.state.kept_neurons()
        narrow = self.plain(len(kept))
        narrow.build((None, self.up_kernel.shape[0]))
        cuts = {id(cut.variable): cut for cut in self.cuts()}
        weights = [*self._kernels(), *self._biases()]
        for weight, target in zip(weights, narrow.variables, strict=True):
            cut = cuts.get(id(weight))
            target.assign(ops.copy(weight.value) if cut is None else cut.take(kept))
        return narrow

    def plain(self, hidden_dim: int) -> PlainFFN:
        """Makes an unbuilt plain FFN of the same arguments except `hidden_dim`."""
        # Not from a config, which cannot hold a lambda.
        config = {**keras.layers.Layer.get_config(self), **self._arguments()}
        return self.plain_class(**{**config, "hidden_dim": hidden_dim})

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Prunable":
        """Makes a layer from a config, without the scoring arguments of older ones."""
        of_method = {field.name for field in dataclasses.fields(Scoring)}
        return cls(**{k: v for k, v in config.items() if k not in of_method})

    def get_build_config(self) -> dict[str, Any] | None:
        """Returns what `build_from_config` needs: input shape and pruning state."""
        config = super().get_build_config()
        probe = self.state.probe
        if probe is not None:
            probe = keras.saving.serialize_keras_object(probe)
        state = {"full_dim": self.state.full_dim, "probe": probe}
        scoring = dataclasses.asdict(self.state.scoring)
        return config and {**config, **state, "scoring": scoring}

    def build_from_config(self, config: dict[str, Any] | None) -> None:
        """Builds the layer as it was saved, before or after narrowing."""
        if config:
            self.state.scoring = Scoring(**config.get("scoring", {}))
            self.build(config["input_shape"])
            self.state.full_dim = config.get("full_dim")
            if config.get("probe"):
                probe = keras.saving.deserialize_keras_object(config["probe"])
                self.state.set_probe(probe)

    def _check_built(self, what: str) -> None:
        if not self.built:
            raise ArgumentError(
                f"`{what}` of layer '{self.name}' needs the layer's variables, and "
                "it is not built. Call the layer or its model on data first."
            )
