"""A checkpoint and its narrow models, quantized by Keras: bytes, speed, bits per byte.

    KERAS_BACKEND=jax python -m benchmarks.serve_in_keras TEXT PRESET [PRESET ...]

Each preset in each of `MODES`: float32, bfloat16, and Keras's own int8, int4 and GPTQ
(4 bits, groups of 32, calibrated on 128 windows of the training text). Bytes are those
of the variables. Bits per byte are of 64 windows of held-out text, as in
serve_checkpoint.py. Speeds are medians of rounds in which all models of a preset take
turns: batches of 16 windows read. Writes serve_in_keras.json and .md among the results.
"""

import argparse
import math
import pathlib
import time

import keras
import keras_hub
import numpy as np

from benchmarks import record
from benchmarks.held_out import bits, corpus_of, held_out
from keras_idea.hub.inputs import token_inputs

MODES = ("float32", "bfloat16", "int8", "int4", "gptq")
CALIBRATION, GROUP, ROUNDS, BATCH = 128, 32, 9, 16


def quantized(preset, mode, text, length):
    """The model of a preset in one mode, compiled; it takes token ids."""
    dtype = "bfloat16" if mode == "bfloat16" else "float32"
    models = keras_hub.models
    lm = models.CausalLM.from_preset(preset, dtype=dtype, preprocessor=None)
    if mode == "gptq":
        tokenizer = models.Tokenizer.from_preset(preset)
        corpus = corpus_of(text, tokenizer)
        ids, _ = corpus.batch(0, seed=0, batch_size=CALIBRATION, length=length)
        config = keras.quantizers.GPTQConfig(
            dataset=list(ids),
            tokenizer=tokenizer,
            weight_bits=4,
            num_samples=CALIBRATION,
            sequence_length=length,
            group_size=GROUP,
        )
        lm.quantize("gptq", config=config)
    elif mode.startswith("int"):
        lm.quantize(mode)
    lm.compile()
    return lm


def size(lm):
    """Bytes of a model's variables."""
    sizes = {"bfloat16": 2, "int8": 1, "uint8": 1}
    return sum(math.prod(v.shape) * sizes.get(v.dtype, 4) for v in lm.variables)


def predicted(lm, ids_BT):
    """Logits of all positions, in batches of one shape."""
    parts = [
        lm.predict_on_batch(token_inputs(lm, ids_BT[i : i + BATCH]))
        for i in range(0, len(ids_BT), BATCH)
    ]
    return np.concatenate(parts).astype("float32")


def measured(preset, text, ids_BT, per_token):
    """dict: mode -> neurons, parameters, bytes, bits and speed."""
    found, models = {}, {}
    for mode in MODES:
        lm = models[mode] = quantized(preset, mode, text, ids_BT.shape[1])
        found[mode] = {
            "neurons": lm.backbone.intermediate_dim,
            "bytes": size(lm),
            "bits per byte": bits(predicted(lm, ids_BT), ids_BT, per_token),
        }
    speeds = {mode: [] for mode in MODES}
    for _ in range(ROUNDS):
        for mode, lm in models.items():
            begin = time.perf_counter()
            predicted(lm, ids_BT)
            speeds[mode].append(ids_BT.size / (time.perf_counter() - begin))
    for mode, rounds in speeds.items():
        found[mode]["tokens per second"] = float(np.median(rounds))
    return found


def table(found):
    """A row for each preset and mode."""
    rows = [
        [
            f"{f['neurons']}",
            mode,
            f"{f['bytes'] / 2**20:.2f}",
            f"{f['bits per byte']:.4f}",
            f"{f['tokens per second']:,.0f}",
        ]
        for modes in found
        for mode, f in modes.items()
    ]
    columns = ["FFN width", "mode", "MiB", "bits per byte", "tokens/s read"]
    return {
        "title": "A checkpoint and its narrow models, quantized by Keras",
        "columns": columns,
        "rows": rows,
        "notes": f"64 windows of held-out text; speeds are medians of {ROUNDS} rounds, "
        "in Keras, not in a server.",
    }


def main():
    """Quantizes, compares, measures, writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--length", type=int, default=63, help="tokens of a window")
    parser.add_argument("--output", default=record.REPOSITORY / "benchmarks/results")
    given = parser.parse_args()
    facts = record.environment()
    presets = " ".join(pathlib.Path(preset).name for preset in given.presets)
    facts["command"] = f"python -m benchmarks.serve_in_keras TEXT {presets}"
    ids_BT, per_token = held_out(given.text, given.presets[0], given.length)
    found = [
        measured(preset, given.text, ids_BT, per_token) for preset in given.presets
    ]
    tables = [table(found)]
    record.print_tables(tables)
    name = "serve_in_keras"
    for path in record.write(given.output, name, facts, {"models": found}, tables):
        print(path.name)


if __name__ == "__main__":
    main()
