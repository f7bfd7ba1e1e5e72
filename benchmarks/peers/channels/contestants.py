"""The contestants: each brings a trained network to a quarter of its channels."""

import copy

import keras
import numpy as np
import torch
import torch_pruning as tp
from torch.nn.functional import cross_entropy

import keras_idea as ki
from benchmarks.peers.channels import nets, task
from benchmarks.peers.channels.training import compiled, fit

PRUNES = 10  # of Torch-Pruning, in the pruning stage


def tensors(x):
    """Images as PyTorch has them."""
    return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))


# --- Keras --------------------------------------------------------------------


def copied(model, stages):
    """A copy with an optimizer of its own."""
    copy_of = keras.models.clone_model(model)
    copy_of.set_weights(model.get_weights())
    return compiled(copy_of, stages.rate, stages.after)


def in_fit(method):
    """keras_idea in one `fit`."""

    def train(name, wide, batches, stages):
        begin = stages.prune // 5
        prune = ki.IdeaPruneCallback(
            targets={"channels": task.SHARE},
            begin_step=begin,
            prune_steps=stages.prune - begin,
            method=method,
        )
        return nets.as_torch(name, fit(copied(wide, stages), batches, [prune]))

    return train


def one_shot(refit):
    """keras_idea's `shrink`, then a plain `fit`."""

    def train(name, wide, batches, stages):
        (x, _), _ = task.images()  # without their labels
        targets = {"channels": task.SHARE}
        narrow = ki.shrink(wide, targets, x, method="magnitude", refit=refit)
        narrow = compiled(narrow, stages.rate, stages.after)
        return nets.as_torch(name, fit(narrow, batches))

    return train


# --- PyTorch ------------------------------------------------------------------


def optimizer_of(net, rate):
    """The task's AdamW."""
    return torch.optim.AdamW(
        net.parameters(),
        lr=rate,
        betas=task.BETAS,
        eps=task.EPSILON,
        weight_decay=task.WEIGHT_DECAY,
    )


def torch_loop(net, batches, rate, prune=lambda step: False):
    """A plain loop; after a `prune` that did something, with a new optimizer."""
    optimizer = optimizer_of(net.train(), rate)
    for step, (x, y) in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = task.cosine(rate, step, len(batches))
        optimizer.zero_grad()
        cross_entropy(net(tensors(x)), torch.from_numpy(y)).backward()
        if prune(step):  # with the gradients of this batch
            optimizer = optimizer_of(net, rate)
        else:
            optimizer.step()
    return net.eval()


def torch_pruning(importance, prunes):
    """Torch-Pruning, in so many prunes over the pruning stage."""

    def train(name, wide, batches, stages):
        net = nets.as_torch(name, wide)
        every = stages.prune // prunes
        pruner = tp.pruner.MagnitudePruner(
            net,
            tensors(batches[0][0][:2]),
            importance=importance(),
            pruning_ratio=1.0 - task.SHARE,
            iterative_steps=prunes,
            ignored_layers=[net.parts["head"]],
        )

        def prune(step):
            due = step < stages.prune and step % every == 0
            if due:
                pruner.step()
            return due

        return torch_loop(net, batches, stages.rate, prune)

    return train


def fasterai(name, wide, batches, stages):
    """The callback of fasterai in the first of two fits of fastai's Learner."""
    from benchmarks.peers.channels.fasterai_ways import train

    return train(nets.as_torch(name, wide), batches, stages)


def plain(name, wide, batches, stages):
    """Not pruned: the same steps more."""
    return torch_loop(nets.as_torch(name, wide), batches, stages.rate)


def random_narrow(name, wide, batches, stages):
    """The baseline: a narrow network from random weights, with the steps of both."""
    widths = {k: round(task.SHARE * n) for k, n in nets.TorchNet(name).widths().items()}
    batches = task.batches(len(batches), stages.wide) + batches
    return torch_loop(nets.TorchNet(name, widths), batches, stages.wide_rate)


_AVERAGED = ki.methods.Sensitivity(ema_decay=0.9)
CONTESTANTS = {
    "not pruned": plain,
    "keras-idea, Sensitivity(ema_decay=0.9)": in_fit(_AVERAGED),
    "keras-idea, magnitude": in_fit("magnitude"),
    "keras-idea, shrink by magnitude": one_shot(refit=False),
    "keras-idea, shrink by magnitude, refit": one_shot(refit=True),
    "Torch-Pruning, magnitude, 10 prunes": torch_pruning(
        tp.importance.GroupMagnitudeImportance, PRUNES
    ),
    "Torch-Pruning, Taylor, 10 prunes": torch_pruning(
        tp.importance.GroupTaylorImportance, PRUNES
    ),
    "Torch-Pruning, magnitude, 1 prune": torch_pruning(
        tp.importance.GroupMagnitudeImportance, 1
    ),
    "fasterai, large_final": fasterai,
    "narrow from random weights": random_narrow,
}


def predictions(net, x):
    """Logits of a PyTorch network."""
    with torch.no_grad():
        return copy.deepcopy(net).eval()(tensors(x)).numpy()
