"""The most memory that `ki.hub.load` takes, as a multiple of the float32 weights.

    KERAS_BACKEND=torch python -m benchmarks.loading_memory [--dtype bfloat16]

A child process loads a tiny model first, so that everything is imported, and then a
random one of 250 MB. Both peaks are its `ru_maxrss`, which counts mapped files too.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

from benchmarks.record import RESULTS, environment, write

SIZES = {"hidden_size": 640, "intermediate_size": 1728, "num_hidden_layers": 10}
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
LIMIT = 2.2


def make(folder: str, dtype: str, sizes: dict) -> None:
    """Saves a random Llama as transformers does."""
    import torch
    import transformers

    common = {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 16_384}
    config = transformers.LlamaConfig(**common, **sizes, tie_word_embeddings=True)
    config.architectures = ["LlamaForCausalLM"]
    model = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype))
    model.save_pretrained(folder)


def measure(folder: str) -> dict:
    """Bytes of the weights in float32, and what loading took beyond the imports."""
    import keras_idea as ki

    def peak() -> int:
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    ki.hub.load(f"{folder}/tiny")
    base = peak()
    model = ki.hub.load(f"{folder}/whole")
    return {"weights": 4 * model.count_params(), "base": base, "peak": peak()}


def main() -> None:
    """Runs the children, and records what they measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--output", default=str(RESULTS))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, sizes in (("tiny", TINY), ("whole", SIZES)):
            code = f"from benchmarks.loading_memory import make; make({folder!r} + "
            code += f"'/{name}', {options.dtype!r}, {sizes!r})"
            subprocess.run([sys.executable, "-c", code], check=True)
        command = [sys.executable, "-m", "benchmarks.loading_memory", "--child", folder]
        found = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(found.stdout.splitlines()[-1])
    taken = result["peak"] - result["base"]
    row = [options.dtype, *(f"{result[k] / 1e6:,.0f}" for k in ("weights", "base"))]
    row += [f"{taken / 1e6:,.0f}", f"{taken / result['weights']:.2f}"]
    table = {
        "title": "Loading a Hugging Face folder, compared with transformers",
        "columns": ["files", "weights, MB", "imports, MB", "taken, MB", "ratio"],
        "rows": [row],
        "notes": f"The limit is {LIMIT}. Taken is the peak less that of the imports.",
    }
    stem = pathlib.Path(f"loading_memory-{options.dtype}").name
    write(options.output, stem, environment(), result, [table])


if __name__ == "__main__":
    main()
