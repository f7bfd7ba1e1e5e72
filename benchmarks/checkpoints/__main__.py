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

RESULTS = record.REPOSITORY / "benchmarks" / "results"
PEAKS = (1e-4, 3e-4, 1e-3)


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
    parser.add_argument("--peaks", type=float, nargs="+", default=PEAKS)
    parser.add_argument("--arms", nargs="+", help="some arms, or ways")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no later")
    made = "a preset that `keras-idea train` made: judged, as the one arm and peak"
    parser.add_argument("--made", help=made)
    parser.add_argument("--save", type=pathlib.Path, help="folder of their presets")
    parser.add_argument("--table", action="store_true", help="run nothing: the table")
    told = parser.parse_args()
    if told.table:
        from benchmarks.checkpoints.table import write

        return write(told.folder, RESULTS)
    compute(told)


def compute(told: argparse.Namespace) -> None:
    """Computes the cells that are not there."""
    import keras

    import keras_idea as ki
    from benchmarks.checkpoints import cells
    from benchmarks.checkpoints.texts import read_texts

    until = time.monotonic() + 60 * told.minutes
    wanted = cells.untrained(told.name)
    if told.only == "recovered":
        wanted = cells.recovered(told.tokens, tuple(told.peaks), told.share or 0.67)
    wanted = [c for c in wanted if not told.arms or c.how in told.arms]
    if told.made:
        share, (how,), (peak,) = told.share or 0.67, told.arms, told.peaks
        wanted = [cells.Cell(share, how, told.tokens, peak)]
    elif told.only == "untrained" and told.share:
        wanted = [c for c in wanted if c.share in (told.share, 1.0)]
    folder = told.folder / told.name
    folder.mkdir(parents=True, exist_ok=True)
    first = ki.hub.load(told.source, "float32")
    texts, preprocessor = read_texts(told.text, first), first.preprocessor
    del first
    facts = record.environment()
    # Without the folders of this machine.
    places = {told.source: "SOURCE", told.made: "PRESET", str(told.text): "TEXT"}
    places |= {str(told.save): "PRESETS", str(told.folder): "FOLDER"}
    words = shlex.join(places.get(word, word) for word in sys.argv[1:])
    backend = keras.backend.backend()
    command = f"KERAS_BACKEND={backend} python -m benchmarks.checkpoints {words}"
    facts["command"] = command

    def load(source: str = told.source) -> keras.Model:
        model = ki.hub.load(source, "float32")
        model.preprocessor = None
        return model

    for cell in wanted:
        path = folder / f"{cell.name}.json"
        if path.exists() or time.monotonic() > until:
            continue
        began = time.monotonic()
        model = load(told.made) if told.made else cells.carry_out(cell, load, texts)
        found = cells.judged(model, texts)
        seconds = round(time.monotonic() - began, 1)
        found = {**vars(cell), **found, "seconds": seconds, **facts}
        path.with_suffix(".new").write_text(json.dumps(found, indent=1) + "\n")
        path.with_suffix(".new").rename(path)
        nats = ", ".join(f"{n} {found[n]:.4f}" for n in ("openwebtext", "wikitext2"))
        print(f"{cell.name}: {nats} nats per token, {seconds} s", flush=True)
        if told.save and not told.made:
            model.preprocessor = preprocessor
            print(ki.export.export_preset(model, told.save / cell.name), flush=True)
        keras.backend.clear_session(free_memory=True)


if __name__ == "__main__":
    main()
