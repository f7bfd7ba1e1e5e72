"""Released checkpoints made smaller: `python -m benchmarks.checkpoints NAME SOURCE`.

    KERAS_BACKEND=tensorflow python -m benchmarks.checkpoints smollm2 SOURCE \
        --text ../shared/data/text --only untrained

SOURCE is what `keras_idea.hub.load` takes. Each cell is a file of --folder, with the
machine it ran on; what is there is not computed again. `--table` writes
benchmarks/results/checkpoints.md of all cells.
"""

import argparse
import json
import pathlib
import shlex
import sys
import time

from benchmarks import record
from benchmarks.checkpoints.table import write

RESULTS = record.RESULTS


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints")
    parser.add_argument("name", help="of the checkpoint: smollm2, gemma3")
    parser.add_argument("source", nargs="?", help="folder, preset or GGUF file")
    parser.add_argument("--text", type=pathlib.Path, default="../shared/data/text")
    parser.add_argument("--folder", type=pathlib.Path, default=RESULTS / "checkpoints")
    parser.add_argument("--only", default="untrained", help="untrained, recovered")
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--share", type=float, help="of the neurons (recovered: 0.67)")
    parser.add_argument("--peaks", type=float, nargs="+", default=(1e-4, 3e-4, 1e-3))
    parser.add_argument("--arms", nargs="+", help="some arms, or ways")
    parser.add_argument("--table", action="store_true", help="run nothing: the table")
    given = parser.parse_args()
    if given.table:
        write(given.folder, RESULTS)
    else:
        compute(given)


def compute(given: argparse.Namespace) -> None:
    """Computes the cells that are not there."""
    import keras

    import keras_idea as ki
    from benchmarks.checkpoints import cells
    from benchmarks.checkpoints.texts import read_texts

    if given.only == "recovered":
        share, peaks = given.share or 0.67, tuple(given.peaks)
        wanted = cells.recovered(given.tokens, peaks, share)
    else:
        wanted = cells.untrained(given.name)
        wanted = [c for c in wanted if given.share in (None, c.share) or c.share == 1.0]
    wanted = [c for c in wanted if not given.arms or c.how in given.arms]
    folder = given.folder / given.name
    folder.mkdir(parents=True, exist_ok=True)
    texts = read_texts(given.text, ki.hub.load(given.source, "float32"))
    facts = record.environment()
    # Without the folders of this machine.
    places = {given.source: "SOURCE", str(given.text): "TEXT"}
    places[str(given.folder)] = "FOLDER"
    words = shlex.join(places.get(word, word) for word in sys.argv[1:])
    facts["command"] = f"{record.prefix()} python -m benchmarks.checkpoints {words}"

    def load() -> keras.Model:
        model = ki.hub.load(given.source, "float32")
        model.preprocessor = None
        return model

    refits: dict = {}
    for cell in wanted:
        path = folder / f"{cell.name}.json"
        if path.exists():
            continue
        began = time.monotonic()
        found = cells.judged(cells.carry_out(cell, load, texts, refits), texts)
        seconds = round(time.monotonic() - began, 1)
        found = {**vars(cell), **found, "seconds": seconds, **facts}
        path.with_suffix(".new").write_text(json.dumps(found, indent=1) + "\n")
        path.with_suffix(".new").rename(path)
        nats = ", ".join(f"{n} {found[n]:.4f}" for n in ("openwebtext", "wikitext2"))
        print(f"{cell.name}: {nats} nats per token, {seconds} s", flush=True)
        keras.backend.clear_session(free_memory=True)


if __name__ == "__main__":
    main()
