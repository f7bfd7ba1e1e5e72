"""An encoder made smaller, by the outputs of the wide one: all-MiniLM-L6-v2.

    KERAS_BACKEND=tensorflow python -m benchmarks.checkpoints.encoder minilm FOLDER

No labels: the narrow model learns the wide one's embeddings of OpenWebText's sentences.
Judged on held-out sentences: the cosine of both embeddings of a sentence, the rank
correlation (Spearman's) of the similarities of pairs, and how often the nearest other
sentence is the same. Writes benchmarks/results/checkpoints/NAME/*.json.
"""

import argparse
import importlib.metadata
import json
import pathlib
import re
import time

import keras
import numpy as np
import scipy.stats

import keras_idea as ki
from benchmarks import record

RESULTS = record.REPOSITORY / "benchmarks" / "results" / "checkpoints"
SENTENCES, HELD_OUT, LENGTH, BATCH = 12_800, 1024, 64, 32
ARMS = ("as it is", "activation", "activation, refit", "gradual", "refit")
PEAK = 1e-4


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints.encoder")
    parser.add_argument("name")
    parser.add_argument("folder")
    parser.add_argument("--text", type=pathlib.Path, default="../shared/data/text")
    parser.add_argument("--share", type=float, default=0.67)
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    arguments = parser.parse_args()
    results = arguments.results / arguments.name
    results.mkdir(parents=True, exist_ok=True)
    wide = ki.hub.load(arguments.folder, "float32")
    train = prepared(wide, sentences(arguments.text, "train.jsonl")[:SENTENCES])
    held_out = prepared(wide, sentences(arguments.text, "valid.jsonl")[:HELD_OUT])
    wide.preprocessor = None
    embedded = wide.predict(held_out, batch_size=64, verbose=0)
    targets = wide.predict(train, batch_size=64, verbose=0)
    facts = record.environment()
    facts["command"] = (
        f"python -m benchmarks.checkpoints.encoder {arguments.name} FOLDER"
    )
    facts["versions"]["keras-hub"] = importlib.metadata.version("keras-hub")
    for arm in ARMS:
        share = 1.0 if arm == "as it is" else arguments.share
        path = results / f"{share:g}-{arm.replace(', ', '+').replace(' ', '_')}.json"
        if path.exists():
            continue
        began = time.monotonic()
        keras.utils.set_random_seed(0)
        model = ki.hub.load(arguments.folder, "float32")
        model.preprocessor = None
        model = narrowed(arm, model, share, train, targets)
        found = {"share": share, "how": arm, "parameters": model.count_params()}
        found |= judge(model.predict(held_out, batch_size=64, verbose=0), embedded)
        found |= {"seconds": round(time.monotonic() - began, 1), **facts}
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(arm, {name: found[name] for name in list(found)[2:7]}, flush=True)


def sentences(folder: pathlib.Path, name: str) -> list[str]:
    """Of 20 to 300 characters, each once, in the order of the text."""
    lines = (folder / "openwebtext" / name).read_text("utf-8").splitlines()
    cut = (
        sentence.strip()
        for line in lines
        for sentence in re.split(r"(?<=[.!?])\s+", json.loads(line)["text"])
    )
    return list(dict.fromkeys(s for s in cut if 20 <= len(s) <= 300))


def prepared(model: keras.Model, texts: list[str]) -> dict[str, np.ndarray]:
    """Token ids and their mask, LENGTH tokens a sentence."""
    model.preprocessor.sequence_length = LENGTH
    found = model.preprocessor(texts)
    return {n: keras.ops.convert_to_numpy(v) for n, v in found.items()}


def narrowed(
    arm: str, model: keras.Model, share: float, x: dict, targets: np.ndarray
) -> keras.Model:
    """The model of an arm."""
    if arm == "as it is":
        return model
    width = round(share * model.backbone.intermediate_dim / 32) * 32
    callbacks, steps = [], len(targets) // BATCH
    if arm == "gradual":
        callbacks = [ki.IdeaPruneCallback(width, 0, steps // 4)]
    else:
        rows = {name: values[:512] for name, values in x.items()}
        refit = arm.endswith("refit")
        options = {"method": "activation", "refit": refit, "batch_size": 32}
        model = ki.shrink(model, {"neurons": width}, rows, **options)
    if arm.startswith("activation"):
        return model
    rate = ki.CosineDecay(PEAK, PEAK / 100, steps, warmup_steps=steps // 12)
    model.compile(keras.optimizers.AdamW(rate), "mse", weighted_metrics=None)
    model.fit(x, targets, BATCH, epochs=1, callbacks=callbacks, verbose=2)
    return model


def judge(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """Cosine, rank correlation of pairs, the same nearest sentence."""
    ours, theirs = (
        a / np.linalg.norm(a, axis=-1, keepdims=True)
        for a in (ours.astype("float64"), theirs.astype("float64"))
    )
    pairs = np.triu_indices(len(ours), 1)
    near, far = (a @ a.T for a in (ours, theirs))
    ranks = scipy.stats.spearmanr(near[pairs], far[pairs]).statistic
    for a in (near, far):
        np.fill_diagonal(a, -2.0)
    return {
        "cosine": float((ours * theirs).sum(-1).mean()),
        "rank correlation": float(ranks),
        "same nearest": float((near.argmax(-1) == far.argmax(-1)).mean()),
    }


if __name__ == "__main__":
    main()
