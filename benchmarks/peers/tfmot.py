"""TensorFlow Model Optimization: its wrapped layers in the `fit` of tf-keras."""

import functools

import tensorflow_model_optimization as tfmot  # user
import tf_keras

from benchmarks.peers import child, task
from benchmarks.peers.moments import NAMES, compare

HOW = (
    "prune_low_magnitude around {what}, PolynomialDecay (a cubic) over the pruning "
    "stage, UpdatePruningStep, strip_pruning"
)
EVERY_100 = (
    "; the default frequency: one mask alone, at the stage's last step, as the next "
    "multiple of 100 steps would come after it"
)


class ClockCallback(tf_keras.callbacks.Callback):
    """Tells the clock of each step."""

    def __init__(self, clock, width):
        super().__init__()
        self.clock, self.width = clock, width

    def on_epoch_begin(self, epoch, logs=None):
        """Forgets the sum of the last epoch's losses."""
        self.sum = 0.0

    def on_train_batch_end(self, batch, logs=None):
        """Notes the step's own loss; the logs hold the mean of all so far."""
        total = logs["loss"] * (batch + 1)
        self.clock.step(total - self.sum, self.width)
        self.sum = total


def make_model(shape, width):
    """The task's model, of plain layers, with its initial weights."""
    contexts = tf_keras.Input((task.CONTEXT,), dtype="int32")
    x = tf_keras.layers.Embedding(
        task.VOCABULARY, shape.dim // task.CONTEXT, name="embedding"
    )(contexts)
    x = tf_keras.layers.Reshape((shape.dim,))(x)
    for index in range(task.BLOCKS):
        x = add_ffn(shape, width, index, x)
    dense = functools.partial(tf_keras.layers.Dense, use_bias=False)
    model = tf_keras.Model(contexts, dense(task.VOCABULARY, name="head")(x))
    weights = task.initial_weights(shape, width)
    model.get_layer("embedding").set_weights([weights["embedding"]])
    model.get_layer("head").set_weights([weights["head"]])
    for index, block in enumerate(weights["blocks"]):
        for name in ("gate", "up"):
            model.get_layer(f"{name}_{index}").set_weights([block[name].T])
        model.get_layer(f"down_{index}").set_weights([block["down"]])
    return model


def add_ffn(shape, width, index, x):
    """`x + down(silu(gate(norm(x))) * up(norm(x)))`."""
    dense = functools.partial(tf_keras.layers.Dense, use_bias=False)
    n = tf_keras.layers.LayerNormalization(epsilon=task.NORM_EPSILON)(x)
    gate = dense(width, name=f"gate_{index}")(n)
    hidden = tf_keras.layers.Multiply()(
        [
            tf_keras.layers.Activation("swish")(gate),
            dense(width, name=f"up_{index}")(n),
        ]
    )
    return tf_keras.layers.Add()([x, dense(shape.dim, name=f"down_{index}")(hidden)])


def compile_model(model):
    """Compiles with the task's AdamW."""
    optimizer = tf_keras.optimizers.AdamW(
        task.LEARNING_RATE, task.WEIGHT_DECAY, *task.BETAS, task.EPSILON
    )
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)


def fit(model, batches, callbacks):
    """One epoch over the batches, silent."""
    contexts, targets = (part.reshape(-1, *part.shape[2:]) for part in batches)
    model.fit(
        contexts,
        targets,
        batch_size=task.TOKENS,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )


def train_plain(shape, width, clock):
    """The plain script: the whole run of a model whose width stays."""
    model = make_model(shape, width)
    compile_model(model)
    fit(model, task.make_batches(shape.steps), [ClockCallback(clock, width)])


