"""JaxPruner: a wrapped optax optimizer in a plain, compiled JAX training loop."""

import functools

import jax
import jax.numpy as jnp
import jaxpruner  # user
import numpy as np
import optax

from benchmarks.peers import child, task
from benchmarks.peers.moments import NAMES, compare

HOW = (
    "MagnitudePruning of {what} around optax.adamw, PolynomialSchedule (a cubic) with "
    "a new mask every step of the pruning stage"
)


def make_parameters(shape, width):
    """The task's initial weights, as Flax would name and lay them out."""
    weights = task.initial_weights(shape, width)
    parameters = {
        "embedding": {"table": weights["embedding"]},
        "head": {"kernel": weights["head"]},
    }
    for index, block in enumerate(weights["blocks"]):
        parameters[f"block_{index}"] = {
            "norm": {
                "scale": np.ones(shape.dim, "float32"),
                "bias": np.zeros(shape.dim, "float32"),
            },
            "gate": {"kernel": block["gate"].T},
            "up": {"kernel": block["up"].T},
            "down": {"kernel": block["down"]},
        }
    return jax.tree.map(jnp.asarray, parameters)


def apply_ffn(parameters, x):
    """`x + down(silu(gate(norm(x))) * up(norm(x)))`."""
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.mean(centred**2, -1, keepdims=True)
    norm = parameters["norm"]
    n = centred * jax.lax.rsqrt(variance + task.NORM_EPSILON)
    n = n * norm["scale"] + norm["bias"]
    gate, up, down = (parameters[name]["kernel"] for name in NAMES)
    return x + (jax.nn.silu(n @ gate) * (n @ up)) @ down


def loss_of(parameters, contexts, targets):
    """Mean cross entropy of a batch."""
    x = parameters["embedding"]["table"][contexts].reshape(len(contexts), -1)
    for index in range(task.BLOCKS):
        x = apply_ffn(parameters[f"block_{index}"], x)
    logits = x @ parameters["head"]["kernel"]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return losses.mean()


def make_optimizer():
    """The task's AdamW."""
    return optax.adamw(
        task.LEARNING_RATE, *task.BETAS, task.EPSILON, weight_decay=task.WEIGHT_DECAY
    )


def train_plain(shape, width, clock):
    """The plain script: the whole run of a model whose width stays."""
    parameters, optimizer = make_parameters(shape, width), make_optimizer()
    state = optimizer.init(parameters)

    @jax.jit
    def step(parameters, state, contexts, targets):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, contexts, targets)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    for contexts, targets in zip(*task.make_batches(shape.steps), strict=True):
        parameters, state, loss = step(parameters, state, contexts, targets)
        clock.step(loss, width)


def make_pruner(shape, names, sparsity_type):
    """The pruner of the kernels of these names."""
    # user
    return jaxpruner.MagnitudePruning(
        sparsity_distribution_fn=functools.partial(
            jaxpruner.sparsity_distributions.uniform,
            sparsity=shape.ratio,
            filter_fn=lambda key, _: key[-2] in names,
        ),
        scheduler=jaxpruner.sparsity_schedules.PolynomialSchedule(
            update_freq=1,
            update_start_step=shape.enlarge_steps,
            update_end_step=shape.end_step,
        ),
        sparsity_type=sparsity_type,
    )
    # end


def make_step(pruner, optimizer):
    """The compiled train step with a pruner in it."""

    @jax.jit
    def step(parameters, state, contexts, targets):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, contexts, targets)
        updates, state = optimizer.update(gradients, state, parameters)
        parameters = optax.apply_updates(parameters, updates)
        parameters = pruner.post_gradient_update(parameters, state)  # user
        return parameters, state, loss

    return step


def train(names, sparsity_type, shape, clock):
    """The whole run."""
    parameters = make_parameters(shape, shape.hidden_dim)
    pruner = make_pruner(shape, names, sparsity_type)
    optimizer = pruner.wrap_optax(make_optimizer())  # user
    state, step = optimizer.init(parameters), make_step(pruner, optimizer)
    for contexts, targets in zip(*task.make_batches(shape.steps), strict=True):
        parameters, state, loss = step(parameters, state, contexts, targets)
        clock.step(loss, shape.hidden_dim)
    return [block["weights"] for block in state_of(parameters, state)]


def state_of(parameters, state):
    """Weights and moments, as `moments.compare` takes them."""
    adam = state.inner_state[0]
    trees, states = (parameters, adam.mu, adam.nu), []
    for index in range(task.BLOCKS):
        weights, first, second = (_by_neuron(tree[f"block_{index}"]) for tree in trees)
        held = {name: [first[name], second[name]] for name in NAMES}
        states.append({"weights": weights, "moments": held})
    return states


def _by_neuron(block):
    """The kernels of an FFN as NumPy arrays, one row a neuron."""
    kernels = {name: np.asarray(block[name]["kernel"]) for name in NAMES}
    return kernels | {name: kernels[name].T for name in ("gate", "up")}


def moments(names, sparsity_type, shape):
    """The first steps that prune, looked at before and after."""
    parameters = make_parameters(shape, shape.hidden_dim)
    pruner = make_pruner(shape, names, sparsity_type)
    optimizer = pruner.wrap_optax(make_optimizer())
    state, step = optimizer.init(parameters), make_step(pruner, optimizer)
    states = []
    for contexts, targets in zip(*task.make_batches(shape.end_step), strict=True):
        parameters, state, _ = step(parameters, state, contexts, targets)
        states.append(state_of(parameters, state))
    return compare(states[shape.enlarge_steps - 1], states[-2], states[-1])


def way(what, names, sparsity_type):
    """One row."""
    arguments = (names, sparsity_type)
    return child.Way(
        HOW.format(what=what),
        functools.partial(train, *arguments),
        functools.partial(moments, *arguments),
    )


CHANNEL = jaxpruner.sparsity_types.Channel(axis=-1)
WAYS = {
    "weights": way(
        "single weights of gate, up and down",
        NAMES,
        jaxpruner.sparsity_types.Unstructured(),
    ),
    "channels of gate and up": way(
        "the output channels of gate and up (each its own neurons; of down, the same "
        "axis would be the model's features)",
        ("gate", "up"),
        CHANNEL,
    ),
    "channels of gate": way("the output channels of gate alone", ("gate",), CHANNEL),
}

if __name__ == "__main__":
    packages = ["jax", "optax", "flax", "jaxpruner", "numpy"]
    child.main(__file__, train_plain, WAYS, packages)
