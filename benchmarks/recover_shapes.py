"""A checkpoint made smaller along several axes: which shape is best after recovery?

    KERAS_BACKEND=jax python benchmarks/recover_shapes.py ../shared/data/text

Trains a small stock Mistral once (into --folder), then brings it to two thirds and to
half of its parameters: FFNs alone in `fit`, FFNs and key/value heads by one ratio in
`fit`, FFNs alone in one step, blocks alone, and shapes of `ki.search` over all axes:
the best three before training and three further down its list. All train for as many
steps on the same batches. Bits a byte of held-out text, over the seeds, and the rank
correlation of the search's order with the order after recovery. Cells that are done are
kept in --folder. Writes benchmarks/results/recover_shapes.json, .md and .png.
"""

import argparse
import functools
import itertools
import json
import pathlib
import time

import keras
import keras_hub
import numpy as np
import record
import scipy.stats
from intervals import plus_minus
from recover_checkpoint import NATS, Study, inputs, mean_and_error

import keras_idea as ki
from keras_idea.lm.data.text.make_tokenizer import make_tokenizer

SHARES = {"two thirds": 2 / 3, "half": 1 / 2}
IN_FIT = {"FFN": ("neurons",), "FFN and KV": ("neurons", "kv_groups")}
ALONE = "FFN in one step"
AXES = ("neurons", "kv_groups", "blocks", "hidden_dim")
CANDIDATES, RANKS = 30, (1, 2, 3, 10, 20, 30)
PRUNE, STEPS, BATCH, LENGTH, PEAK = 60, 240, 16, 64, 1e-3
PRETRAIN, PRETRAIN_PEAK, VOCABULARY = 1500, 4e-3, 512
CALIBRATION = 256


def pretrain(folder, text, steps=PRETRAIN, seed=0):
    """The preset that all arms begin with; trained if it is not there."""
    preset = folder / "preset"
    if preset.exists():
        return preset
    keras.utils.set_random_seed(seed)
    read = ki.data.load_text(text)
    tokenizer = make_tokenizer("mistral", "sentencepiece", read.sample(), VOCABULARY)
    corpus = read.tokenized(
        ki.data.tokenizer_vocabulary(tokenizer), tokenizer.start_token_id
    )
    backbone = keras_hub.models.MistralBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=6,
        num_query_heads=8,
        num_key_value_heads=4,
        hidden_dim=96,
        intermediate_dim=288,
        sliding_window=LENGTH,
    )
    model = keras_hub.models.MistralCausalLM(backbone=backbone, preprocessor=None)
    train(model, corpus, seed, steps, PRETRAIN_PEAK, batch_size=2 * BATCH, every=100)
    preprocessor = keras_hub.models.MistralCausalLMPreprocessor(tokenizer)
    task = keras_hub.models.MistralCausalLM(backbone, preprocessor=preprocessor)
    task.save_to_preset(str(preset))
    return preset


