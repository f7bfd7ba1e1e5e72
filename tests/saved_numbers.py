"""Numbers that a change of design must not change, to the last bit.

    KERAS_BACKEND=torch python -m tests.saved_numbers write FOLDER
    KERAS_BACKEND=torch python -m tests.saved_numbers compare FOLDER

Trains, narrows, resumes, shrinks and exports tiny models, by the public names
alone, and keeps losses in hexadecimal and digests of masks, weights, optimizer states
and files, in FOLDER/BACKEND.json. On one machine: another may add in another order.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import keras_idea as ki
from keras_idea.export import export_gguf, export_hf
from tests.support.hub_models import batch, tiny_lm
from tests.support.tiny_decoder import TINY, decoder

STEPS, BEGIN, PRUNE = 8, 2, 3
METHODS = {
    "sensitivity": lambda x: "sensitivity",
    "random": lambda x: ki.methods.Random(seed=3),
    "activation": lambda x: ki.methods.Activation(x, batch_size=4),
    "activation, refit": lambda x: ki.methods.Activation(x, batch_size=4, refit=True),
    "learned mask": lambda x: ki.methods.LearnedMask(seed=3),
}
FAMILIES = ("llama tied", "gemma2", "gpt2", "mixtral", "qwen3 moe")

HEADS = {"num_query_heads": 4, "num_key_value_heads": 2}


def digest(arrays) -> str:
    """SHA-256 of arrays, with their shapes and dtypes."""
    found = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(keras.ops.convert_to_numpy(array))
        found.update(f"{values.shape}{values.dtype}".encode())
        found.update(values.tobytes())
    return found.hexdigest()[:20]


def files_digest(path: pathlib.Path) -> str:
    """SHA-256 of the tensors' files at or below a path."""
    kept = (".safetensors", ".gguf")
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    found = hashlib.sha256()
    for file in files:
        if file.suffix in kept:
            found.update(file.read_bytes())
    return found.hexdigest()[:20]


class Seen(keras.callbacks.Callback):
    """Loss, widths and masks of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[list] = []

    def on_train_batch_end(self, batch, logs=None) -> None:
        """Notes them."""
        groups = ki.find_groups(self.model, ["neurons"])
        masks = digest(np.asarray(group.mask) for group in groups)
        sizes = [int(group.hidden_dim) for group in groups]
        self.steps.append([float(logs["loss"]).hex(), sizes, masks])


def lm_data(vocabulary=19, rows=16, length=12):
    """Token ids and the ids that follow them."""
    ids = np.random.default_rng(0).integers(0, vocabulary, (rows, length + 1), "int32")
    return ids[:, :-1], ids[:, 1:]


def compiled(model, optimizer=None):
    """With AdamW and a loss of logits, as Keras compiles by default."""
    optimizer = optimizer or keras.optimizers.AdamW(1e-2, weight_decay=0.01)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, weighted_metrics=None)
    return model


def state_of(model) -> dict:
    """What is left of a run."""
    return {
        "weights": digest(variable.value for variable in model.variables),
        "optimizer": digest(v.value for v in model.optimizer.variables),
        "shapes": [list(v.shape) for v in model.trainable_variables],
    }


def fitted(model, x, y, *callbacks, epochs=STEPS // 4, **options):
    """Trains without order on batches of 4; dict of what was seen."""
    seen = Seen()
    every = [*callbacks, seen]
    # The base class's: a task of KerasHub prepares texts.
    keras.Model.fit(model, x, y, 4, epochs, 0, every, shuffle=False, **options)
    return {"steps": seen.steps, **state_of(model)}


def own_decoder(seed=0, **options):
    """A small decoder."""
    keras.utils.set_random_seed(seed)
    return decoder(TINY, **options)


def dense_model():
    """Dense pairs in a functional model, trained on numbers."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,))
    x = keras.layers.Dense(8)(inputs)
    for width, activation in ((16, "relu"), (12, "gelu"), (10, "tanh")):
        hidden = keras.layers.Dense(width, activation)(x)
        x = x + keras.layers.Dense(8)(hidden)
    return keras.Model(inputs, keras.layers.Dense(5)(x))


def prune(method, compact, **options):
    """The callback."""
    options = {"target_dim": 0.5, **options}
    given = {"begin_step": BEGIN, "prune_steps": PRUNE, "compact": compact}
    return ki.IdeaPruneCallback(method=method, **given, **options)


def methods_and_compactions():
    """Each method in each way of compaction."""
    x, y = lm_data()
    for name, make in METHODS.items():
        for compact in ("off", "end", "progressive"):
            model = compiled(own_decoder())
            yield f"{name}, {compact}", fitted(model, x, y, prune(make(x), compact))


