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
    arguments = parser.parse_args()
    if arguments.table:
        from benchmarks.checkpoints.table import write

        return write(arguments.folder, RESULTS)
    compute(arguments)


def compute(arguments: argparse.Namespace) -> None:
    """Computes the cells that are not there."""
    import keras

    import keras_idea as ki
    from benchmarks.checkpoints import cells
    from benchmarks.checkpoints.texts import read_texts

    until = time.monotonic() + 60 * arguments.minutes
    wanted = cells.untrained(arguments.name)
    if arguments.only == "recovered":
        wanted = cells.recovered(
            arguments.tokens, tuple(arguments.peaks), arguments.share or 0.67
        )
    wanted = [c for c in wanted if not arguments.arms or c.how in arguments.arms]
    if arguments.made:
        share, (how,), (peak,) = (
            arguments.share or 0.67,
            arguments.arms,
            arguments.peaks,
        )
        wanted = [cells.Cell(share, how, arguments.tokens, peak)]
    elif arguments.only == "untrained" and arguments.share:
        wanted = [c for c in wanted if c.share in (arguments.share, 1.0)]
    folder = arguments.folder / arguments.name
    folder.mkdir(parents=True, exist_ok=True)
    first = ki.hub.load(arguments.source, "float32")
    texts, preprocessor = read_texts(arguments.text, first), first.preprocessor
    del first
    facts = record.environment()
    # Without the folders of this machine.
    places = {
        arguments.source: "SOURCE",
        arguments.made: "PRESET",
        str(arguments.text): "TEXT",
    }
    places |= {str(arguments.save): "PRESETS", str(arguments.folder): "FOLDER"}
    words = shlex.join(places.get(word, word) for word in sys.argv[1:])
    facts["command"] = f"{record.prefix()} python -m benchmarks.checkpoints {words}"

    def load(source: str = arguments.source) -> keras.Model:
        model = ki.hub.load(source, "float32")
        model.preprocessor = None
        return model

    refits: dict = {}
    for cell in wanted:
        path = folder / f"{cell.name}.json"
        if path.exists() or time.monotonic() > until:
            continue
        began = time.monotonic()
        model = (
            load(arguments.made)
            if arguments.made
            else cells.carry_out(cell, load, texts, refits)
        )
        found = cells.judged(model, texts)
        seconds = round(time.monotonic() - began, 1)
        found = {**vars(cell), **found, "seconds": seconds, **facts}
        path.with_suffix(".new").write_text(json.dumps(found, indent=1) + "\n")
        path.with_suffix(".new").rename(path)
        nats = ", ".join(f"{n} {found[n]:.4f}" for n in ("openwebtext", "wikitext2"))
        print(f"{cell.name}: {nats} nats per token, {seconds} s", flush=True)
        if arguments.save and not arguments.made:
            model.preprocessor = preprocessor
            print(
                ki.export.export_preset(model, arguments.save / cell.name), flush=True
            )
        keras.backend.clear_session(free_memory=True)


if __name__ == "__main__":
    main()
