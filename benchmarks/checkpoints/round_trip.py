"""Is what leaves what was made? A preset exported, each file in its own library.

    KERAS_BACKEND=torch python -m benchmarks.checkpoints.round_trip NAME PRESET TEXT

Exports a preset as a Hugging Face folder and as GGUF files (float32, Q8_0), loads each
in a fresh process by transformers, llama.cpp and KerasHub, without keras_idea, and
compares the token ids of TEXT and of ten texts in five languages and code, the logits
of a row, perplexity per token and greedy tokens. Token ids are compared with those of
the preset's tokenizer as `keras_idea.hub.load` loads it. Writes a cell of
benchmarks/results/checkpoints/round_trip/. Speeds count on a quiet machine only.
"""

import argparse
import importlib.metadata
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from benchmarks import record
from tests.support.ten_texts import TEXTS

RESULTS = record.REPOSITORY / "benchmarks" / "results" / "checkpoints" / "round_trip"
#: What Gemma needs before every sequence.
GEMMA_START = 2
DTYPES = ("float32", "q8_0")
#: Row of the table -> library, and the file that it reads.
_THEIRS = "Hugging Face folder, transformers"
ROWS = {
    "preset, KerasHub": ("keras_hub", "preset"),
    _THEIRS: ("transformers", "hf"),
    "GGUF in float32, llama.cpp": ("llama_cpp", "float32.gguf"),
    "GGUF in Q8_0, llama.cpp": ("llama_cpp", "q8_0.gguf"),
}


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints.round_trip")
    parser.add_argument("name", help="of the cell, such as smollm2-wide")
    parser.add_argument("preset", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, help="of GGUF files")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        (folder / "preset").symlink_to(arguments.preset.resolve())
        text = folder / "text.txt"
        text.write_text(arguments.text.read_text("utf-8")[:20_000], "utf-8")
        (folder / "texts.json").write_text(json.dumps(TEXTS))
        sizes = exported(folder, arguments.dtypes)
        tokens = _alone("keras_idea", folder / "preset", text, *_texts(folder))
        found = {
            row: loaded(folder, library, file)
            for row, (library, file) in ROWS.items()
            if file in sizes
        }
        rows = compared(found, sizes, tokens, folder)
    facts = record.environment()
    for package in ("keras-hub", "transformers", "gguf", "llama-cpp-python"):
        facts["versions"][package] = importlib.metadata.version(package)
    facts["command"] = (
        f"python -m benchmarks.checkpoints.round_trip {arguments.name} ..."
    )
    arguments.results.mkdir(parents=True, exist_ok=True)
    path = arguments.results / f"{arguments.name}.json"
    path.write_text(json.dumps({"rows": rows, **facts}, indent=1) + "\n")
    print(json.dumps(rows, indent=1))


def exported(folder: pathlib.Path, dtypes: list[str]) -> dict[str, int]:
    """Exports the preset by the command line; bytes of each file."""
    preset, export = (
        folder / "preset",
        [sys.executable, "-m", "keras_idea_cli", "export"],
    )
    run(*export, preset, "--hf", folder / "hf")
    for dtype in dtypes:
        gguf = folder / f"{dtype}.gguf"
        run(*export, preset, "--gguf", gguf, "--gguf-dtype", dtype)
    return {
        file: sum(p.stat().st_size for p in _files(folder / file))
        for file in ("preset", "hf", *(f"{dtype}.gguf" for dtype in dtypes))
    }


def loaded(folder: pathlib.Path, library: str, file: str) -> dict:
    """What a library computes with a file; all judge transformers' token ids."""
    ids = folder / "ids.json"
    if not ids.exists():
        text = (folder / "hf", folder / "text.txt", "--only-ids")
        own = _alone("transformers", *text)["ids"]
        ids.write_text(json.dumps(own))
    start = ("--start", GEMMA_START) if "gemma" in _class(folder / "preset") else ()
    more = (*_texts(folder)[:2], "--logits", folder / f"{file}.npy")
    model, text = folder / file, folder / "text.txt"
    return _alone(library, model, text, "--ids", ids, *more, *start)


def _texts(folder):
    return ("--texts", folder / "texts.json", "--only-ids")


def compared(
    found: dict[str, dict], sizes: dict[str, int], tokens: dict, folder: pathlib.Path
) -> dict[str, dict]:
    """Each row beside transformers' row, and its tokens beside the preset's own."""
    logits = {row: np.load(folder / f"{ROWS[row][1]}.npy") for row in found}
    theirs = found[_THEIRS]
    return {
        row: {
            "megabytes": round(sizes[ROWS[row][1]] / 1e6, 1),
            "perplexity": math.exp(one["nats"]),
            "nats": one["nats"],
            "greedy tokens equal": _equal(one["greedy"], theirs["greedy"]),
            "greedy tokens": sum(map(len, theirs["greedy"])),
            "logits differ by": float(np.abs(logits[row] - logits[_THEIRS]).max()),
            "logits' standard deviation": float(logits[_THEIRS].std()),
            "token ids equal": one["ids"] == tokens["ids"],
            "texts with equal ids": sum(map(_same, one["texts"], tokens["texts"])),
            "texts": len(tokens["texts"]),
            "tokens generated a second": round(one["tokens_s"], 1),
            "peak MiB": round(one["peak_mib"]),
        }
        for row, one in found.items()
    }


def _same(ids: list[int], theirs: list[int]) -> bool:
    return ids == theirs


def _equal(ours: list[list[int]], theirs: list[list[int]]) -> int:
    """Tokens up to the first of each text that differs."""
    return sum(
        next((i for i, pair in enumerate(pairs) if pair[0] != pair[1]), len(pairs))
        for pairs in (
            list(zip(a, b, strict=True)) for a, b in zip(ours, theirs, strict=True)
        )
    )


def _alone(library, model, text, *options):
    module = "benchmarks.checkpoints.alone"
    words = [sys.executable, "-m", module, library, model, text, *options]
    return json.loads(run(*words).splitlines()[-1])


def run(*words: object) -> str:
    """Runs a command, whose errors are shown; what it prints."""
    done = subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=record.REPOSITORY,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    return done.stdout


def _class(preset: pathlib.Path) -> str:
    """The class of a preset's backbone, in small letters."""
    config = json.loads((preset / "config.json").read_text("utf-8"))
    return str(config["class_name"]).lower()


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    return [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]


if __name__ == "__main__":
    main()
