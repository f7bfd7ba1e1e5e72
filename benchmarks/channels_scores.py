"""Which score ranks channels best: a study on a small MobileNet.

    KERAS_BACKEND=torch python -m benchmarks.channels_scores

The MobileNet of `benchmarks.peers.channels`, on scikit-learn's digits: trained wide,
then pruned in `fit` to a fifth of its channels by each score, from the same weights,
with the same batches, and recovered. Held-out loss right after pruning and after
recovery, over seeds. Cells that the result file has are kept. Writes
results/channels_scores.json and .md, after each cell.
"""

import argparse
import itertools
import json
import pathlib

import keras
from keras import ops

import keras_idea as ki
from benchmarks import record
from benchmarks.intervals import estimate
from benchmarks.peers.channels import task
from benchmarks.peers.channels.training import compiled, fit, trained_wide

SHARE = 0.2
STAGES = task.Stages(wide=240, prune=80, recover=120)


def products(cuts, gradients, reduce=ops.sum, of=lambda product: product):
    """For each cut, the products of gradient and weight of each unit, reduced."""
    found = []
    for cut in cuts:
        product = cut.variable.value * gradients.of(cut.variable)
        [mean] = cut.split(reduce(of(product), axis=cut.weights_axes))
        found.append(mean)  # over the entries of a unit
    return found


class SumOfAbsolutes(ki.methods.Method):
    """The sum of `|gradient * weight|` over what reads a channel."""

    name = "absolutes"

    def __init__(self, ema_decay):
        self.scoring = ki.methods.Scoring(ema_decay=ema_decay)

    def score(self, ffn, gradients):
        """See `Method.score`."""
        cuts = ffn.scored_cuts()
        means = products(cuts, gradients, of=ops.abs)
        return sum(m * cut.size for m, cut in zip(means, cuts, strict=True))


class AsNeurons(SumOfAbsolutes):
    """The score of neurons: the largest mean over all kernels of a channel."""

    name = "as_neurons"

    def score(self, ffn, gradients):
        """See `Method.score`."""
        cuts = ffn.kernel_cuts()
        means = products(cuts, gradients, reduce=ops.mean, of=ops.abs)
        return ops.max(ops.stack(means), axis=0)


class NormTaylor(SumOfAbsolutes):
    """`|gradient * gamma + gradient * beta|` of the normalizations of a channel."""

    name = "norm_taylor"

    def score(self, ffn, gradients):
        """See `Method.score`."""
        kernels = {id(cut.variable) for cut in ffn.kernel_cuts()}
        cuts = [cut for cut in ffn.cuts() if id(cut.variable) not in kernels]
        return ops.abs(sum(products(cuts, gradients)))


def scores():
    """dict: name -> method."""
    found = {}
    for decay in (0.4, 0.9):
        signed = ki.methods.Sensitivity(ema_decay=decay)
        found[f"signed sum of the readers, decay {decay}"] = signed
        found[f"sum of absolute products, decay {decay}"] = SumOfAbsolutes(decay)
    found["the neurons' score, decay 0.4"] = AsNeurons(0.4)
    found["BatchNormalization's Taylor term, decay 0.9"] = NormTaylor(0.9)
    found["magnitude"] = ki.methods.Magnitude()
    found["random"] = None
    return found


def measured(wide, seed, method):
    """dict: held-out accuracy and loss, after pruning and after recovery."""
    keras.utils.set_random_seed(seed)
    model = keras.models.clone_model(wide)
    model.set_weights(wide.get_weights())
    model = compiled(model, STAGES.rate, STAGES.after)
    batches = task.batches(1000 + seed, STAGES.after)
    begin = STAGES.prune // 4
    prune = ki.IdeaPruneCallback(
        targets={"channels": SHARE},
        begin_step=begin,
        prune_steps=STAGES.prune - begin,
        method=method or ki.methods.Random(seed),
    )
    x, y = task.images()[1]

    def judged():
        return task.judged(model.predict(x, verbose=0), y)

    fit(model, batches[: STAGES.prune], [prune])
    after_pruning = judged()
    fit(model, batches[STAGES.prune :])
    return {
        "pruned": after_pruning,
        "recovered": judged(),
        "parameters": model.count_params(),
    }


def cell_text(found, stage, what, factor, digits):
    """A mean over seeds with its standard error."""
    made = estimate([factor * each[stage][what] for each in found])
    error = "" if made.error is None else f" ± {made.error:.{digits}f}"
    return f"{made.mean:.{digits}f}{error}"


def rows(cells):
    """A line for each score."""
    for name in scores():
        found = [cell for (_, score), cell in cells.items() if score == name]
        if found:
            yield [
                name,
                f"{len(found)}",
                cell_text(found, "pruned", "loss", 1, 3),
                cell_text(found, "recovered", "loss", 1, 4),
                cell_text(found, "recovered", "accuracy", 100, 2),
                f"{found[0]['parameters']:,}",
            ]


def report(output, facts, cells):
    """Writes the table of the cells so far."""
    table = {
        "title": f"A small MobileNet, {SHARE:.0%} of its channels",
        "columns": [
            "score",
            "seeds",
            "loss, just pruned",
            "loss, recovered",
            "accuracy, %, recovered",
            "parameters",
        ],
        "rows": list(rows(cells)),
        "notes": f"Held-out images, mean ± standard error over seeds. {STAGES.wide} "
        f"steps wide, {STAGES.prune} of pruning, {STAGES.recover} of recovery, "
        f"{task.BATCH} images per step. Lower losses are better.",
    }
    kept = {f"{seed}|{score}": cell for (seed, score), cell in cells.items()}
    record.write(output, "channels_scores", facts, {"cells": kept}, [table])


def known(path):
    """The cells of an earlier run."""
    kept = json.loads(path.read_text())["cells"] if path.exists() else {}
    parts = {tuple(key.split("|")): cell for key, cell in kept.items()}
    return {(int(seed), score): cell for (seed, score), cell in parts.items()}


def main():
    """Trains what is missing, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", default=record.REPOSITORY / "benchmarks/results")
    given = parser.parse_args()
    facts = record.environment()
    command = "KERAS_BACKEND=torch python -m benchmarks.channels_scores"
    facts["command"] = f"{command} --seeds {given.seeds}"
    cells = known(pathlib.Path(given.output, "channels_scores.json"))
    for seed, (name, method) in itertools.product(range(given.seeds), scores().items()):
        if all((seed, score) in cells for score in scores()):
            continue
        if name == next(iter(scores())):
            wide = trained_wide("MobileNet", seed, STAGES)
        if (seed, name) not in cells:
            cells[seed, name] = measured(wide, seed, method)
            print(seed, name, cells[seed, name], flush=True)
            report(given.output, facts, cells)


if __name__ == "__main__":
    main()
