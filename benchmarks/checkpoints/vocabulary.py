"""A smaller vocabulary, beside narrower FFNs of as many parameters; nothing is trained.

    KERAS_BACKEND=torch python -m benchmarks.checkpoints.vocabulary smollm2 SOURCE \
        --text ../shared/data/text

SOURCE is what `keras_idea.hub.load` takes. The tokens that stay are those that
OpenWebText's training text uses most. Each cell is a file of --folder, with the machine
it ran on; what is there is not computed again. `--table` writes
benchmarks/results/vocabulary.md of all cells.
"""

import argparse
import functools
import json
import pathlib
import time

from benchmarks import record

RESULTS = record.REPOSITORY / "benchmarks" / "results"
FOLDER = RESULTS / "checkpoints" / "vocabulary"
AS_IT_IS, VOCABULARY, NEURONS = "as it is", "vocabulary", "neurons"
#: Checkpoint -> tokens that stay.
SIZES = {
    "smollm2": (32_768, 16_384, 8_192),
    "gemma3": (131_072, 65_536, 32_768, 16_384),
}
#: Checkpoint -> characters of each held-out text that are judged.
JUDGED = {"smollm2": 24_000, "gemma3": 7_000}
TITLES = {"smollm2": "SmolLM2-135M-Instruct", "gemma3": "Gemma 3 270M"}
_DOMAINS = {"openwebtext": "OpenWebText", "wikitext2": "WikiText-2"}


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints.vocabulary")
    parser.add_argument("name", nargs="?", choices=SIZES)
    parser.add_argument("source", nargs="?", help="folder, preset or GGUF file")
    parser.add_argument("--text", type=pathlib.Path, default="../shared/data/text")
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER)
    parser.add_argument(
        "--only", nargs="+", help=f"{AS_IT_IS}, {VOCABULARY}, {NEURONS}"
    )
    parser.add_argument("--table", action="store_true", help="run nothing: the table")
    arguments = parser.parse_args()
    if arguments.table:
        text = markdown(read(arguments.folder))
        (RESULTS / "vocabulary.md").write_text(text, encoding="utf-8")
        return print(text)
    compute(arguments)


def compute(arguments: argparse.Namespace) -> None:
    """Computes the cells that are not there."""
    import keras

    import keras_idea as ki

    facts = record.environment()
    backend, name = keras.backend.backend(), arguments.name
    command = f"python -m benchmarks.checkpoints.vocabulary {name} SOURCE --text TEXT"
    facts["command"] = f"KERAS_BACKEND={backend} {command}"
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for how, size in planned(name):
        path = arguments.folder / f"{name}-{how.replace(' ', '_')}-{size}.json"
        if path.exists() or (arguments.only and how not in arguments.only):
            continue
        began = time.monotonic()
        model = ki.hub.load(arguments.source, "float32")
        model = made(model, name, how, size, arguments.text)
        cell = {"name": name, "how": how, "size": size, **judged(model, arguments)}
        cell |= {"seconds": round(time.monotonic() - began, 1), **facts}
        path.with_suffix(".new").write_text(json.dumps(cell, indent=1) + "\n")
        path.with_suffix(".new").rename(path)
        print({key: cell[key] for key in ("how", "size", "parameters", *_DOMAINS)})
        keras.backend.clear_session(free_memory=True)


def planned(name: str) -> list[tuple[str, int]]:
    """What is done, and the size: tokens that stay, or whose parameters go in FFNs.

    Of Gemma 3 no FFN is cut: all of its neurons have fewer parameters than the tokens.
    """
    sizes = SIZES[name]
    narrow = [(NEURONS, size) for size in sizes] if name == "smollm2" else []
    return [(AS_IT_IS, 0), *((VOCABULARY, size) for size in sizes), *narrow]


def made(model, name: str, how: str, size: int, folder: pathlib.Path):
    """The model of a cell."""
    import keras_idea as ki
    from benchmarks.checkpoints import cells
    from benchmarks.checkpoints.texts import read_texts

    if how == VOCABULARY:
        lines = (folder / "openwebtext" / "train.jsonl").read_text("utf-8").splitlines()
        texts = [json.loads(line)["text"] for line in lines]
        return ki.shrink(model, {VOCABULARY: size}, texts)
    if how == NEURONS:
        rows = read_texts(folder, model).rows(cells.CALIBRATION, cells.LENGTH, seed=0)
        data = cells.inputs(rows[:, :-1]), rows[:, 1:]
        backbone = model.backbone
        gone = (backbone.vocabulary_size - size) * backbone.hidden_dim
        each = 3 * backbone.hidden_dim * backbone.num_layers
        width = backbone.intermediate_dim - round(gone / each)
        return ki.shrink(model, {NEURONS: width}, data, refit=True, batch_size=8)
    return model


