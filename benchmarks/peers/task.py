"""The task that every peer is given: shapes, text, batches and initial weights.

NumPy alone is imported, because each peer reads this in an environment of its own.

The model: the embeddings of the 8 previous bytes, side by side, are `x`; then two
blocks `x + down(silu(gate(n)) * up(n))`, `n` the layer-normalized `x`, and a linear
head of 256 logits. Nothing but the norm has a bias.
"""

import dataclasses
import pathlib
import sysconfig

import numpy as np

CONTEXT = 8
VOCABULARY = 256
BLOCKS = 2
TOKENS = 2048
SEED = 0

LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.01
BETAS = (0.9, 0.999)
EPSILON = 1e-7
NORM_EPSILON = 1e-5

TEXT_BYTES = 4_000_000


@dataclasses.dataclass(frozen=True)
class Shape:
    """One size of the model, and how long each stage of a run is.

    Args:
        dim: int, features of the residual stream.
        hidden_dim: int, neurons of each FFN at first.
        target_dim: int, neurons of each FFN at last.
        enlarge_steps: int, steps at full width.
        prune_steps: int, steps in which the width falls.
        recover_steps: int, steps at the target width.
        steps_per_turn: int, steps before the next model has its turn; divides the
            three numbers of steps.
        rounds: int, how often the whole run is made, for the times alone.
    """

    dim: int
    hidden_dim: int
    target_dim: int
    enlarge_steps: int = 60
    prune_steps: int = 60
    recover_steps: int = 60
    steps_per_turn: int = 5
    rounds: int = 1

    @property
    def steps(self):
        """int, steps of the whole run."""
        return self.enlarge_steps + self.prune_steps + self.recover_steps

    @property
    def end_step(self):
        """int, the step after which the width is the target's."""
        return self.enlarge_steps + self.prune_steps

    @property
    def ratio(self):
        """float, the part of the neurons to remove."""
        return 1 - self.target_dim / self.hidden_dim

    def with_turns(self, turns):
        """The same shape with stages of so many turns each; None: as it is."""
        if turns is None:
            return self
        steps = turns * self.steps_per_turn
        return dataclasses.replace(
            self, enlarge_steps=steps, prune_steps=steps, recover_steps=steps
        )

    def __str__(self):
        """One line, as the tables print it."""
        return (
            f"d={self.dim}, {BLOCKS} FFNs, {self.hidden_dim} -> {self.target_dim}, "
            f"{TOKENS} tokens per step, {self.enlarge_steps} + {self.prune_steps} + "
            f"{self.recover_steps} steps"
        )


SHAPES = {
    "small": Shape(64, 512, 192, rounds=2),
    "large": Shape(256, 2048, 768, 30, 30, 30, steps_per_turn=3),
}


def find_text():
    """uint8 array: source files of Python's standard library, in order of name."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    text = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    return np.frombuffer(text[:TEXT_BYTES], dtype="uint8")


def make_batches(steps):
    """The batches of a run, the same for everyone.

    Args:
        steps: int, how many.

    Returns:
        Two int32 arrays: contexts `(steps, TOKENS, CONTEXT)` and the byte that follows
        each, `(steps, TOKENS)`.
    """
    text = find_text()
    generator = np.random.default_rng(SEED)
    ends = generator.integers(CONTEXT, len(text), size=(steps, TOKENS))
    contexts = text[ends[..., None] + np.arange(-CONTEXT, 0)]
    return contexts.astype("int32"), text[ends].astype("int32")


def initial_weights(shape, width):
    """What every model of this width starts with.

    Args:
        shape: `Shape`.
        width: int, neurons of each FFN.

    Returns:
        dict: "embedding" `(VOCABULARY, dim / CONTEXT)`, "head" `(dim, VOCABULARY)` and
        "blocks", a list of dicts of "gate", "up" and "down", each `(width, dim)`: one
        row a neuron. The norms start with ones and zeros.
    """
    generator = np.random.default_rng(SEED)

    def normal(rows, columns, fan_in):
        values = generator.normal(size=(rows, columns)) / np.sqrt(fan_in)
        return values.astype("float32")

    dim = shape.dim
    return {
        "embedding": normal(VOCABULARY, dim // CONTEXT, 1),
        "head": normal(dim, VOCABULARY, dim),
        "blocks": [
            {
                "gate": normal(width, dim, dim),
                "up": normal(width, dim, dim),
                "down": normal(width, dim, width),
            }
            for _ in range(BLOCKS)
        ],
    }
