"""What can be done with each of KerasHub's families: every cell is run.

    KERAS_BACKEND=torch python -m benchmarks.families

Tiny models with random weights, the tests' own (tests/support/hub_models.py): masked at
random to 10 of 24 neurons, or to one of two key/value heads with its two query heads,
compacted, saved and loaded as a preset, exported to Hugging
Face and loaded by transformers, exported to GGUF and, where llama-cpp-python is
installed, loaded by llama.cpp. A figure is the greatest difference
of outputs of about 1; what cannot be done says why. About two minutes on one CPU core.
Writes benchmarks/results/families.json and .md.
"""

import argparse
import pathlib
import re
import tempfile

import keras
import numpy as np

import keras_idea as ki
from benchmarks import record
from keras_idea.export import export_gguf, export_hf
from keras_idea.finding.find_heads import find_heads
from keras_idea.hub.families import FAMILIES, HEAD_ARGUMENTS, STACKED_HEAD_ARGUMENTS
from tests.support import encoders
from tests.support.helpers import to_numpy
from tests.support.hub_models import ENCODERS, MODELS, batch, tiny_lm
from tests.support.masks import prune_by_hand

KEPT = 10
COLUMNS = (
    "matrices",
    "masked = narrow",
    "a step later",
    "preset",
    "Hugging Face",
    "GGUF",
)


def outputs(model, x):
    """All outputs of a model in one array."""
    found = keras.tree.flatten(model(x, training=False))
    return np.concatenate([np.ravel(to_numpy(output)) for output in found])


def difference(a, b):
    """The greatest, as a text; "same bits" for none."""
    worst = float(np.abs(a.astype("float64") - b).max())
    return "same bits" if worst == 0 else f"{worst:.0e}"


def prepared(name, kind="neurons"):
    """A row's model, inputs, and targets of a training step (None: it has no loss)."""
    if name in MODELS:
        model = tiny_lm(name, **(four_heads(name) if kind == "kv_groups" else {}))
        x, y = batch(model, np.random.default_rng(0))
        return model, x, y
    model = encoders.backbone(name)
    return model, encoders.inputs(model, 4), None


def four_heads(name):
    """The arguments of a row's backbone that give it four query heads, two of keys."""
    backbone = type(tiny_lm(name).backbone).__name__
    stacks = STACKED_HEAD_ARGUMENTS.get(backbone, {"": HEAD_ARGUMENTS.get(backbone)})
    return {
        argument: heads
        for arguments in stacks.values()
        for argument, heads in zip(arguments or (), (4, 2), strict=False)
    }


def attempt(cell):
    """What a cell says, or why not: of several sentences the one that says it."""
    try:
        return cell()
    except Exception as error:
        message = " ".join(str(error).split())
        return f"no: {re.split(r'[;.] ', message)[0].rstrip('.')}"


def matrices(ffn):
    """How many matrices an FFN has, of how many experts."""
    of_each = str(sum(cut.matrices for cut in ffn.kernel_cuts()))
    return of_each if ffn.state.experts is None else f"{ffn.state.experts} x {of_each}"


