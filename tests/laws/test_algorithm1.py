"""Every step is Algorithm 1 of IDEA Prune: scores, masks, weights, in NumPy, float64.

Written from the paper; nothing here comes from the package. Where the units of a model
lie is a table, by hand. The gradients are those that the optimizer was given; where a
derivative was written by hand (tests/support/algorithm_reference.py), they are
compared with it.
"""

from typing import NamedTuple

import keras
import numpy as np
import pytest

from tests import cases
from tests.cases import BATCH, BEGIN, FIT
from tests.support import algorithm_reference as reference
from tests.support.helpers import to_numpy

STEPS, TOTAL = 6, 9


class Place(NamedTuple):
    """Where the units of a group lie: in a variable, along an axis, from a place on."""

    path: str
    axis: int
    scored: bool = True
    start: int = 0
    stop: int | None = None


def dense(*names, bias=True):
    """Dense layers that make neurons, and the last one, which reads them."""
    *makers, reader = names
    kernels = [Place(f"{name}/kernel", 1) for name in makers]
    biases = [Place(f"{name}/bias", 0, False) for name in makers if bias]
    return [*kernels, Place(f"{reader}/kernel", 0), *biases]


def gated(name, bias=True):
    return dense(f"{name}_up", f"{name}_gate", f"{name}_down", bias=bias)


def own(name):
    kernels = [Place(f"{name}/{kernel}_kernel", 1) for kernel in ("up", "gate")]
    return [*kernels, Place(f"{name}/down_kernel", 0)]


def llama(block):
    dense = f"transformer_layer_{block}/feedforward"
    kernels = [
        Place(f"{dense}_{name}_dense/kernel", 1) for name in ("gate", "intermediate")
    ]
    return [*kernels, Place(f"{dense}_output_dense/kernel", 0)]


_TWO_GATED = [gated("ffn_0"), gated("ffn_1")]
GROUPS = {
    "mlp": [dense("up", "out")],
    "chain of neurons": [dense("a", "b"), dense("b", "out")],
    "gated": _TWO_GATED,
    "ungated": [dense(f"ffn_{i}_up", f"ffn_{i}_down", bias=False) for i in (0, 1)],
    "batch norm": [
        [
            *dense("up", "out"),
            Place("batch_normalization/gamma", 0, False),
            Place("batch_normalization/beta", 0, False),
        ]
    ],
    "called twice": [dense("up", "down")],
    "two outputs": [
        [*dense("up", "a")[:2], Place("b/kernel", 0), Place("up/bias", 0, False)]
    ],
    "own gated": [own("ffn_0"), own("ffn_1")],
    "largest rows": _TWO_GATED,
    "heads and neurons": [
        dense("grouped_up", "grouped_down"),
        [
            *(Place(f"grouped/{name}/kernel", 1) for name in ("query", "key", "value")),
            Place("grouped/attention_output/kernel", 0),
        ],
    ],
    "a user's attention": [
        [
            *(Place(f"attention/{name}/kernel", 1) for name in "qkv"),
            Place("attention/o/kernel", 0),
            *(Place(f"attention/{name}/bias", 0, False) for name in "qkv"),
        ]
    ],
    # A channel is scored where it is read, which may be at several places.
    "channels": [
        [
            Place("first/kernel", 3, False),
            Place("normal/gamma", 0, False),
            Place("normal/beta", 0, False),
            Place("second/kernel", 2),
            Place("out/kernel", 0, True, 6, 14),
        ],
        [
            Place("second/kernel", 3, False),
            Place("second/bias", 0, False),
            Place("out/kernel", 0, True, 0, 6),
        ],
    ],
    "hub llama3": [llama(0), llama(1)],
}


def of_units(value, place, units):
    """The entries of each unit, as rows: a unit may have several beside one another."""
    part = np.moveaxis(value, place.axis, 0)[place.start : place.stop]
    return part.reshape(units, -1)


