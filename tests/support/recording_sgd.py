"""SGD that remembers the gradients that its last step was made with."""

import keras


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
