"""A checkpoint made smaller: by which recipe, and with how many tokens of recovery?

    KERAS_BACKEND=jax python benchmarks/recover_tokens.py ../shared/data/text

Trains small stock Mistrals of several seeds (kept in --folder), brings the FFNs of each
to two widths, and recovers them on 0 tokens to 800 thousand, by the arms of `ARMS`:
gradually in `fit` or in one step, with and without the refit of `ki.shrink`, with and
without the wide model as teacher, next to a narrow model from scratch. The arm
"features" has no labels: each block follows what the wide model's block returns. The
peak of the learning rate is searched for each arm and width alike, on the first
checkpoint. The arm "all tokens" trains the narrow model from scratch, at the
checkpoint's own peak, on as many tokens as the checkpoint and a recovery had together.
Bits per byte of held-out text; differences are of pairs: the same checkpoint and
batches.
Each cell is a file of --folder, with the machine it ran on; what is there is not
computed again. Writes benchmarks/results/recover_tokens.json, .md and .png.
"""

import argparse
import itertools
import json
import math
import pathlib
import time

import keras
import keras_hub
import numpy as np
import record
from followed import distiller
from intervals import plus_minus
from recover_checkpoint import NATS, Study, inputs, mean_and_error
from recover_shapes import (
    BATCH,
    CALIBRATION,
    LENGTH,
    PRETRAIN,
    PRETRAIN_PEAK,
    pretrain,
    train,
)

import keras_idea as ki

SHARES = (0.7, 0.4)
STEPS = (0, 48, 192, 768)
PEAKS = (3e-4, 1e-3, 3e-3)
SEARCHED = 192  # steps after which the peaks are compared
ONE_STEP = ("one step", "one step, refit")
ALL_TOKENS = "from scratch, all tokens"
ARMS = (
    *("gradual", *ONE_STEP),
    *("gradual, teacher", "one step, teacher", "one step, refit, teacher"),
    *("one step, refit, features", "one step, refit, teacher and features"),
    "gradual, teacher and features",
    *("from scratch", ALL_TOKENS),
)


class Cells:
    """The cells of a folder: each is computed once."""

    def __init__(self, folder, text, until):
        self.folder, self.text, self.until = folder, text, until
        self.facts = record.environment()
        self._studies = {}

    def study(self, seed):
        """The checkpoint of a seed, trained if it is not there."""
        if seed not in self._studies:
            folder = self.folder / f"checkpoint-{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            preset = pretrain(folder, self.text, seed=seed)
            self._studies = {seed: Study(str(preset), self.text)}
        return self._studies[seed]

    def get(self, *key, make=None):
        """The bits of a cell; None if it is not there and the time is over."""
        path = self.folder / f"{'-'.join(map(str, key)).replace(', ', '+')}.json"
        if not path.exists():
            if make is None or time.monotonic() > self.until:
                return None
            began = time.monotonic()
            found = {"bits": make(), "seconds": time.monotonic() - began, **self.facts}
            path.with_suffix(".new").write_text(json.dumps(found, indent=1))
            path.with_suffix(".new").rename(path)
            print(f"{path.stem}: {found['bits']:.4f} bits per byte", flush=True)
            keras.backend.clear_session(free_memory=True)
        return json.loads(path.read_text())["bits"]


