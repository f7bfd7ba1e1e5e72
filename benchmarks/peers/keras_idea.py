"""This library, on the backend of the variable KERAS_BACKEND: one callback in `fit`."""

import functools
import os

import keras

import keras_idea as ki  # user
from benchmarks import proof
from benchmarks.peers import child, task
from benchmarks.peers.moments import compare

HOW = (
    "PrunableGatedFFN and IdeaPruneCallback(compact={compact!r}) in one fit: the "
    "paper's importance and cubic, a new mask every step"
)
# The activated matrix is `up` here, as in the paper, and "gate" in the task.
KERNELS = {"gate": "up_kernel", "up": "gate_kernel", "down": "down_kernel"}


class ClockCallback(keras.callbacks.Callback):
    """Tells the clock of each step."""

    def __init__(self, clock, width):
        super().__init__()
        self.clock, self.width, self.sum = clock, width, 0.0

    def on_epoch_begin(self, epoch, logs=None):
        """Finds the layers whose width may change."""
        layers = self.model.layers
        self.ffns = [x for x in layers if isinstance(x, ki.PrunableGatedFFN)]

    def on_train_batch_end(self, batch, logs=None):
        """Notes the step's own loss; the logs hold the mean of all so far."""
        total = logs["loss"] * (batch + 1)
        widths = [ffn.hidden_dim for ffn in self.ffns] or [self.width]
        self.clock.step(total - self.sum, sum(widths) / len(widths))
        self.sum = total


class StateCallback(keras.callbacks.Callback):
    """Keeps the state of model and optimizer at the end of each epoch."""

    def __init__(self):
        super().__init__()
        self.states = []

    def on_epoch_end(self, epoch, logs=None):
        """Before or after the model is narrowed, as it stands in the list."""
        self.states.append(state_of(self.model))


def make_model(shape, width, add_ffn):
    """The task's model; `add_ffn(shape, width, index, n)` makes an FFN's output."""
    contexts = keras.Input((task.CONTEXT,), dtype="int32")
    x = keras.layers.Embedding(
        task.VOCABULARY, shape.dim // task.CONTEXT, name="embedding"
    )(contexts)
    x = keras.layers.Reshape((shape.dim,))(x)
    for index in range(task.BLOCKS):
        n = keras.layers.LayerNormalization(epsilon=task.NORM_EPSILON)(x)
        x = x + add_ffn(shape, width, index, n)
    head = keras.layers.Dense(task.VOCABULARY, use_bias=False, name="head")
    model = keras.Model(contexts, head(x))
    weights = task.initial_weights(shape, width)
    model.get_layer("embedding").set_weights([weights["embedding"]])
    model.get_layer("head").set_weights([weights["head"]])
    for kernels, values in zip(kernels_of(model), weights["blocks"], strict=True):
        for name, kernel in kernels.items():
            kernel.assign(values[name] if name == "down" else values[name].T)
    return model


def add_plain_ffn(shape, width, index, n):
    """The FFN of Keras's own layers."""
    dense = functools.partial(keras.layers.Dense, use_bias=False)
    gate = dense(width, activation="silu", name=f"gate_{index}")(n)
    up = dense(width, name=f"up_{index}")(n)
    return dense(shape.dim, name=f"down_{index}")(gate * up)


def add_prunable_ffn(shape, width, index, n):
    """The FFN of this library."""
    return ki.PrunableGatedFFN(width, name=f"ffn_{index}")(n)  # user


def kernels_of(model):
    """Each FFN's kernels, of the plain layers or of this library's, by name."""
    if any(isinstance(x, ki.PrunableGatedFFN) for x in model.layers):
        layers = [model.get_layer(f"ffn_{index}") for index in range(task.BLOCKS)]
        return [
            {name: getattr(layer, kernel) for name, kernel in KERNELS.items()}
            for layer in layers
        ]
    return [
        {name: model.get_layer(f"{name}_{index}").kernel for name in KERNELS}
        for index in range(task.BLOCKS)
    ]


def compile_model(model):
    """Compiles with the task's AdamW."""
    optimizer = keras.optimizers.AdamW(
        task.LEARNING_RATE, task.WEIGHT_DECAY, *task.BETAS, task.EPSILON
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)


def fit(model, batches, callbacks, epochs=1):
    """So many epochs over the batches, silent."""
    contexts, targets = (part.reshape(-1, *part.shape[2:]) for part in batches)
    model.fit(
        contexts,
        targets,
        batch_size=task.TOKENS,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )


def one_thread():
    """Keeps PyTorch to one thread; the others read the environment."""
    if keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(1)


def train_plain(shape, width, clock):
    """The plain script: the whole run of a model whose width stays."""
    one_thread()
    model = make_model(shape, width, add_plain_ffn)
    compile_model(model)
    fit(model, task.make_batches(shape.steps), [ClockCallback(clock, width)])


def make_callback(shape, compact):
    """The callback that prunes."""
    # user
    return ki.IdeaPruneCallback(
        target_dim=shape.target_dim,
        begin_step=shape.enlarge_steps,
        prune_steps=shape.prune_steps,
        compact=compact,
    )
    # end


def train(compact, shape, clock):
    """The whole run."""
    one_thread()
    model = make_model(shape, shape.hidden_dim, add_prunable_ffn)
    compile_model(model)
    callbacks = [
        make_callback(shape, compact),  # user
        ClockCallback(clock, shape.hidden_dim),
    ]
    fit(model, task.make_batches(shape.steps), callbacks)
    proof.check_narrow(compact, model, shape.target_dim)
    return [state["weights"] for state in state_of(model)]


def state_of(model):
    """Weights and moments, as `moments.compare` takes them."""
    slots = {slot.path.split("/")[-1]: slot for slot in model.optimizer.variables}
    states = []
    for index, kernels in enumerate(kernels_of(model)):
        held = {
            name: [
                by_neuron(name, slots[f"ffn_{index}_{KERNELS[name]}_{kind}"])
                for kind in ("momentum", "velocity")
            ]
            for name in kernels
        }
        weights = {name: by_neuron(name, kernel) for name, kernel in kernels.items()}
        states.append({"weights": weights, "moments": held})
    return states


def by_neuron(name, variable):
    """A variable as a NumPy array, one row a neuron."""
    values = keras.ops.convert_to_numpy(variable)
    return (values if name == "down" else values.T).copy()


def moments(compact, shape):
    """An epoch at whose end the model is narrowed, looked at before and after."""
    model = make_model(shape, shape.hidden_dim, add_prunable_ffn)
    compile_model(model)
    before, after = StateCallback(), StateCallback()
    callbacks = [before, make_callback(shape, compact), after]
    fit(model, task.make_batches(shape.end_step), callbacks, epochs=2)
    return compare(before.states[0], after.states[0], after.states[1])


WAYS = {
    f"compact={compact}": child.Way(
        HOW.format(compact=compact),
        functools.partial(train, compact),
        functools.partial(moments, compact),
    )
    for compact in ("end", "progressive")
}

if __name__ == "__main__":
    backend = os.environ["KERAS_BACKEND"]
    child.main(__file__, train_plain, WAYS, ["keras", "keras-idea", backend, "numpy"])
