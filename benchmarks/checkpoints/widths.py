"""One run for several widths of a checkpoint.

    KERAS_BACKEND=jax python -m benchmarks.checkpoints.widths smollm2 SOURCE \
        --text ../shared/data/text

The checkpoint is trained by `ki.ElasticCallback` at full width and at the shares of
`cells.SHARES`, in turn, with its own copy as teacher. Each width is judged alone, and
is a cell of --folder. Beside them stand the recoveries of one width each
(`benchmarks.checkpoints --only recovered`): at equal tokens, if `--tokens` are the sum
of theirs.
"""

import argparse
import json
import pathlib
import shlex
import sys
import time

import keras

import keras_idea as ki
from benchmarks import record
from benchmarks.checkpoints import cells
from benchmarks.checkpoints.texts import read_texts

HOW = "several widths, logits"


def trained(load, texts, tokens: int, peak: float) -> dict[float, keras.Model]:
    """Share of the neurons -> the model of that width, of one run."""
    keras.utils.set_random_seed(0)
    model, steps = load(), tokens // (cells.LENGTH * cells.BATCH)
    names = {share: f"of_{100 * share:.0f}" for share in cells.SHARES}
    widths = {name: cells.width_of(model, share) for share, name in names.items()}
    # The importance is measured in the first steps, while the rate rises.
    elastic = ki.ElasticCallback(widths, begin_step=steps // 12)
    cell = cells.Cell(1.0, "refit, logits", tokens, peak)  # as that arm is trained
    cells.fit(model, cell, texts, steps, peak, elastic, teacher=load)
    return {1.0: model} | {share: elastic.sliced(names[share]) for share in names}


def main() -> None:
    """Trains once, and writes a cell of each width."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints.widths")
    parser.add_argument("name", help="of the checkpoint: smollm2, gemma3")
    parser.add_argument("source", help="folder, preset or GGUF file")
    parser.add_argument("--text", type=pathlib.Path, default="../shared/data/text")
    results = record.REPOSITORY / "benchmarks" / "results" / "checkpoints"
    parser.add_argument("--folder", type=pathlib.Path, default=results)
    parser.add_argument("--tokens", type=int, default=196_608)
    parser.add_argument("--peak", type=float, default=3e-4)
    given = parser.parse_args()
    facts, began = record.environment(), time.monotonic()
    places = {given.source: "SOURCE", str(given.text): "TEXT"}
    places[str(given.folder)] = "FOLDER"
    words = shlex.join(places.get(word, word) for word in sys.argv[1:])
    facts["command"] = (
        f"{record.prefix()} python -m benchmarks.checkpoints.widths {words}"
    )
    texts = read_texts(given.text, ki.hub.load(given.source, "float32"))

    def load() -> keras.Model:
        model = ki.hub.load(given.source, "float32")
        model.preprocessor = None
        return model

    folder = given.folder / given.name
    folder.mkdir(parents=True, exist_ok=True)
    models = trained(load, texts, given.tokens, given.peak)
    for share, model in models.items():
        cell = cells.Cell(share, HOW, given.tokens, given.peak)
        found = {**vars(cell), **cells.judged(model, texts)}
        found |= {"seconds": round(time.monotonic() - began, 1), **facts}
        path = folder / f"{cell.name}.json"
        path.with_suffix(".new").write_text(json.dumps(found, indent=1) + "\n")
        path.with_suffix(".new").rename(path)
        print(cell.name, found["openwebtext"], found["wikitext2"], flush=True)


if __name__ == "__main__":
    main()
