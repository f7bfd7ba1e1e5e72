"""The optimizers of a train step besides the one that the model is compiled with.

A GAN has one for its generator and one for its discriminator. Pruning is part of the
steps of `model.optimizer` alone.
"""

from collections.abc import Sequence

import keras

from keras_idea.errors import PruningStopped
from keras_idea.finding.find import FFN
from keras_idea.keras_private.optimizer_variables import (
    apply_count,
    as_int,
    parts,
    trained_variables,
)


class OtherOptimizers:
    """Those that a model has as attributes, and what they have done since."""

    def __init__(self, model: keras.Model) -> None:
        known = {id(model.optimizer), *map(id, parts(model.optimizer))}
        self._model = model.name
        #: bool, whether `check` was called.
        self.checked = False
        self._counts = [
            (name, value, as_int(apply_count(value)))
            for name, value in vars(model).items()
            if isinstance(value, keras.Optimizer) and id(value) not in known
        ]

    def check(self, ffns: Sequence[FFN]) -> None:
        """Stops a run in which one of them trains FFNs that are to be pruned."""
        self.checked = True
        trained = {
            name: names
            for name, optimizer, before in self._counts
            if as_int(apply_count(optimizer)) != before
            and (names := _trained(optimizer, ffns))
        }
        if not trained:
            return
        reasons = [
            f"`{name}` trains {', '.join(names)}" for name, names in trained.items()
        ]
        theirs = list(dict.fromkeys(sum(trained.values(), [])))
        cure = "Leave out what others train: "
        groups = f"groups=lambda ffn: ffn.name not in {theirs}"
        if len(theirs) == len(ffns):
            name, names = next(iter(trained.items()))
            cure = (
                "Compile it with the one that trains what is to be pruned, and name "
                f"that: for example compile(optimizer={name}) and "
            )
            groups = f"groups=lambda ffn: ffn.name in {names}"
        raise PruningStopped(
            f"Model '{self._model}' has several optimizers, and pruning follows only "
            f"the one that it is compiled with: {'; '.join(reasons)}. {cure}{groups}."
        )


def _trained(optimizer: keras.Optimizer, ffns: Sequence[FFN]) -> list[str]:
    """The names of the FFNs whose kernels an optimizer trains."""
    variables = set(map(id, trained_variables(optimizer)))
    return [f.name for f in ffns if variables.intersection(map(id, f.kernels))]
