"""PQuantML: its compressed layers and its generic training function, on PyTorch."""

import functools

import pquant  # user
from torch import nn

from benchmarks.peers import child
from benchmarks.peers.moments import compare
from benchmarks.peers.torch_plain import (
    make_batches,
    make_model,
    make_optimizer,
    state_of,
    train_plain,
    train_step,
    weights_of,
)

HOW = (
    "pdp_config, structured, no quantization, layers of {names} replaced; train_model, "
    "the ratio grows linearly with the epochs, one a turn"
)


def make_config(shape):
    """PQuantML's own PDP recipe, of whole rows, without quantization."""
    epochs = shape.prune_steps // shape.steps_per_turn
    # user
    config = pquant.pdp_config()
    config.pruning_parameters.structured_pruning = True
    config.pruning_parameters.sparsity = shape.ratio
    config.pruning_parameters.epsilon = 1 / epochs
    config.quantization_parameters.enable_quantization = False
    config.training_parameters.pretraining_epochs = epochs
    config.training_parameters.epochs = epochs
    config.training_parameters.fine_tuning_epochs = epochs
    return config
    # end


def replace_layers(model, names, config):
    """Puts PQuantML's layers where the FFNs' layers of these names were."""
    # user
    for block in model.blocks:
        for name in names:
            layer = nn.ModuleList([block.get_submodule(name)])
            setattr(block, name, pquant.add_compression_layers(layer, config)[0])
    # end


def train(names, shape, clock):
    """The whole run."""
    model, config = make_model(shape, shape.hidden_dim), make_config(shape)
    replace_layers(model, names, config)
    train_in_stages(shape, model, config, make_optimizer(model), clock)
    pquant.apply_final_compression(model)  # user
    return weights_of(model)


def train_in_stages(shape, model, config, optimizer, clock):
    """All stages of the recipe."""
    batches = iter(make_batches(shape.steps))

    def train_epoch(model, epoch):
        for _ in range(shape.steps_per_turn):
            loss = train_step(model, optimizer, *next(batches))
            clock.step(loss, shape.hidden_dim)

    # user
    def validate(model, epoch):
        pass

    pquant.train_model(model, config, train_epoch, validate)
    # end


class StateClock:
    """Keeps the states of model and optimizer after each step."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.states = model, optimizer, []

    def step(self, loss, width):
        """Keeps the present state."""
        self.states.append(trained_state(self.model, self.optimizer))


def trained_state(model, optimizer):
    """The state, of the parameters that are trained, which a mask is applied to."""
    trained = nn.Module()
    trained.blocks = [nn.Module() for _ in model.blocks]
    for copy, block in zip(trained.blocks, model.blocks, strict=True):
        for name in ("gate", "up", "down"):
            layer, copied = block.get_submodule(name), nn.Module()
            copied.weight = getattr(layer, "_weight", layer.weight)
            setattr(copy, name, copied)
    return state_of(trained, optimizer)


def moments(names, shape):
    """The steps that prune, looked at before and after."""
    model, config = make_model(shape, shape.hidden_dim), make_config(shape)
    replace_layers(model, names, config)
    optimizer = make_optimizer(model)
    clock = StateClock(model, optimizer)
    train_in_stages(shape, model, config, optimizer, clock)
    states = clock.states
    return compare(states[shape.enlarge_steps - 1], states[-2], states[-1])


WAYS = {
    label: child.Way(
        HOW.format(names=label),
        functools.partial(train, names),
        functools.partial(moments, names),
    )
    for label, names in (("gate and up", ("gate", "up")), ("gate", ("gate",)))
}

if __name__ == "__main__":
    child.main(__file__, train_plain, WAYS, ["torch", "pquant-ml", "numpy"])
