"""Prunes in several processes with PyTorch's DistributedDataParallel.

    torchrun --nproc-per-node=2 examples/prune_ddp.py

Each process reads its own half of every batch. PyTorch averages the gradients over the
processes. The Keras optimizer, in which the neurons are scored, takes the same step in
each process. The loop calls the callback itself, as in
docs/guides/your_own_training_loop.py. When the model becomes narrow, it has new
parameters, so the loop wraps it again.
"""

import gc
import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import keras_idea as ki

STEPS, BATCH = 24, 16


def main() -> tuple[list[float], list[int]]:
    """Trains; returns the loss of each step and the active neurons."""
    dist.init_process_group("gloo")
    results = train()
    # A wrapper that is freed waits for a thread of gloo, which may wait for Python's
    # lock. So free all wrappers before the group.
    gc.collect()
    dist.destroy_process_group()
    return results


def train() -> tuple[list[float], list[int]]:
    """One process's part of the training."""
    rank, count = dist.get_rank(), dist.get_world_size()
    keras.utils.set_random_seed(0)  # the same weights in all processes
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS, BATCH, 5, 8)).astype("float32")
    y = rng.normal(size=(STEPS, BATCH, 5, 8)).astype("float32")

    inputs = keras.Input((5, 8))
    ffn = ki.PrunableGatedFFN(32, name="ffn")
    model = keras.Model(inputs, keras.layers.Dense(8)(inputs + ffn(inputs)))
    model.compile(keras.optimizers.AdamW(0.01), "mse")
    model.optimizer.build(model.trainable_variables)

    prune = ki.IdeaPruneCallback(target_dim=8, begin_step=4, prune_steps=10)
    prune.set_model(model)
    prune.set_params({"epochs": 1, "steps": STEPS})
    prune.on_train_begin()
    prune.on_epoch_begin(0)
    wrapped, width, losses = None, None, []
    for step in range(STEPS):
        prune.on_train_batch_begin(step)
        if ffn.hidden_dim != width:
            wrapped, width = DistributedDataParallel(model), ffn.hidden_dim
        mine = slice(rank * BATCH // count, (rank + 1) * BATCH // count)
        model.zero_grad()
        loss = ((wrapped(x[step, mine]) - torch.from_numpy(y[step, mine])) ** 2).mean()
        loss.backward()
        variables = model.trainable_variables
        with torch.no_grad():
            model.optimizer.apply([v.value.grad for v in variables], variables)
        dist.all_reduce(total := loss.detach().clone())
        losses.append(float(total) / count)
        prune.on_train_batch_end(step)
    prune.on_epoch_end(0)
    prune.on_train_end()
    if rank == 0:
        print(
            f"{width} neurons are left of 32; loss {losses[0]:.4f} to {losses[-1]:.4f}"
        )
    return losses, ki.find_ffns(model)[0].original_indices.tolist()


if __name__ == "__main__":
    main()
