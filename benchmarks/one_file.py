"""One preset that holds three widths against three presets: bytes and load times.

    python -m benchmarks.one_file [--model-dim 384 --layers 6 --hidden-dim 1536]

Prints bytes on disk, and the median seconds of several loads, taken in turn: of each
width from its own preset, and from the full model's by `hub.load(..., width=...)`.
"""

import argparse
import pathlib
import statistics
import tempfile
import time
from typing import Any

import keras_hub

import keras_idea as ki
from keras_idea.hub.widths import write_widths

_VOCABULARY = 4096


def stock_model(model_dim: int, layers: int, hidden_dim: int) -> Any:
    """A Llama 3 without a tokenizer, with random weights."""
    backbone = keras_hub.models.Llama3Backbone(
        vocabulary_size=_VOCABULARY,
        num_layers=layers,
        num_query_heads=8,
        num_key_value_heads=8,
        hidden_dim=model_dim,
        intermediate_dim=hidden_dim,
        dtype="float32",
    )
    return keras_hub.models.Llama3CausalLM(backbone=backbone, preprocessor=None)


def size_of(folder: pathlib.Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Saves, loads in turn, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-dim", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--hidden-dim", type=int, default=1536)
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    full = stock_model(options.model_dim, options.layers, options.hidden_dim)
    most = options.hidden_dim
    widths = {"full": most, "medium": most // 2, "small": most // 4}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, neurons in widths.items():
            model = full if name == "full" else ki.sliced(full, neurons)
            print(f"{name}: {model.count_params():,} parameters")
            model.save_to_preset(str(folder / name))
        each = {name: size_of(folder / name) for name in widths}
        write_widths(folder / "full", widths)
        print(f"bytes: one {size_of(folder / 'full'):,}, three {sum(each.values()):,}")
        seconds: dict[tuple[str, str], list[float]] = {}
        for turn in range(options.turns + 1):
            for name in widths:
                ways = {
                    "its own": (folder / name, None),
                    "one file": (folder / "full", name),
                }
                for way, (path, width) in ways.items():
                    start = time.perf_counter()
                    ki.hub.load(path, width=width)
                    if turn:
                        took = time.perf_counter() - start
                        seconds.setdefault((name, way), []).append(took)
    for (name, way), values in seconds.items():
        middle, low, high = statistics.median(values), min(values), max(values)
        print(f"{name}, {way}: {middle:.3f} s ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