def dense_ways():
    """Dense pairs by optimizers, and beside what Keras does itself."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(16, 6)).astype("float32"), rng.integers(0, 5, 16)
    optimizers = {
        "sgd": keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
        "adam, clipped": keras.optimizers.Adam(1e-2, global_clipnorm=0.5),
        "muon": keras.optimizers.Muon(1e-2, exclude_embeddings=False),
        "lion, average": keras.optimizers.Lion(1e-3, use_ema=True),
        "accumulated": keras.optimizers.AdamW(1e-2, gradient_accumulation_steps=2),
    }
    for name, optimizer in optimizers.items():
        model = compiled(dense_model(), optimizer)
        # Accumulation halves the optimizer's steps.
        span = (1, 2) if name == "accumulated" else (BEGIN, PRUNE)
        yield name, fitted(model, x, y, ki.IdeaPruneCallback(0.5, *span))
    model = compiled(dense_model())
    callback = ki.IdeaPruneCallback(
        None, BEGIN, PRUNE, target_parameters=250, update_every=2
    )
    yield "budget", fitted(model, x, y, callback)


def families():
    """Stock models of KerasHub: neurons, heads, experts."""
    for name in FAMILIES:
        keras.utils.set_random_seed(0)
        lm = compiled(tiny_lm(name))
        x, y, *_ = batch(lm, np.random.default_rng(0), size=16)
        yield f"{name}, neurons", fitted(lm, x, y, prune("sensitivity", "end"))
    keras.utils.set_random_seed(0)
    lm = compiled(tiny_lm("mistral", **HEADS))
    x, y, *_ = batch(lm, np.random.default_rng(0), size=16)
    options = {"target_dim": None, "targets": {"kv_groups": 1, "neurons": 0.5}}
    yield (
        "mistral, heads and neurons",
        fitted(lm, x, y, prune("sensitivity", "end", **options)),
    )
    lm, (x, y) = compiled(own_decoder()), lm_data()
    options = {"target_dim": None, "target_parameters": int(0.8 * lm.count_params())}
    yield "budget", fitted(lm, x, y, prune("sensitivity", "progressive", **options))


class Killed(keras.callbacks.Callback):
    """Ends a run in the second epoch."""

    def on_train_batch_begin(self, batch, logs=None) -> None:
        """At its second step, when the width is on its way."""
        if self.model.optimizer.iterations == 5:
            raise InterruptedError


def resumed():
    """A run that went on from its checkpoint."""
    x, y = lm_data()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made) / "kept"
        for last in ([Killed()], []):
            model = compiled(own_decoder())
            checkpoint = ki.Checkpoint(folder)
            options = {"initial_epoch": checkpoint.restore(model)} if not last else {}
            callbacks = prune("sensitivity", "end"), checkpoint
            with contextlib.suppress(InterruptedError):
                found = fitted(model, x, y, *callbacks, *last, **options)
        yield "resumed", found


def one_shot():
    """`shrink` by each method and axis."""
    x, y = lm_data()
    for method in ("activation", "magnitude"):
        for refit in (False, True):
            narrow = ki.shrink(
                own_decoder(), {"neurons": 0.5}, x, method, refit=refit, batch_size=4
            )
            weights = digest(v.value for v in narrow.variables)
            yield f"shrink, {method}, {refit}", weights
    sizes = {"hidden_dim": {"features": 8}}  # by the names of the files
    sizes |= {"blocks": {"blocks": 1}, "kv_groups": {"kv_groups": 1}}
    for name, targets in sizes.items():
        lm = tiny_lm("mistral", **HEADS)
        rows, *_ = batch(lm, np.random.default_rng(0), size=16)
        narrow = ki.shrink(lm, targets, rows, batch_size=4)
        yield f"shrink, {name}", digest(v.value for v in narrow.variables)


def exports():
    """The bytes of what leaves."""
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        x, y = lm_data()
        model = compiled(own_decoder())
        fitted(model, x, y, prune("sensitivity", "end"))
        yield "own decoder", ki.compact(model).count_params()
        keras.utils.set_random_seed(0)
        lm = ki.shrink(tiny_lm("llama"), {"neurons": 0.5}, method="magnitude")
        export_hf(lm, folder / "hub")
        yield "hub, hf", files_digest(folder / "hub")
        for dtype in ("f32", "q8_0"):
            export_gguf(lm, folder / f"lm-{dtype}.gguf", dtype)
            yield f"hub, gguf, {dtype}", files_digest(folder / f"lm-{dtype}.gguf")


PARTS = (methods_and_compactions, dense_ways, families, resumed, one_shot, exports)


def numbers(parts) -> dict:
    """All of them, by part and name."""
    found = {}
    for part in parts:
        for name, value in part():
            found[f"{part.__name__}: {name}"] = value
            print(".", end="", flush=True)
    print(f" {len(found)} numbers")
    return found


def main() -> int:
    """Runs the command line; 1 if a number is another one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--parts", nargs="+", help="names of some parts")
    options = parser.parse_args()
    parts = [p for p in PARTS if not options.parts or p.__name__ in options.parts]
    path = options.folder / f"{keras.backend.backend()}.json"
    with contextlib.redirect_stdout(sys.stderr):
        found = json.loads(json.dumps(numbers(parts)))
    kept = json.loads(path.read_text()) if path.exists() else {}
    if options.what == "write":
        options.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**kept, **found}, indent=1) + "\n")
        return 0
    names = {part.__name__ for part in parts}
    kept = {n: v for n, v in kept.items() if n.partition(":")[0] in names}
    other = [n for n in kept if found.get(n) != kept[n]] + [
        n for n in found if n not in kept
    ]
    for name in other:
        print(f"{name}:\n  was {kept.get(name)}\n  is  {found.get(name)}")
    print(f"{len(found) - len(other)} of {len(kept)} numbers are the same.")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