def masked(value, place, alive):
    """Zeros where a unit is pruned."""
    value = value.copy()
    part = np.moveaxis(value, place.axis, 0)[place.start : place.stop]
    part[~np.repeat(alive, len(part) // len(alive))] = 0.0
    return value


class Momentum:
    """SGD with momentum."""

    def __init__(self, rate, momentum):
        self.rate, self.momentum, self.velocity = rate, momentum, {}

    def step(self, key, w, g, t):
        self.velocity[key] = self.momentum * self.velocity.get(key, 0) - self.rate * g
        return w + self.velocity[key]


def transcribed(optimizer):
    """The same optimizer in NumPy."""
    config = optimizer.get_config()
    rate = config["learning_rate"]
    if isinstance(optimizer, keras.optimizers.SGD):
        return Momentum(rate, config["momentum"])
    decay = config["weight_decay"] or 0.0
    return reference.AdamW(
        rate, decay, config["epsilon"], config["beta_1"], config["beta_2"]
    )


def recording(optimizer):
    """The same optimizer, which remembers the gradients that it was given."""

    class Recording(getattr(keras.optimizers, type(optimizer).__name__)):
        def build(self, variables):
            super().build(variables)
            if not getattr(self, "seen", None):
                add = self.add_variable_from_reference
                self.seen = [add(v, name="seen") for v in variables]

        def update_step(self, gradient, variable, learning_rate):
            seen = self.seen[self._get_variable_index(variable)]
            gradient = keras.ops.convert_to_tensor(gradient, seen.dtype)
            self.assign(seen, gradient)
            super().update_step(gradient, variable, learning_rate)

    return Recording.from_config(optimizer.get_config())


class Record(keras.callbacks.Callback):
    """Weights, gradients, scores and masks after each step."""

    def __init__(self, case):
        super().__init__()
        self.case = case

    def on_train_begin(self, logs=None):
        self.steps = []
        self.first = [to_numpy(v) for v in self.model.trainable_variables]

    def on_train_batch_end(self, batch, logs=None):
        model = self.model  # on jax this syncs the variables
        groups = self.case.pruned(model)
        self.steps.append(
            (
                [to_numpy(v) for v in model.trainable_variables],
                [to_numpy(v) for v in model.optimizer.seen],
                [(to_numpy(g.scores), to_numpy(g.mask)) for g in groups],
            )
        )


@cases.laws("algorithm")
def test_equals_algorithm_1_in_float64(case):
    model = case.build()
    optimizer = transcribed(model.optimizer)
    model.compile(recording(model.optimizer), model.loss, weighted_metrics=None)
    record = Record(case)
    x, y = case.data(model, TOTAL * BATCH)
    model.fit(x, y, callbacks=[case.callback("off", prune_steps=STEPS), record], **FIT)
    paths = [v.path.removeprefix(f"{model.name}/") for v in model.trainable_variables]
    groups = [
        [p._replace(path=paths.index(p.path)) for p in g] for g in GROUPS[case.name]
    ]
    decay = 0.8 if case.name == "largest rows" else 0.4
    rows, matrices = {"largest rows": (np.max, np.mean)}.get(
        case.name, (np.mean, np.max)
    )
    full = [int(line.split()[1]) for line in case.groups]
    channels = "channels" in case.kinds()
    sums = [[0.0] * sum(p.scored for p in group) for group in groups]
    alive = [np.ones(units, bool) for units in full]
    before = record.first
    for t, (weights, gradients, seen) in enumerate(record.steps, start=1):
        old = [w.astype("float64") for w in before]
        grads = [g.astype("float64") for g in gradients]
        expected = [
            optimizer.step(i, w, g, t)
            for i, (w, g) in enumerate(zip(old, grads, strict=True))
        ]
        for i, group in enumerate(groups):
            scored = [place for place in group if place.scored]
            newest = [of_units(old[p.path] * grads[p.path], p, full[i]) for p in scored]
            if channels:
                newest = [sum(part.sum(1, keepdims=True) for part in newest)]
            sums[i] = [
                (1 - decay) * np.abs(new) + decay * before
                for new, before in zip(newest, sums[i], strict=False)
            ]
            score = np.stack([rows(part, axis=1) for part in sums[i]])
            importance = np.where(alive[i], matrices(score, axis=0), -np.inf)
            width = reference.kept(t, full[i], case.kept[i], BEGIN, STEPS)
            alive[i] = np.isin(
                np.arange(full[i]), np.argsort(-importance, kind="stable")[:width]
            )
            found, mask = seen[i]
            np.testing.assert_array_equal(mask > 0, alive[i], f"step {t}, group {i}")
            if rows is np.max:  # kept by weight, and reduced when it is read
                score = found
            elif channels:
                found = found.max(0, keepdims=True)
            np.testing.assert_allclose(found, score, rtol=1e-4, atol=1e-6 * score.max())
            for place in group:
                expected[place.path] = masked(expected[place.path], place, alive[i])
        for path, value, wanted in zip(paths, weights, expected, strict=True):
            if "embedding" not in path:  # their gradients are sparse on tensorflow
                np.testing.assert_allclose(
                    value, wanted, rtol=1e-5, atol=2e-6, err_msg=path
                )
        before = weights
    assert [part.sum() for part in alive] == list(case.kept)
    if case.name in ("ungated", "own gated"):
        derivatives_agree(case, record, groups, paths.index("head/kernel"), x, y)


def derivatives_agree(case, record, groups, head, x, y):
    """The gradients that the optimizer was given are the loss's, differentiated."""
    before = record.first
    for t, (weights, gradients, _) in enumerate(record.steps):
        rows = slice(t * BATCH, (t + 1) * BATCH)
        parts = [[before[p.path].astype("float64") for p in group] for group in groups]
        parts.append(before[head].astype("float64"))
        made, _ = reference.gradients(parts, x[rows].astype("float64"), y[rows])
        given = [[gradients[p.path] for p in group] for group in groups]
        pairs = zip(
            [*sum(made[:-1], []), made[-1]],
            [*sum(given, []), gradients[head]],
            strict=True,
        )
        for wanted, found in pairs:
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)
        before = weights


def test_every_case_has_its_groups():
    named = {case.name for case in cases.CASES if "algorithm" in case.also}
    assert named == set(GROUPS) and len(named) == pytest.approx(12, abs=2)
