"""The most memory that `ki.hub.load` takes, as a multiple of the float32 weights.

    KERAS_BACKEND=torch python -m benchmarks.loading_memory

For each dtype of the files a process loads a tiny Llama, so that everything is
imported, and then a random one of 224 MB. Both peaks are its `ru_maxrss`, which counts
mapped files too.
"""

import json
import resource
import subprocess
import sys
import tempfile

from benchmarks.record import RESULTS, environment, write

SIZES = {"hidden_size": 640, "intermediate_size": 1728, "num_hidden_layers": 10}
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
LIMIT = 2.2


def make(folder: str, dtype: str) -> None:
    """Saves two random Llamas as transformers does."""
    import torch
    import transformers

    common = {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 16_384}
    for name, sizes in (("tiny", TINY), ("whole", SIZES)):
        config = transformers.LlamaConfig(**common, **sizes, tie_word_embeddings=True)
        config.bos_token_id, config.eos_token_id = 1, 2
        model = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype))
        model.save_pretrained(f"{folder}/{name}")


def measure(folder: str) -> None:
    """Prints bytes: of the weights in float32, and at the peaks."""
    import keras_idea as ki

    peaks = []
    for name in ("tiny", "whole"):
        model = ki.hub.load(f"{folder}/{name}", dtype="float32")
        peaks.append(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    print(json.dumps([4 * model.count_params(), *peaks]))


def main() -> None:
    """Runs the processes, and records what they measured."""
    results, rows = {}, []
    for dtype in ("float32", "bfloat16"):
        with tempfile.TemporaryDirectory() as folder:
            for call in (f"make({folder!r}, {dtype!r})", f"measure({folder!r})"):
                code = f"from benchmarks.loading_memory import *; {call}"
                command = [sys.executable, "-c", code]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        weights, base, peak = json.loads(done.stdout.splitlines()[-1])
        results[dtype] = {"weights": weights, "base": base, "peak": peak}
        megabytes = [f"{n / 1e6:,.0f}" for n in (weights, base, peak - base)]
        rows.append([dtype, *megabytes, f"{(peak - base) / weights:.2f}"])
    table = {
        "title": "Loading a Hugging Face folder, compared with transformers",
        "columns": ["files", "weights, MB", "imports, MB", "taken, MB", "ratio"],
        "rows": rows,
        "notes": f"The limit is {LIMIT}. Taken is the peak less that of the imports.",
    }
    write(RESULTS, "loading_memory", environment(), results, [table])


if __name__ == "__main__":
    main()