def make_prunable(shape, model, names, frequency, block_size):
    """The model with pruning wrappers around the layers of these names."""
    # user
    frequency = min(frequency, shape.end_step)
    schedule = tfmot.sparsity.keras.PolynomialDecay(
        initial_sparsity=0.0,
        final_sparsity=shape.ratio,
        begin_step=min(shape.enlarge_steps, shape.end_step - frequency),
        end_step=shape.end_step,
        frequency=frequency,
    )

    def wrap(layer):
        if layer.name.split("_")[0] not in names:
            return layer
        return tfmot.sparsity.keras.prune_low_magnitude(
            layer, schedule, block_size=block_size
        )

    return tf_keras.models.clone_model(model, clone_function=wrap)
    # end


def train(names, frequency, by_neuron, shape, clock):
    """The whole run."""
    model = make_model(shape, shape.hidden_dim)
    block_size = (shape.dim, 1) if by_neuron else (1, 1)
    model = make_prunable(shape, model, names, frequency, block_size)
    compile_model(model)
    callbacks = [
        tfmot.sparsity.keras.UpdatePruningStep(),  # user
        ClockCallback(clock, shape.hidden_dim),
    ]
    fit(model, task.make_batches(shape.steps), callbacks)
    model = tfmot.sparsity.keras.strip_pruning(model)  # user
    return weights_of(model)


def weights_of(model):
    """Each FFN's weights as NumPy arrays, one row a neuron."""
    found = [
        {name: weights_by_name(model)[f"{name}_{index}"] for name in NAMES}
        for index in range(task.BLOCKS)
    ]
    return [oriented(weights) for weights in found]


def weights_by_name(model):
    """The kernels of the model's layers, wrapped or not, by the layer's own name."""
    return {
        weight.name.split("/")[-2]: weight.numpy()
        for weight in model.trainable_weights
        if "kernel" in weight.name
    }


def oriented(kernels):
    """Kernels of gate, up and down, with one row a neuron."""
    return {"gate": kernels["gate"].T, "up": kernels["up"].T, "down": kernels["down"]}


def state_of(model):
    """Weights and moments, as `moments.compare` takes them."""
    slots = {value.name: value.numpy() for value in model.optimizer.variables}

    def slot(kind, index):
        found = {
            name: next(
                value
                for key, value in slots.items()
                if f"/{kind}/" in key and f"{name}_{index}/" in key
            )
            for name in NAMES
        }
        return oriented(found)

    states = []
    for index, weights in enumerate(weights_of(model)):
        first, second = slot("m", index), slot("v", index)
        held = {name: [first[name], second[name]] for name in NAMES}
        states.append({"weights": weights, "moments": held})
    return states


def moments(names, frequency, by_neuron, shape):
    """The step in which the first mask falls, looked at before and after."""
    model = make_model(shape, shape.hidden_dim)
    block_size = (shape.dim, 1) if by_neuron else (1, 1)
    model = make_prunable(shape, model, names, 1, block_size)
    compile_model(model)
    contexts, targets = task.make_batches(shape.end_step)
    states = []
    cuts = [0, shape.enlarge_steps, shape.end_step - 2, shape.end_step]
    for begin, end in zip(cuts, cuts[1:], strict=False):
        callbacks = [tfmot.sparsity.keras.UpdatePruningStep()]
        fit(model, (contexts[begin:end], targets[begin:end]), callbacks)
        states.append(state_of(model))
    return compare(*states)


def way(what, names, frequency, by_neuron, more=""):
    """One row."""
    arguments = (names, frequency, by_neuron)
    return child.Way(
        HOW.format(what=what) + more,
        functools.partial(train, *arguments),
        functools.partial(moments, *arguments),
    )


WAYS = {
    "weights, every step": way("gate, up and down", NAMES, 1, False),
    "weights, every 100 steps": way("gate, up, down", NAMES, 100, False, EVERY_100),
    "neurons, every step": way(
        "gate alone, in blocks of a neuron's weights", ("gate",), 1, True
    ),
}

if __name__ == "__main__":
    packages = ["tensorflow", "tf_keras", "tensorflow-model-optimization", "numpy"]
    child.main(__file__, train_plain, WAYS, packages)
