"""The plain model and training loop of PyTorch, which its peers share."""

import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers import task


class GatedFFN(nn.Module):
    """`x + down(silu(gate(norm(x))) * up(norm(x)))`."""

    def __init__(self, dim, width):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=task.NORM_EPSILON)
        self.gate = nn.Linear(dim, width, bias=False)
        self.up = nn.Linear(dim, width, bias=False)
        self.down = nn.Linear(width, dim, bias=False)

    def forward(self, x):
        """Adds the FFN's output to its input."""
        n = self.norm(x)
        return x + self.down(functional.silu(self.gate(n)) * self.up(n))


class ByteModel(nn.Module):
    """The task's model: contexts of 8 bytes to 256 logits."""

    def __init__(self, shape, width):
        super().__init__()
        self.embedding = nn.Embedding(task.VOCABULARY, shape.dim // task.CONTEXT)
        self.blocks = nn.ModuleList(
            GatedFFN(shape.dim, width) for _ in range(task.BLOCKS)
        )
        self.head = nn.Linear(shape.dim, task.VOCABULARY, bias=False)

    def forward(self, contexts):
        """Logits `(batch, VOCABULARY)` of the next byte."""
        x = self.embedding(contexts).flatten(1)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make_model(shape, width):
    """A `ByteModel` with the task's initial weights."""
    torch.set_num_threads(1)
    model, weights = ByteModel(shape, width), task.initial_weights(shape, width)
    with torch.no_grad():
        model.embedding.weight.copy_(torch.from_numpy(weights["embedding"]))
        model.head.weight.copy_(torch.from_numpy(weights["head"].T))
        for block, values in zip(model.blocks, weights["blocks"], strict=True):
            block.gate.weight.copy_(torch.from_numpy(values["gate"]))
            block.up.weight.copy_(torch.from_numpy(values["up"]))
            block.down.weight.copy_(torch.from_numpy(values["down"].T))
    return model


def make_optimizer(model):
    """The task's AdamW for the model's present parameters."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=task.LEARNING_RATE,
        betas=task.BETAS,
        eps=task.EPSILON,
        weight_decay=task.WEIGHT_DECAY,
    )


def make_batches(steps):
    """The task's batches, as pairs of int64 tensors."""
    pairs = zip(*task.make_batches(steps), strict=True)
    return [(torch.from_numpy(x).long(), torch.from_numpy(y).long()) for x, y in pairs]


def train_step(model, optimizer, x, y):
    """One step of the plain loop; returns the loss."""
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def train_plain(shape, width, clock):
    """The plain script: the whole run of a model whose width stays."""
    model = make_model(shape, width)
    optimizer = make_optimizer(model)
    for x, y in make_batches(shape.steps):
        clock.step(train_step(model, optimizer, x, y), width)


def width_of(model):
    """Neurons of an FFN's arrays, the mean over the FFNs."""
    return sum(len(block.gate.weight) for block in model.blocks) / len(model.blocks)


def weights_of(model):
    """Each FFN's weights as NumPy arrays, one row a neuron."""
    return [
        {
            "gate": _copy(block.gate.weight),
            "up": _copy(block.up.weight),
            "down": _copy(block.down.weight.T),
        }
        for block in model.blocks
    ]


def state_of(model, optimizer, names=("exp_avg", "exp_avg_sq")):
    """Weights and moments, as `moments.compare` takes them.

    Args:
        model: a `ByteModel`.
        optimizer: one whose `state` maps parameters to dicts.
        names: the keys of the two moments in these.
    """

    def moments(layer, turned):
        held = optimizer.state.get(layer.weight)
        if not held:
            return None
        return [_copy(held[name].T if turned else held[name]) for name in names]

    return [
        {
            "weights": weights,
            "moments": {
                "gate": moments(block.gate, False),
                "up": moments(block.up, False),
                "down": moments(block.down, True),
            },
        }
        for block, weights in zip(model.blocks, weights_of(model), strict=True)
    ]


def _copy(tensor):
    return tensor.detach().clone().contiguous().numpy()
