"""The loss of a model without each of its blocks, compiled once."""

from typing import Any

import keras
import numpy as np

from keras_idea.keras_private.layers import without_remat
from keras_idea.keras_private.models import compile_arguments
from keras_idea.shapes.blocks import Blocks, fits, most_important, without
from keras_idea.shapes.samples import check_compiled, check_finite, loss_of


def kept_by_loss(
    model: keras.Model, blocks: Blocks, count: int, data: Any, batch_size: int
) -> list[int]:
    """Takes one block after another out, that without which the loss is smallest.

    Gives the numbers of the `count` that stay, ascending; the model stays as it is.
    Refuses a model without a loss, data without targets, and losses none of which is
    finite.
    """
    check_compiled(model, "blocks_by='loss'")
    kinds, places = blocks.patterns(count)
    most_important(np.zeros(len(kinds)), kinds, places)  # refuses what cannot be
    judged = _Switched(model, blocks)
    arguments = compile_arguments(model)
    judged.compile(loss=arguments["loss"], loss_weights=arguments["loss_weights"])
    kept = list(range(len(blocks)))
    with without_remat(model):
        while len(kept) > count:
            losses = {}
            for block in kept:
                left = [other for other in kept if other != block]
                if fits([kinds[other] for other in left], places):
                    judged.keep(left)
                    losses[block] = loss_of(judged, data, batch_size)
            gone = min(losses, key=losses.__getitem__)
            check_finite(losses[gone], f"'{model.name}' without any one of its blocks")
            kept.remove(gone)
    return kept


class _Switched(keras.Model):
    """A model of which blocks are switched off by numbers, not by another program."""

    def __init__(self, model: keras.Model, blocks: Blocks) -> None:
        super().__init__(name="without_blocks")
        self.model, self.blocks = model, list(blocks.layers)
        if hasattr(model, "output_names"):  # by which losses may be named
            self.output_names = model.output_names
        self.alive = self.add_weight(
            shape=(len(blocks),), initializer="ones", trainable=False, name="alive"
        )
        self.built = True

    def keep(self, blocks: list[int]) -> None:
        """Switches all others off."""
        self.alive.assign(np.isin(np.arange(len(self.blocks)), blocks))

    def call(self, inputs: Any) -> Any:
        places = {id(block): place for place, block in enumerate(self.blocks)}
        alive = self.alive.value

        def lives(block: keras.layers.Layer) -> Any:
            return alive[places[id(block)]] > 0

        with without(self.blocks, lives):
            return self.model(inputs, training=False)
