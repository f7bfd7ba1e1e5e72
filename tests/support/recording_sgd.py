"""SGD that remembers the gradients that its last step was made with; who reads it."""

import keras

import keras_idea as ki
from tests.support.helpers import to_numpy


class RecordingSGD(keras.optimizers.SGD):
    """The gradients are variables of it, as moments are: compiled steps fill them."""

    def build(self, variables):
        super().build(variables)
        if not getattr(self, "seen", None):
            self.seen = [
                self.add_variable_from_reference(v, name="seen") for v in variables
            ]

    def update_step(self, gradient, variable, learning_rate):
        seen = self.seen[self._get_variable_index(variable)]
        self.assign(seen, keras.ops.convert_to_tensor(gradient, seen.dtype))
        super().update_step(gradient, variable, learning_rate)


class StepRecord(keras.callbacks.Callback):
    """Weights and gradients of each step with `RecordingSGD`, and what handles say."""

    def __init__(self, kind="neurons"):
        super().__init__()
        self.kind = kind

    def on_train_begin(self, logs=None):
        self.weights, self.gradients, self.seen = [self._weights()], [], []

    def on_train_batch_end(self, batch, logs=None):
        model = self.model  # on jax this syncs the variables
        self.weights.append(self._weights())
        self.gradients.append([to_numpy(v) for v in model.optimizer.seen])
        groups = ki.find_groups(model, [self.kind])
        self.seen.append([(to_numpy(g.scores), to_numpy(g.mask)) for g in groups])

    def _weights(self):
        return [to_numpy(v) for v in self.model.trainable_variables]
