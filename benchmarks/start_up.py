"""How long `fit` takes to its third step on JAX, and how many programs it compiles.

    KERAS_BACKEND=jax python -m benchmarks.start_up FOLDER

FOLDER is what `ki.hub.load` takes, such as SmolLM2-135M. Four steps of 2 x 64 tokens
each: of the plain model, while it is pruned by sensitivity and narrowed after step 2,
and the same with a teacher. A program that is compiled twice counts twice.
"""

import logging
import sys
import time

import jax
import keras
import numpy as np

import keras_idea as ki
from benchmarks.record import RESULTS, environment, write

BATCH, LENGTH, STEPS = 2, 64, 4


class _Compiled(logging.Handler):
    """Collects the programs that JAX says it compiles, with their seconds."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def emit(self, record):
        said = record.getMessage()
        if said.startswith("Finished XLA compilation of"):
            self.seconds.append(float(said.split(" in ")[-1].split()[0]))


class _Ends(keras.callbacks.Callback):
    """Notes when each batch ends."""

    def on_train_begin(self, logs=None):
        self.ends = [time.perf_counter()]

    def on_train_batch_end(self, batch, logs=None):
        jax.block_until_ready(logs["loss"])
        self.ends.append(time.perf_counter())


def measured(folder, pruned, taught):
    """The seconds of each step, and what was compiled in `fit`."""
    lm = ki.hub.load(folder, dtype="float32", check=False)
    lm.preprocessor = None
    rng = np.random.default_rng(0)
    ids = rng.integers(0, lm.backbone.vocabulary_size, (STEPS * BATCH, LENGTH + 1))
    x = {"token_ids": ids[:, :-1], "padding_mask": np.ones((len(ids), LENGTH), bool)}
    model = lm
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    lm.compile(keras.optimizers.AdamW(1e-5), loss)
    if taught:
        teacher = ki.hub.load(folder, dtype="float32", check=False)
        teacher.preprocessor = None
        model = ki.distiller(teacher, lm)
    ends, compiled = _Ends(), _Compiled()
    callbacks = [ki.IdeaPruneCallback(0.67, 0, 2, round_to=32)] if pruned else []
    logger = logging.getLogger("jax")
    logger.addHandler(compiled)
    fit = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    with jax.log_compiles():
        model.fit(x, ids[:, 1:], callbacks=[*callbacks, ends], **fit)
    logger.removeHandler(compiled)
    return np.diff(ends.ends), compiled.seconds


def main():
    """Measures the three, and records them."""
    logging.getLogger("jax").propagate = False
    rows, results = [], {}
    for name, pruned, taught in (
        ("plain", False, False),
        ("pruned", True, False),
        ("pruned, with a teacher", True, True),
    ):
        steps, compiled = measured(sys.argv[1], pruned, taught)
        results[name] = {"steps": list(steps), "compiled": compiled}
        large = sum(seconds > 1 for seconds in compiled)
        rows.append([name, str(len(compiled)), str(large), f"{sum(compiled):.1f}"])
        rows[-1] += [f"{seconds:.2f}" for seconds in steps]
    columns = ["fit", "programs", "above 1 s", "compiling, s"]
    columns += [f"step {i + 1}, s" for i in range(STEPS)]
    table = {
        "title": "The first steps of `fit` on JAX",
        "columns": columns,
        "rows": rows,
        "notes": "The first step compiles; narrowing comes before step 3.",
    }
    write(RESULTS, "start_up-jax", environment(), results, [table])


if __name__ == "__main__":
    main()