def train(model, corpus, seed, steps, peak, batch_size=BATCH, every=None, prune=()):
    """Trains a model under one cosine on the batches of a seed."""
    schedule = ki.CosineDecay(peak, peak / 100, steps, warmup_steps=steps // 12)
    model.compile(keras.optimizers.AdamW(schedule), NATS, weighted_metrics=None)
    batches = corpus.batches(seed=seed, batch_size=batch_size, length=LENGTH)
    keras.Model.fit(
        model,
        ((inputs(ids), targets) for ids, targets in batches),
        steps_per_epoch=every or steps,
        epochs=steps // (every or steps),
        shuffle=False,
        callbacks=list(prune),
        verbose=2 if every else 0,
    )


def with_data(study):
    """The checkpoint, compiled, and what its parts are ranked and judged on."""
    model = study.model()
    model.compile(loss=NATS)
    ids, targets = study.corpus.batch(0, seed=0, batch_size=CALIBRATION, length=LENGTH)
    return model, (inputs(ids), targets)


def shapes_of(study, share):
    """dict: the budget, the search's seconds, and by arm targets and loss before."""
    model, data = with_data(study)
    budget = int(share * model.backbone.count_params())
    how = {"target_parameters": budget, "verbose": 0, "batch_size": BATCH}
    began = time.monotonic()
    found = ki.search(model, data, kinds=AXES, candidates=CANDIDATES, **how)
    took = time.monotonic() - began
    kept = {f"search {rank}": found[rank - 1] for rank in RANKS if rank <= len(found)}
    blocks = {"kinds": ["blocks"], "limits": {"blocks": 0.1}, "candidates": 1}
    kept["blocks"] = ki.search(model, data, **blocks, **how)[0]
    return {
        "seconds": took,
        "candidates": len(found),
        "budget": budget,
        "arms": {
            name: {"targets": dict(each.targets), "before": float(each.loss)}
            for name, each in kept.items()
        },
    }


def narrow_ffns(study, share):
    """FFNs alone, cut in one step: what `shapes_of` tells of the others."""
    model, data = with_data(study)
    (found,) = ki.search(
        model,
        data,
        target_parameters=int(share * model.backbone.count_params()),
        kinds=["neurons"],
        limits={"neurons": 0.1},
        candidates=1,
        verbose=0,
        batch_size=BATCH,
    )
    return {"targets": dict(found.targets), "before": float(found.loss)}


def cell(study, shapes, arm, seed):
    """Bits a byte after recovery, and parameters, of one arm."""
    keras.utils.set_random_seed(seed)
    corpus = study.corpus
    if arm in IN_FIT:
        model = study.model()
        prune = ki.IdeaPruneCallback(
            begin_step=0,
            prune_steps=PRUNE,
            target_parameters=shapes["budget"],
            kinds=IN_FIT[arm],
        )
        train(model, corpus, seed, STEPS, PEAK, prune=[prune])
    else:
        model, data = with_data(study)
        model = ki.shrink(model, shapes["arms"][arm]["targets"], data, batch_size=BATCH)
        train(model, corpus, seed, STEPS, PEAK)
    return {"bits": study.bits(model), "parameters": model.backbone.count_params()}


def compute(study, folder, seeds):
    """dict: what is known of both shares; what is done is not done again."""
    path = folder / "cells.json"
    done = json.loads(path.read_text()) if path.exists() else {}

    def keep(name, make):
        if name not in done:
            began = time.monotonic()
            done[name] = make()
            path.with_suffix(".new").write_text(json.dumps(done, indent=1))
            path.with_suffix(".new").rename(path)
            said = str(done[name])[:100]
            print(f"{name}: {said}, {time.monotonic() - began:.0f} s", flush=True)
            keras.backend.clear_session(free_memory=True)
        return done[name]

    keep("checkpoint", lambda: study.bits(study.teacher))
    shapes = {
        name: keep(f"{name}/shapes", lambda share=share: shapes_of(study, share))
        for name, share in SHARES.items()
    }
    for name, share in SHARES.items():
        alone = keep(f"{name}/{ALONE}", lambda share=share: narrow_ffns(study, share))
        shapes[name]["arms"][ALONE] = alone
    for seed, (name, of_share) in itertools.product(range(seeds), shapes.items()):
        for arm in (*IN_FIT, *of_share["arms"]):
            make = functools.partial(cell, study, of_share, arm, seed)
            keep(f"{name}/{arm}/{seed}", make)
    return done


def bits_of(done, share, arm, seeds):
    """Array of the bits of an arm's seeds."""
    return np.array([done[f"{share}/{arm}/{seed}"]["bits"] for seed in range(seeds)])


def order(done, share, seeds):
    """Spearman's rho of the search's order and the order after recovery, and its p."""
    arms = done[f"{share}/shapes"]["arms"]
    searched = [arm for arm in arms if arm.startswith("search")]
    before = [arms[arm]["before"] for arm in searched]
    after = [bits_of(done, share, arm, seeds).mean() for arm in searched]
    found = scipy.stats.spearmanr(before, after)
    return float(found.statistic), float(found.pvalue)


def tables_of(done, seeds, text):
    """One table a share: the arms, best first."""
    tables = []
    for share in SHARES:
        shapes = done[f"{share}/shapes"]
        arms = (*IN_FIT, *shapes["arms"])
        rows = []
        for arm in sorted(arms, key=lambda a: bits_of(done, share, a, seeds).mean()):
            bits = bits_of(done, share, arm, seeds)
            known = shapes["arms"].get(arm)
            targets = known["targets"] if known else {}
            worse = bits - bits_of(done, share, "FFN", seeds)
            rows.append(
                [
                    arm,
                    ", ".join(f"{axis} {size}" for axis, size in targets.items()),
                    f"{done[f'{share}/{arm}/0']['parameters']:,}",
                    f"{known['before'] / np.log(2):.3f}" if known else "",
                    mean_and_error(bits),
                    "" if arm == "FFN" else mean_and_error(worse, signed=True),
                ]
            )
        rho, p = order(done, share, seeds)
        tables.append(
            {
                "title": f"At {share} of the parameters (budget "
                f"{shapes['budget']:,}); the checkpoint has "
                f"{done['checkpoint']:.4f} bits per byte",
                "columns": [
                    "arm",
                    "shape",
                    "parameters",
                    "before training, bits per token",
                    "after recovery, bits per byte",
                    "minus FFN, pairs",
                ],
                "rows": rows,
                "notes": f"{plus_minus([seeds])} {STEPS} steps of "
                f"{BATCH * LENGTH:,} tokens under one cosine of peak {PEAK}; in `fit`, "
                f"the first {PRUNE} prune. The search judged {shapes['candidates']} "
                f"shapes in {shapes['seconds']:.0f} s; its order and the order after "
                f"recovery: Spearman's rho {rho:.2f} (p = {p:.2f}) over the shapes in "
                f"the table. {text}",
            }
        )
    return tables


def draw(path, done, seeds):
    """Loss before training against bits after recovery, and the arms in `fit`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(SHARES), figsize=(10, 4))
    for axis, share in zip(axes, SHARES, strict=True):
        for arm, known in done[f"{share}/shapes"]["arms"].items():
            bits = bits_of(done, share, arm, seeds)
            before = known["before"] / np.log(2)
            error = bits.std(ddof=1) / np.sqrt(seeds) if seeds > 1 else 0
            axis.errorbar(before, bits.mean(), error, fmt="o", color="#0072b2")
            axis.annotate(arm, (before, bits.mean()), fontsize=8)
        for arm, color in zip(IN_FIT, ("black", "#d55e00"), strict=True):
            mean = bits_of(done, share, arm, seeds).mean()
            axis.axhline(mean, color=color, linewidth=1, linestyle="--", label=arm)
        axis.set_title(f"at {share} of the parameters", fontsize=10)
        axis.set_xlabel("bits per token before training")
    axes[0].set_ylabel("bits per byte after recovery")
    axes[0].legend(frameon=False, fontsize=9, title="in fit")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    """Computes what is missing, and writes tables and picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", default="runs/recover_shapes")
    parser.add_argument(
        "--output", default=str(record.REPOSITORY / "benchmarks/results")
    )
    given = parser.parse_args()
    facts = record.environment()
    folder = pathlib.Path(given.folder)
    folder.mkdir(parents=True, exist_ok=True)
    study = Study(str(pretrain(folder, given.text)), given.text)
    done = compute(study, folder, given.seeds)
    said = study.corpus.description.replace(given.text, pathlib.Path(given.text).name)
    tables = tables_of(done, given.seeds, f"Text: {said}.")
    record.print_tables(tables)
    name = "recover_shapes"
    written = record.write(given.output, name, facts, {"cells": done}, tables)
    draw(written[0].with_suffix(".png"), done, given.seeds)


if __name__ == "__main__":
    main()
