"""Statistics of activations over given samples, with the weights as they are."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_idea.errors import ArgumentError
from keras_idea.functional.activation import Aggregation, activation_sums
from keras_idea.keras_private.layers import without_remat
from keras_idea.typing import Tensor

#: Arrays, a dict of them, or batches of either.
Samples: TypeAlias = Tensor | dict[str, Tensor] | Iterable[Any]


def activation_statistics(
    model: keras.Model,
    ffns: Sequence[Any],
    data: Samples,
    num_samples: int,
    aggregation: Aggregation,
    padding_mask: Tensor | None = None,
    batch_size: int = 32,
) -> list[tuple[np.ndarray, float]]:
    """Runs a model in evaluation mode over samples and adds up what its FFNs do.

    Args:
        model: a built Keras model; it and its variables stay as they are.
        ffns: list of the handles of its FFNs.
        data: array, dict of arrays, or iterable of batches, see `Activation`.
        num_samples: int, samples to use, at most.
        aggregation: "paper" or "minitron", see `activation_importance`.
        padding_mask: array `(samples, tokens)` or None.
        batch_size: int, samples run at once where `data` are arrays.

    Returns:
        list of (sums `(F,)`, samples) for each FFN, in float64.

    Raises:
        ValueError: if an FFN is called more than once in a forward pass, or it is not
            known which of several padding masks is its own.
    """
    captures = [_Capture(ffn, aggregation) for ffn in ffns]
    runner = _Runner(model, captures)
    totals = None
    with contextlib.ExitStack() as changes:
        for capture in captures:
            changes.callback(capture.ffn.set_probe, capture.ffn.state.probe)
            capture.ffn.set_probe(capture)
        # A rematerialized call would not let the statistics out.
        changes.enter_context(without_remat(model))
        for batch in _batches(data, padding_mask, batch_size, num_samples):
            found = runner.predict_on_batch(batch)
            found = [(sums.astype("float64"), float(n)) for sums, n in found]
            if totals is None:
                totals = found
            else:
                pairs = zip(totals, found, strict=True)
                totals = [(a + b, n + more) for (a, n), (b, more) in pairs]
    return totals or [(np.zeros(ffn.hidden_dim), 0.0) for ffn in ffns]


class _Capture:
    """A probe that keeps the statistics of the forward pass it is traced in."""

    built, variables = True, ()

    def __init__(self, ffn: Any, aggregation: Aggregation) -> None:
        self.ffn, self.aggregation = ffn, aggregation
        self.padding_masks: dict[str, Tensor] = {}
        self.found: tuple[Tensor, Tensor] | None = None

    def tap(
        self,
        activations: Tensor,
        training: bool = True,
        mask: Tensor | None = None,
    ) -> Tensor:
        if self.found is not None:
            raise ArgumentError(
                f"{self.ffn.name} is called more than once in a forward pass, so there "
                "are no activations that are its own. Use method='sensitivity', which "
                "adds the gradients of all calls up."
            )
        padding_mask = _mask_of(self.ffn, self.padding_masks)
        mask = mask if padding_mask is None else padding_mask
        self.found = activation_sums(activations, mask, self.aggregation)
        return activations


class _Runner(keras.Model):
    """Runs the model, and returns what the captures found."""

    def __init__(self, model: keras.Model, captures: list[_Capture]) -> None:
        super().__init__(name="calibration")
        self.model, self.captures = model, captures
        self.built = True

    def call(self, batch: dict[str, Any]) -> list[tuple[Tensor, Tensor]]:
        masks = dict(batch["masks"])
        for capture in self.captures:
            capture.padding_masks, capture.found = masks, None
        self.model(batch["inputs"], training=False)
        uncalled = [c.ffn.name for c in self.captures if c.found is None]
        if uncalled:
            raise ArgumentError(
                f"The calibration data do not reach {', '.join(uncalled)}: the model's "
                "forward pass does not call it. Use method='sensitivity', or leave it "
                "out with `groups`."
            )
        return [capture.found for capture in self.captures]


def _batches(
    data: Any, padding_mask: Tensor | None, batch_size: int, num_samples: int
) -> Iterator[dict[str, Any]]:
    """Yields dicts of the inputs and of the padding masks, cut to the number."""
    if hasattr(data, "shape") or isinstance(data, dict):
        data = _slices({"inputs": data, "mask": padding_mask}, batch_size)
    else:
        data = ({"inputs": item, "mask": None} for item in data)
    left = num_samples
    for batch in data:
        inputs, mask = batch["inputs"], batch["mask"]
        if isinstance(inputs, (tuple, list)):
            inputs = inputs[0]  # and not the targets
        masks = {} if mask is None else {"padding_mask": mask}
        if isinstance(inputs, dict) and not masks:
            masks = {k: v for k, v in inputs.items() if k.endswith("padding_mask")}
        batch = {"inputs": inputs, "masks": masks}
        size = len(keras.tree.flatten(inputs)[0])
        yield batch if size <= left else _cut(batch, 0, left)
        left -= size
        if left <= 0:
            return


def _slices(arrays: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    total = len(keras.tree.flatten(arrays["inputs"])[0])
    for start in range(0, total, size):
        yield _cut(arrays, start, start + size)


def _cut(batch: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    return keras.tree.map_structure(
        lambda leaf: None if leaf is None else leaf[start:stop], batch
    )


def _mask_of(ffn: Any, masks: dict[str, Tensor]) -> Tensor | None:
    """The padding mask of the tokens that reach an FFN, or None."""
    if len(masks) < 2:
        return next(iter(masks.values()), None)
    # An encoder's and a decoder's: "encoder_padding_mask", "encoder_layer_0/mlp".
    mine = [m for n, m in masks.items() if n.partition("_")[0] in ffn.layer.path]
    if len(mine) != 1:
        raise ArgumentError(
            f"The data have the padding masks {', '.join(masks)}, and the path of "
            f"{ffn.name} does not tell which is its own. Use method='sensitivity', or "
            "'activation' without data."
        )
    return mine[0]
