"""Torch-Pruning: a plain PyTorch loop with pruning steps in between."""

import functools

import torch_pruning as tp  # user
from torch.nn.functional import cross_entropy

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
    width_of,
)

STEPS_PER_PRUNE = 5
HOW = (
    "magnitude importance over gate, up and down; pruner.step() every 5 steps of the "
    "pruning stage, linear, and a new AdamW after it"
)


def make_pruner(shape, model, contexts):
    """The pruner of all FFNs' neurons, which has done nothing yet."""
    # user
    return tp.pruner.GroupNormPruner(
        model,
        contexts,
        importance=tp.importance.GroupMagnitudeImportance(),
        pruning_ratio=shape.ratio,
        iterative_steps=shape.prune_steps // STEPS_PER_PRUNE,
        ignored_layers=[model.head, *(block.down for block in model.blocks)],
    )
    # end


def train(regularize, shape, clock):
    """The whole run; with `regularize`, sparse training until the last prune."""
    model = make_model(shape, shape.hidden_dim)
    optimizer = make_optimizer(model)
    batches = make_batches(shape.steps)
    pruner = make_pruner(shape, model, batches[0][0])
    for step, (x, y) in enumerate(batches):
        # user
        since = step - shape.enlarge_steps
        if 0 <= since < shape.prune_steps and since % STEPS_PER_PRUNE == 0:
            pruner.step()
            optimizer = make_optimizer(model)
            # end
            # user: regularize
            pruner.update_regularizer()
        # end
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        if regularize and step < shape.end_step - STEPS_PER_PRUNE:
            pruner.regularize(model)  # user: regularize
        optimizer.step()
        clock.step(loss.item(), width_of(model))
    return weights_of(model)


def moments(shape):
    """One prune in mid-run, with the old optimizer and with a new one."""
    result = {}
    for renew in (False, True):
        model = make_model(shape, shape.hidden_dim)
        optimizer = make_optimizer(model)
        batches = make_batches(shape.steps)
        pruner = make_pruner(shape, model, batches[0][0])
        for x, y in batches[:5]:
            train_step(model, optimizer, x, y)
        before = state_of(model, optimizer)
        pruner.step()
        optimizer = make_optimizer(model) if renew else optimizer
        after = state_of(model, optimizer)
        for x, y in batches[5:8]:
            train_step(model, optimizer, x, y)
        result[renew] = compare(before, after, state_of(model, optimizer))
    return {**result[True], "with the old optimizer": result[False]}


WAYS = {
    "prune": child.Way(HOW, functools.partial(train, False), moments),
    "regularize": child.Way(
        f"{HOW}; pruner.regularize(model) each step before (sparse training)",
        functools.partial(train, True),
        moments,
    ),
}

if __name__ == "__main__":
    child.main(__file__, train_plain, WAYS, ["torch", "torch-pruning", "numpy"])