def judged(model, arguments: argparse.Namespace) -> dict:
    """Parameters; of each held-out text bytes, tokens and bits per byte."""
    from benchmarks.checkpoints.texts import WINDOW
    from keras_idea.data import tokenizer_vocabulary
    from keras_idea.evaluation import TokenScorer, perplexity
    from keras_idea.hub.families import needs_start
    from keras_idea.hub.inputs import token_inputs

    tokenizer = model.preprocessor.tokenizer
    start = tokenizer.start_token_id if needs_start(type(model.backbone)) else None
    vocabulary = tokenizer_vocabulary(tokenizer)
    found: dict = {"parameters": model.count_params()}
    for domain in _DOMAINS:
        text = held_out(arguments.text, domain)[: JUDGED[arguments.name]]
        ids = vocabulary.encode(text)
        if vocabulary.decode(ids) != text:
            raise SystemExit(f"{domain} does not decode to itself.")
        scorer = TokenScorer(model, WINDOW, functools.partial(token_inputs, model))
        options = {"stride": WINDOW, "start_id": start}
        score = perplexity(scorer, ids, vocabulary.token_bytes, **options)
        found[domain] = {
            "bytes": len(text.encode()),
            "tokens": len(ids),
            "bits per byte": score.bits_per_byte,
        }
    return found


def held_out(folder: pathlib.Path, domain: str) -> str:
    """The text that is judged, as the study of released checkpoints reads it."""
    if domain == "wikitext2":
        return (folder / "wikitext2" / "test.txt").read_text("utf-8")
    lines = (folder / "openwebtext" / "valid.jsonl").read_text("utf-8").splitlines()
    return "".join(f"{json.loads(line)['text']}\n\n" for line in lines)


def read(folder: pathlib.Path) -> list[dict]:
    """All cells of a folder."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def markdown(cells: list[dict]) -> str:
    """The page of the cells."""
    lines = [
        "# A smaller vocabulary",
        "",
        '`ki.shrink(lm, {"vocabulary": N}, texts)`, where the texts are OpenWebText\'s '
        "training part, beside FFNs that are narrower by as many parameters "
        "(`activation`, `refit=True`). Nothing is trained. Megabytes in bfloat16. Of "
        "two held-out texts: bits per byte in windows of 256 tokens, and tokens per "
        "byte in parentheses. Lower is better. The weights were dequantized from 4 "
        "bits.",
    ]
    for name, title in TITLES.items():
        found = [cell for cell in cells if cell["name"] == name]
        if found:
            lines += ["", f"## {title}", "", *table(found)]
    machines = {
        f"{c['hardware']['cpu']}, {c['hardware']['cores']} cores; {c['date'][:10]}; "
        f"keras {c['versions']['keras']}"
        for c in cells
    }
    return "\n".join([*lines, "", *(f"- {m}" for m in sorted(machines))]) + "\n"


def table(found: list[dict]) -> list[str]:
    """The lines of a checkpoint's table."""
    lines = [
        f"| what is cut | parameters | MB | {' | '.join(_DOMAINS.values())} |",
        "|---|---|---|---|---|",
    ]
    order = [AS_IT_IS, VOCABULARY, NEURONS]
    for cell in sorted(found, key=lambda c: (order.index(c["how"]), -c["size"])):
        what = {
            AS_IT_IS: "nothing",
            VOCABULARY: f"vocabulary: {cell['size']:,} stay",
            NEURONS: f"FFNs, as much as a vocabulary of {cell['size']:,}",
        }[cell["how"]]
        figures = " | ".join(_figures(cell[domain]) for domain in _DOMAINS)
        size = f"{cell['parameters'] / 1e6:.1f}M | {2 * cell['parameters'] / 1e6:.0f}"
        lines.append(f"| {what} | {size} | {figures} |")
    return lines


def _figures(judged: dict) -> str:
    tokens = judged["tokens"] / judged["bytes"]
    return f"{judged['bits per byte']:.3f} ({tokens:.3f})"


if __name__ == "__main__":
    main()