def cell(study, seed, arm, share, steps, peak):
    """Bits a byte of one arm after so many steps of recovery."""
    keras.utils.set_random_seed(seed)
    model, callbacks = study.model(), []
    width = round(share * study.hidden_dim)
    if arm.startswith("from scratch"):
        config = {**model.backbone.get_config(), "intermediate_dim": width}
        backbone = keras_hub.models.MistralBackbone.from_config(config)
        model = keras_hub.models.MistralCausalLM(backbone, preprocessor=None)
    elif arm.startswith("one step"):
        ids, _ = study.corpus.batch(0, seed=seed, batch_size=CALIBRATION, length=LENGTH)
        model = ki.shrink(
            model,
            {"neurons": width},
            inputs(ids),
            refit="refit" in arm,
            batch_size=BATCH,
        )
    elif steps:
        callbacks = [ki.IdeaPruneCallback(width, 0, steps // 4)]
    if arm == ALL_TOKENS:
        batch_size = 2 * BATCH  # the checkpoint's
        steps = PRETRAIN + steps * BATCH // batch_size
        train(model, study.corpus, seed, steps, peak, batch_size)
    elif steps:
        recover(study, model, seed, steps, peak, callbacks, arm.split(", ")[-1])
    return study.bits(model)


def recover(study, model, seed, steps, peak, callbacks, follows):
    """Trains a model under one cosine; it `follows` what `distiller` knows, or text."""
    schedule = ki.CosineDecay(peak, peak / 100, steps, warmup_steps=steps // 12)
    optimizer = keras.optimizers.AdamW(schedule)
    model.compile(optimizer, NATS, weighted_metrics=None)
    fitted = model
    if "teacher" in follows or "features" in follows:
        ids, _ = study.corpus.batch(0, seed=seed, batch_size=BATCH, length=LENGTH)
        fitted, loss = distiller(study.teacher, model, follows, inputs(ids))
        fitted.compile(optimizer, loss)
    batches = study.corpus.batches(seed=seed, batch_size=BATCH, length=LENGTH)
    keras.Model.fit(
        fitted,
        ((inputs(ids), targets) for ids, targets in batches),
        steps_per_epoch=steps,
        shuffle=False,
        callbacks=callbacks,
        verbose=0,
    )


def applies(arm, steps):
    """Whether an arm is computed after so many steps, and is not another one there."""
    if arm == ALL_TOKENS:
        return steps == SEARCHED
    return steps > 0 or arm in ONE_STEP


def peaks_of(arm):
    """The peaks that are tried for an arm."""
    return (PRETRAIN_PEAK,) if arm == ALL_TOKENS else PEAKS


def peak_of(cells, arm, share, compute):
    """The peak that is best for an arm, of those tried on the first checkpoint."""

    def tried(peak):
        key = (0, arm, share, SEARCHED, peak)
        make = (lambda: cell(cells.study(0), *key)) if compute else None
        found = cells.get(*key, make=make)
        return math.inf if found is None else found

    found = {peak: tried(peak) for peak in peaks_of(arm)}
    return min(found, key=found.get), found


def rate_of(cells, arm, share, steps):
    """The peak that an arm trains with; 0 where it does not train."""
    return peak_of(cells, arm, share, False)[0] if steps else 0


def compute(cells, seeds):
    """Computes what is missing, as far as the time allows."""
    for share, arm in itertools.product(SHARES, ARMS):
        peak_of(cells, arm, share, compute=True)
    for seed in range(seeds):
        cells.get(seed, "checkpoint", make=lambda s=seed: checkpoint_bits(cells, s))
        for steps, share, arm in itertools.product(STEPS, SHARES, ARMS):
            if applies(arm, steps):
                key = (seed, arm, share, steps, rate_of(cells, arm, share, steps))
                cells.get(*key, make=lambda key=key: cell(cells.study(key[0]), *key))


def checkpoint_bits(cells, seed):
    """Bits a byte of a checkpoint as it is."""
    study = cells.study(seed)
    return study.bits(study.teacher)


def bits_of(cells, arm, share, steps, seeds):
    """Array of an arm's bits, one a checkpoint; NaN where it, or a peak, is missing."""
    peak = rate_of(cells, arm, share, steps)
    searched = math.inf not in peak_of(cells, arm, share, False)[1].values()
    if not applies(arm, steps) or (steps and not searched):
        return np.full(seeds, np.nan)
    found = [cells.get(seed, arm, share, steps, peak) for seed in range(seeds)]
    return np.array([np.nan if bits is None else bits for bits in found])


def tables_of(cells, seeds, text):
    """A table a share, of bits and of differences of pairs, and the search's."""
    tokens = [f"{steps * BATCH * LENGTH:,} tokens" for steps in STEPS]
    wide = [cells.get(seed, "checkpoint") for seed in range(seeds)]
    wide = np.array([np.nan if bits is None else bits for bits in wide])
    tables = []
    for share in SHARES:
        notes = (
            f"Bits per byte of held-out text; lower is better. The checkpoints have "
            f"{mean_and_error(wide)}. {plus_minus([seeds])} Each is another model, "
            f"trained from another seed. {text}"
        )
        rows = [
            [
                arm,
                *(mean_and_error(bits_of(cells, arm, share, s, seeds)) for s in STEPS),
            ]
            for arm in ARMS
        ]
        title = f"{share:.0%} of the neurons, after a recovery of so many tokens"
        tables.append(
            {"title": title, "columns": ["arm", *tokens], "rows": rows, "notes": notes}
        )
        rows = []
        for arm in ARMS[1:]:
            differences = [
                bits_of(cells, arm, share, steps, seeds)
                - bits_of(cells, _rival(arm, steps), share, steps, seeds)
                for steps in STEPS
            ]
            rows.append(
                [arm, *(mean_and_error(pairs, signed=True) for pairs in differences)]
            )
        title = f"{share:.0%} of the neurons: minus gradual, pairs"
        notes = "Negative: better. At 0 tokens minus 'one step'."
        tables.append(
            {"title": title, "columns": ["arm", *tokens], "rows": rows, "notes": notes}
        )
    searched = [
        [f"{share:.0%}", arm]
        + [f"{b:.4f}" for b in peak_of(cells, arm, share, False)[1].values()]
        for share, arm in itertools.product(SHARES, ARMS)
        if arm != ALL_TOKENS
    ]
    tables.append(
        {
            "title": "The peak of the learning rate, searched",
            "columns": ["neurons", "arm", *(f"{peak:g}" for peak in PEAKS)],
            "rows": searched,
            "notes": f"Bits per byte of the first checkpoint after {SEARCHED} steps; "
            "each arm takes its best peak of a width after any number of steps.",
        }
    )
    return tables


def _rival(arm, steps):
    return "gradual" if steps else "one step"


def draw(path, cells, seeds):
    """Bits above the checkpoint's over tokens of recovery, one line an arm."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    wide = np.array([cells.get(seed, "checkpoint") for seed in range(seeds)], float)
    figure, axes = pyplot.subplots(1, len(SHARES), figsize=(11, 4.2))
    for axis, share in zip(axes, SHARES, strict=True):
        for number, arm in enumerate(ARMS[:-2]):
            lost = [bits_of(cells, arm, share, s, seeds) - wide for s in STEPS]
            means = [np.nan if np.isnan(x).all() else np.nanmean(x) for x in lost]
            style = "--" if "teacher" in arm else "-"
            style = ":" if "features" in arm else style
            axis.plot(
                STEPS, means, style, marker="o", color=f"C{number % 3}", label=arm
            )
        axis.set_xscale("symlog", linthresh=48)
        axis.set_xticks(STEPS, [f"{s * BATCH * LENGTH // 1000}k" for s in STEPS])
        axis.set_title(f"{share:.0%} of the neurons", fontsize=10)
        axis.set_xlabel("tokens of recovery")
    axes[0].set_ylabel("bits per byte above the checkpoint")
    axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    """Computes what is missing, and writes tables and picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--folder", default="runs/recover_tokens")
    parser.add_argument(
        "--output", default=str(record.REPOSITORY / "benchmarks/results")
    )
    given = parser.parse_args()
    folder = pathlib.Path(given.folder)
    folder.mkdir(parents=True, exist_ok=True)
    cells = Cells(folder, given.text, time.monotonic() + 60 * given.minutes)
    compute(cells, given.seeds)
    said = cells.study(0).corpus.description
    said = said.replace(given.text, pathlib.Path(given.text).name)
    kept = {p.stem: json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))}
    hours = sum(cell["seconds"] for cell in kept.values()) / 3600
    text = (
        f"Text: {said}. All cells together took {hours:.1f} hours, on about one core."
    )
    tables = tables_of(cells, given.seeds, text)
    record.print_tables(tables)
    name = "recover_tokens"
    results = {"bits": {stem: cell["bits"] for stem, cell in kept.items()}}
    written = record.write(given.output, name, cells.facts, results, tables)
    draw(written[0].with_suffix(".png"), cells, given.seeds)


if __name__ == "__main__":
    main()
