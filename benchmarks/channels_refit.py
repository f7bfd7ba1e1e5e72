"""Channels cut in one step, untrained: what does a refit give?

    KERAS_BACKEND=torch python -m benchmarks.channels_refit

The ResNet and the MobileNet of `benchmarks.peers.channels`, trained on scikit-learn's
digits. Each is cut by `ki.shrink`, with and without `refit=True`, and nothing is
trained afterwards. Beside it what is often done: the moving statistics of the
normalizations are measured again on the same images. Writes
results/channels_refit.json and .md.
"""

import argparse
import itertools

import keras

import keras_idea as ki
from benchmarks import record
from benchmarks.intervals import estimate
from benchmarks.peers.channels import task
from benchmarks.peers.channels.training import trained_wide

NETS, SHARES = ("ResNet", "MobileNet"), (0.75, 0.5, 0.25)
METHODS = ("magnitude", "activation", "sensitivity")
STAGES = task.Stages()


def with_new_statistics(model, images):
    """The model, its normalizations' statistics measured again: passes in training."""
    for _ in range(3):
        for start in range(0, len(images), task.BATCH):
            model(images[start : start + task.BATCH], training=True)
    return model


def measured(wide, share, method, refit):
    """dict: accuracies of a cut model, as it is and with new statistics."""
    (x, y), held = task.images()
    targets = {"channels": share}
    small = ki.shrink(wide, targets, (x, y), method, refit=refit)

    def accuracy():
        return task.judged(small.predict(held[0], verbose=0), held[1])["accuracy"]

    found = {"cut": accuracy(), "parameters": small.count_params()}
    with_new_statistics(small, x)
    return {**found, "new statistics": accuracy()}


def carried_out(seeds):
    """dict: (net, share, method, refit) -> what each seed found."""
    found = {}
    for net, seed in itertools.product(NETS, range(seeds)):
        wide = trained_wide(net, seed, STAGES)
        x, y = task.images()[1]
        accuracy = task.judged(wide.predict(x, verbose=0), y)["accuracy"]
        whole = {"cut": accuracy, "parameters": wide.count_params()}
        found.setdefault((net, 1.0, "as it is", False), []).append(whole)
        for way in itertools.product(SHARES, METHODS, (False, True)):
            keras.utils.set_random_seed(seed)
            found.setdefault((net, *way), []).append(measured(wide, *way))
        print(net, seed, flush=True)
    return found


def percent(found, what):
    """A mean over seeds with its standard error, in percent."""
    if what not in found[0]:
        return "–"
    made = estimate([100 * each[what] for each in found])
    return f"{made.mean:.1f}" + ("" if made.error is None else f" ± {made.error:.1f}")


def rows(found):
    """A line for each network, share and method."""
    for (net, share, method, refit), plain in found.items():
        if refit:
            continue
        fitted = found.get((net, share, method, True))
        yield [
            net,
            f"{share:g}",
            method,
            f"{plain[0]['parameters']:,}",
            percent(plain, "cut"),
            percent(plain, "new statistics"),
            percent(fitted, "cut") if fitted else "–",
            percent(fitted, "new statistics") if fitted else "–",
        ]


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", default=record.REPOSITORY / "benchmarks/results")
    given = parser.parse_args()
    facts, found = record.environment(), carried_out(given.seeds)
    table = {
        "title": "Channels cut in one step, untrained",
        "columns": [
            "network",
            "channels kept",
            "by",
            "parameters",
            "cut",
            "cut, new statistics",
            "refit",
            "refit, new statistics",
        ],
        "rows": list(rows(found)),
        "notes": f"Accuracy of held-out images, %, mean ± standard error over "
        f"{given.seeds} seeds. {task.TRAINED_ON:,} images to rank and to fit on.",
    }
    cells = {"|".join(map(str, key)): value for key, value in found.items()}
    record.write(given.output, "channels_refit", facts, {"cells": cells}, [table])


if __name__ == "__main__":
    main()