def step(model, x, y):
    """The model's outputs after one step of SGD."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.02, momentum=0.9), loss, weighted_metrics=None)
    keras.Model.fit(model, x, y, batch_size=4, verbose=0)
    return outputs(model, x)


def cells(name, folder, kind):
    """dict: column to text, of one family."""
    model, x, y = prepared(name, kind)
    groups = ki.find_groups(model, [kind])
    found = {"matrices": " + ".join(dict.fromkeys(map(matrices, groups)))}
    rng = np.random.default_rng(1)
    for group in groups:
        order = rng.random(tuple(group.mask.shape)).argsort(axis=-1)
        prune_by_hand(group, order < (KEPT if kind == "neurons" else 1))
    masked = outputs(model, x)
    narrow = ki.compact(model)
    found["masked = narrow"] = difference(outputs(narrow, x), masked)

    def preset():
        backbone = getattr(narrow, "backbone", narrow)
        backbone.save_to_preset(folder / "preset")
        loaded = type(backbone).from_preset(str(folder / "preset"))
        found = outputs(loaded, x)
        if not np.allclose(found, outputs(backbone, x), atol=1e-5):
            return "no: " + stock_preset(name, folder, kind)
        return difference(found, outputs(backbone, x))

    def hugging_face():
        if y is None:
            return "no: KerasHub's export is for a CausalLM"
        match = export_hf(narrow, folder / "hf").match
        return f"{match.difference:.0e}"

    def gguf():
        if y is None:
            return "no: it is for a CausalLM"
        export = export_gguf(narrow, folder / "model.gguf")
        if export.match is None:
            return f"written; {export.notes[-1]}"
        return f"{export.match.difference:.0e}"

    found["preset"] = attempt(preset)
    found["Hugging Face"] = attempt(hugging_face)
    found["GGUF"] = attempt(gguf)
    found["a step later"] = "-"
    if y is not None:
        found["a step later"] = attempt(
            lambda: difference(step(narrow, x, y), step(model, x, y))
        )
    return found


def stock_preset(name, folder, kind):
    """Whose fault a preset is that computes something else."""
    backbone, x, _ = prepared(name, kind)
    backbone = getattr(backbone, "backbone", backbone)
    backbone.save_to_preset(folder / "stock")
    loaded = type(backbone).from_preset(str(folder / "stock"))
    if np.allclose(outputs(loaded, x), outputs(backbone, x), atol=1e-5):
        return "it computes something else"
    return "KerasHub's own preset of the stock model computes something else"


def refused():
    """dict: name of a family that is refused to why."""
    return {row.prefix: row.refused for row in FAMILIES.values() if row.refused}


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="names of rows; default: all")
    parser.add_argument("--output", default=record.RESULTS)
    arguments = parser.parse_args()
    facts, results, why = record.environment(), {"neurons": {}, "kv_groups": {}}, {}
    for name in arguments.only or [*MODELS, *ENCODERS]:
        for kind, found in results.items():
            if kind == "kv_groups" and (reason := without_heads(name)):
                why.setdefault(reason, []).append(name)
                continue
            with tempfile.TemporaryDirectory() as folder:
                found[name] = cells(name, pathlib.Path(folder), kind)
            print(name, kind, found[name], flush=True)
    tables = [of_neurons(results["neurons"]), of_heads(results["kv_groups"], why)]
    kept = {**results["neurons"], "kv_groups": results["kv_groups"]}
    record.write(arguments.output, "families", facts, kept, tables)


def without_heads(name):
    """Why no heads of a row can be pruned; None if they can."""
    heads = find_heads(prepared(name)[0])
    if heads.groups:
        return None
    reason = next(iter(heads.left_out.values()), "its attention is not known")
    return re.sub(r"an? \w+Backbone", "a backbone", reason)


def rows_of(found):
    """The rows of a table."""
    return [[name, *(of[c] for c in COLUMNS)] for name, of in found.items()]


def of_heads(found, why):
    """The table of key/value heads; `why`: dict of a reason to names of rows."""
    return {
        "title": "Key/value heads: one of two is left, with its two query heads",
        "columns": ["model", *COLUMNS],
        "rows": rows_of(found),
        "notes": "As above. Left out: "
        + "; ".join(f"{', '.join(names)} ({reason})" for reason, names in why.items())
        + ".",
    }


def of_neurons(found):
    """The table of FFNs."""
    return {
        "title": "Families of KerasHub, tiny models with random weights",
        "columns": ["model", *COLUMNS],
        "rows": rows_of(found),
        "notes": "Greatest difference of outputs of about 1. Shapes that llama.cpp "
        "knows, where it does not know the tests' own, are in served.md. Refused: "
        + "; ".join(f"{name} ({why})" for name, why in refused().items())
        + ".",
    }


if __name__ == "__main__":
    main()
