"""The most memory that `ki.hub.load` takes, as a multiple of the float32 weights.

    KERAS_BACKEND=torch python -m benchmarks.loading_memory

A process loads a tiny Llama, so that everything is imported, and then random ones of
224 MB whose files are of another dtype each. The peaks are those of resident memory,
which Linux lets a process set back; they count mapped files too.
"""

import gc
import pathlib
import subprocess
import sys
import tempfile

from benchmarks.record import RESULTS, environment, write

DTYPES = ("bfloat16", "float32")
SIZES = {"hidden_size": 640, "intermediate_size": 1728, "num_hidden_layers": 10}
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
LIMIT = 2.2


def make(folder: str) -> None:
    """Saves random Llamas as transformers does."""
    import torch
    import transformers

    common = {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 16_384}
    for name, sizes in {"tiny": TINY, **dict.fromkeys(DTYPES, SIZES)}.items():
        config = transformers.LlamaConfig(**common, **sizes, tie_word_embeddings=True)
        config.bos_token_id, config.eos_token_id = 1, 2
        dtype = torch.bfloat16 if name == "bfloat16" else torch.float32
        transformers.LlamaForCausalLM(config).to(dtype).save_pretrained(
            f"{folder}/{name}"
        )


def peak() -> int:
    """The most bytes of this process that were resident since the last call."""
    status = pathlib.Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return 1024 * int(line.split()[1])


def main() -> None:
    """Loads the models, and records what that took."""
    results, rows = {}, []
    with tempfile.TemporaryDirectory() as folder:
        code = f"from benchmarks.loading_memory import make; make({folder!r})"
        subprocess.run([sys.executable, "-c", code], check=True)
        import keras_idea as ki

        ki.hub.load(f"{folder}/tiny", dtype="float32")
        base = peak()
        for dtype in DTYPES:
            weights = (
                4 * ki.hub.load(f"{folder}/{dtype}", dtype="float32").count_params()
            )
            taken = peak() - base
            gc.collect()
            results[dtype] = {"weights": weights, "base": base, "taken": taken}
            megabytes = [f"{n / 1e6:,.0f}" for n in (weights, base, taken)]
            rows.append([dtype, *megabytes, f"{taken / weights:.2f}"])
    table = {
        "title": "Loading a Hugging Face folder, compared with transformers",
        "columns": ["files", "weights, MB", "imports, MB", "taken, MB", "ratio"],
        "rows": rows,
        "notes": f"The limit is {LIMIT}. Taken is the peak less that of the imports.",
    }
    write(RESULTS, "loading_memory", environment(), results, [table])


if __name__ == "__main__":
    main()
