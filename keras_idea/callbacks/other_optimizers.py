"""The optimizers that a model's own train step uses besides the one it is compiled with.

A GAN has one for its generator and one for its discriminator. Pruning is part of the
steps of `model.optimizer` alone.
"""

from collections.abc import Sequence

import keras

from keras_idea.errors import PruningStopped
from keras_idea.finding.find import FFN
from keras_idea.keras_private.optimizer_parts import parts
from keras_idea.keras_private.optimizer_variables import (
    apply_count,
    as_int,
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
        for name, optimizer, before in self._counts:
            if as_int(apply_count(optimizer)) == before:
                continue
            theirs = set(map(id, trained_variables(optimizer)))
            trained = [f for f in ffns if theirs.intersection(map(id, f.kernels))]
            if trained:
                names = [ffn.name for ffn in trained]
                raise PruningStopped(
                    f"The optimizer `{name}` of model '{self._model}' trains "
                    f"{', '.join(names)}, and pruning follows the optimizer that the "
                    "model is compiled with. Compile the model with the optimizer that "
                    "trains what is to be pruned, let `train_step` use it as "
                    "`self.optimizer`, and leave out what others train: "
                    f"groups=lambda ffn: ffn.name not in {names!r}."
                )
