"""A checkpoint and its narrow models in llama.cpp: bytes, tokens a second, bits a byte.

    KERAS_BACKEND=torch python -m benchmarks.serve_checkpoint TEXT PRESET [PRESET ...]

Each preset is exported to GGUF in each of `DTYPES` and loaded by llama.cpp on one
thread. Its bits a byte and greedy tokens on held-out text stand beside Keras's in
float32. Speeds are medians of rounds in which all files take turns: 512 tokens read as
prompts of 128, and 96 tokens written one after another; --length changes both. It must
not be above the models' window, beyond which llama.cpp computes something else. About a
minute.
Writes benchmarks/results/serve_checkpoint.json and .md.
"""

import argparse
import contextlib
import pathlib
import tempfile
import time

import keras_hub
import numpy as np

from benchmarks import record
from benchmarks.held_out import WINDOWS, bits, held_out
from benchmarks.served import greedy, loaded, logits
from keras_idea.export import export_gguf
from keras_idea.lm.export.compare import model_subject

DTYPES = ("float32", "float16", "q8_0", "q5_0", "q4_0")
ROUNDS, READ = 15, 4


def seconds(llama, ids_BT):
    """(of reading, of writing): tokens a second."""
    length = ids_BT.shape[1] - 1
    written = 3 * length // 4
    begin = time.perf_counter()
    for ids_T in ids_BT[:READ, :length]:
        llama.reset()
        llama.eval(ids_T.tolist())
    read = READ * length / (time.perf_counter() - begin)
    llama.reset()
    llama.eval(ids_BT[0, : length - written].tolist())
    begin = time.perf_counter()
    for _ in range(written):
        llama.eval([int(llama.scores[llama.n_tokens - 1].argmax())])
    return read, written / (time.perf_counter() - begin)


def exported(preset, ids_BT, per_token, folder):
    """dict: dtype -> what its file is and says."""
    model = keras_hub.models.CausalLM.from_preset(preset)
    expected = model_subject(model)
    exact = bits(expected.logits(ids_BT), ids_BT, per_token)
    length = ids_BT.shape[1] - 1
    prompt, new = length // 4, length // 2
    prompts = ids_BT[:8, :prompt]
    tokens = expected.greedy(prompts, new)[:, prompt:]
    found = {}
    for dtype in DTYPES:
        width = model.backbone.intermediate_dim
        path = folder / f"{pathlib.Path(preset).name}-{width}-{dtype}.gguf"
        export_gguf(model, path, dtype)
        with loaded(path, length + 1) as llama:
            logits_BTV = np.stack([logits(llama, ids_T) for ids_T in ids_BT])
            written = np.array([greedy(llama, ids_T, new) for ids_T in prompts])
        found[dtype] = {
            "path": str(path),
            "neurons": model.backbone.intermediate_dim,
            "parameters": model.count_params(),
            "bytes": path.stat().st_size,
            "bits a byte": bits(logits_BTV, ids_BT, per_token),
            "bits a byte in Keras": exact,
            "greedy tokens": int(tokens.size),
            "greedy tokens equal": int(np.cumprod(tokens == written, axis=1).sum()),
        }
    return found


def timed(files, ids_BT):
    """Adds tokens a second to each file's facts; all take turns."""
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(loaded(f["path"], ids_BT.shape[1])) for f in files
        ]
        rounds = [
            [seconds(llama, ids_BT) for llama in opened] for _ in range(ROUNDS + 1)
        ][1:]
    for file, speeds in zip(files, np.median(rounds, axis=0), strict=True):
        file["tokens read a second"], file["tokens written a second"] = speeds.tolist()
        del file["path"]


def table(found, length):
    """A row a file."""
    rows = [
        [
            f"{f['neurons']}",
            f"{f['parameters']:,}",
            dtype,
            f"{f['bytes'] / 2**20:.2f}",
            f"{f['tokens read a second']:,.0f}",
            f"{f['tokens written a second']:,.0f}",
            f"{f['bits a byte']:.4f} ({f['bits a byte in Keras']:.4f})",
            f"{f['greedy tokens equal']} of {f['greedy tokens']}",
        ]
        for files in found
        for dtype, f in files.items()
    ]
    return {
        "title": "A checkpoint and its narrow models, by llama.cpp on one thread",
        "columns": [
            "neurons an FFN",
            "parameters",
            "type",
            "MiB",
            "tokens/s read",
            "tokens/s written",
            "bits a byte (Keras, float32)",
            "greedy tokens that are Keras's",
        ],
        "rows": rows,
        "notes": f"{WINDOWS} windows of {length} tokens of held-out text; speeds are "
        f"medians of {ROUNDS} rounds. Greedy: 8 prompts of {length // 4} tokens, "
        f"{length // 2} more up to the first that differs.",
    }


def main():
    """Exports, compares, measures, writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--length", type=int, default=128, help="tokens of a window")
    parser.add_argument("--name", default="serve_checkpoint", help="of the record")
    parser.add_argument("--output", default=record.REPOSITORY / "benchmarks/results")
    given = parser.parse_args()
    facts = record.environment()
    presets = " ".join(pathlib.Path(preset).name for preset in given.presets)
    presets += f" --length {given.length} --name {given.name}"
    facts["command"] = f"python -m benchmarks.serve_checkpoint TEXT {presets}"
    ids_BT, per_token = held_out(given.text, given.presets[0], given.length)
    with tempfile.TemporaryDirectory() as folder:
        found = [
            exported(preset, ids_BT, per_token, pathlib.Path(folder))
            for preset in given.presets
        ]
        timed([file for files in found for file in files.values()], ids_BT)
    tables = [table(found, given.length)]
    record.print_tables(tables)
    for path in record.write(given.output, given.name, facts, {"files": found}, tables):
        print(path.name)


if __name__ == "__main__":
    main()
