"""A smaller vocabulary, and what it costs; nothing is trained.

    KERAS_BACKEND=torch python -m benchmarks.checkpoints.vocabulary smollm2 SOURCE \
        --text ../shared/data/text

SOURCE is what `keras_idea.hub.load` takes. The tokens that stay are those that
OpenWebText's training text uses most. Each cell is a file of --folder, with the machine
it ran on; what is there is not computed again. `--table` writes
benchmarks/results/vocabulary.md of all cells, with narrower FFNs of the study of
released checkpoints beside them.
"""

import argparse
import functools
import json
import math
import pathlib
import time

from benchmarks import record
from benchmarks.checkpoints.texts import HELD_OUT, WINDOW, read_texts

RESULTS = record.REPOSITORY / "benchmarks" / "results"
FOLDER = RESULTS / "checkpoints" / "vocabulary"
#: Checkpoint -> tokens that stay; 0: all.
SIZES = {"smollm2": (0, 16_384, 32_768, 8_192), "gemma3": (0, 65_536, 16_384, 32_768)}
#: Characters of each held-out text that are judged.
JUDGED = 7_000
TITLES = {"smollm2": "SmolLM2-135M-Instruct", "gemma3": "Gemma 3 270M"}


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints.vocabulary")
    parser.add_argument("name", nargs="?", choices=SIZES)
    parser.add_argument("source", nargs="?", help="folder, preset or GGUF file")
    parser.add_argument("--text", type=pathlib.Path, default="../shared/data/text")
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER)
    parser.add_argument("--table", action="store_true", help="run nothing: the table")
    arguments = parser.parse_args()
    if arguments.table:
        text = markdown(read(arguments.folder), RESULTS / "checkpoints")
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
    paths = {size: arguments.folder / f"{name}-{size}.json" for size in SIZES[name]}
    paths = {size: path for size, path in paths.items() if not path.exists()}
    wide = ki.hub.load(arguments.source, "float32") if paths else None
    lines = (arguments.text / "openwebtext" / "train.jsonl").read_text("utf-8")
    texts = [json.loads(line)["text"] for line in lines.splitlines()]
    for size, path in paths.items():
        began = time.monotonic()
        model = ki.shrink(wide, {"vocabulary": size}, texts) if size else wide
        cell = {"name": name, "size": size, **judged(model, arguments.text)}
        if not size:
            cell["tokens per byte of the study"] = of_the_study(model, arguments.text)
        cell |= {"seconds": round(time.monotonic() - began, 1), **facts}
        path.with_suffix(".new").write_text(json.dumps(cell, indent=1) + "\n")
        path.with_suffix(".new").rename(path)
        print({k: cell[k] for k in ("size", "parameters", *HELD_OUT)}, flush=True)


def judged(model, folder: pathlib.Path) -> dict:
    """Parameters; of each held-out text bytes, tokens and bits per byte."""
    from keras_idea.data import tokenizer_vocabulary
    from keras_idea.evaluation import TokenScorer, perplexity
    from keras_idea.hub.families import needs_start
    from keras_idea.hub.inputs import token_inputs

    tokenizer = model.preprocessor.tokenizer
    start = tokenizer.start_token_id if needs_start(type(model.backbone)) else None
    vocabulary = tokenizer_vocabulary(tokenizer)
    found: dict = {"parameters": model.count_params()}
    for domain in HELD_OUT:
        text = held_out(folder, domain)[:JUDGED]
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


def of_the_study(model, folder: pathlib.Path) -> dict[str, float]:
    """Tokens per byte of the held-out tokens of the study of released checkpoints."""
    from keras_idea.data import tokenizer_vocabulary

    sizes = tokenizer_vocabulary(model.preprocessor.tokenizer).token_bytes
    texts = read_texts(folder, model)
    judged = {domain: texts.judged(domain)[1:] for domain in HELD_OUT}
    return {domain: len(ids) / sizes[ids].sum() for domain, ids in judged.items()}


def held_out(folder: pathlib.Path, domain: str) -> str:
    """The text that is judged, as the study of released checkpoints reads it."""
    if domain == "wikitext2":
        return (folder / "wikitext2" / "test.txt").read_text("utf-8")
    lines = (folder / "openwebtext" / "valid.jsonl").read_text("utf-8").splitlines()
    return "".join(f"{json.loads(line)['text']}\n\n" for line in lines)


def read(folder: pathlib.Path) -> list[dict]:
    """All cells of a folder."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def markdown(cells: list[dict], study: pathlib.Path) -> str:
    """The page of the cells, and of narrower FFNs in the folder of the `study`."""
    lines = [
        "# A smaller vocabulary",
        "",
        '`ki.shrink(lm, {"vocabulary": N}, texts)` with texts of OpenWebText, and '
        "narrower FFNs of [the study of released checkpoints](checkpoints.md) "
        "(`activation`, `refit=True`). Nothing is trained. Megabytes in bfloat16. Of "
        "two held-out texts: tokens per byte, and how many bits per byte are added. "
        f"Lower is better. Windows of {WINDOW} tokens; {JUDGED:,} characters of each "
        "text, of FFNs 8,192 tokens. The weights were dequantized from 4 bits. One set "
        "of texts.",
    ]
    for name, title in TITLES.items():
        found = [cell for cell in cells if cell["name"] == name]
        if found:
            lines += ["", f"## {title}", "", *table(found, study / name)]
    machines = {
        f"{c['hardware']['cpu']}, {c['hardware']['cores']} cores; {c['date'][:10]}; "
        f"keras {c['versions']['keras']}"
        for c in cells
    }
    return "\n".join([*lines, "", *(f"- {m}" for m in sorted(machines))]) + "\n"


def table(found: list[dict], study: pathlib.Path) -> list[str]:
    """The lines of a checkpoint's table."""
    [wide] = [cell for cell in found if not cell["size"]]
    bits = [wide[domain]["bits per byte"] for domain in HELD_OUT]
    per_byte = [_per_byte(wide[domain]) for domain in HELD_OUT]
    names = ", ".join(HELD_OUT)
    lines = [
        f"| what is cut | parameters | MB | tokens per byte: {names} | bits per byte |",
        "|---|---|---|---|---|",
        _row("nothing", wide["parameters"], per_byte, [f"{b:.3f}" for b in bits]),
    ]
    for cell in sorted(found, key=lambda c: -c["size"]):
        if cell["size"]:
            added = [
                f"{cell[domain]['bits per byte'] - before:+.3f}"
                for domain, before in zip(HELD_OUT, bits, strict=True)
            ]
            what = f"the vocabulary, {cell['size']:,} tokens stay"
            tokens = [_per_byte(cell[domain]) for domain in HELD_OUT]
            lines.append(_row(what, cell["parameters"], tokens, added))
    for share, parameters, added in narrower(wide, study):
        what = f"FFNs, {share:.0%} of the neurons stay"
        told = [f"{bits:+.3f}" for bits in added]
        lines.append(_row(what, parameters, per_byte, told))
    return lines


def narrower(wide: dict, study: pathlib.Path) -> list[tuple[float, int, list[float]]]:
    """Of the study's FFNs the share, the parameters, and bits per byte added."""
    before = json.loads((study / "1-as_it_is.json").read_text())
    found = []
    for path in sorted(study.glob("0.*-activation+refit.json"), reverse=True):
        cell = json.loads(path.read_text())
        added = [
            (cell[domain] - before[domain])
            / math.log(2)
            * wide["tokens per byte of the study"][domain]
            for domain in HELD_OUT
        ]
        found.append((cell["share"], cell["parameters"], added))
    return found


def _per_byte(judged: dict) -> float:
    return judged["tokens"] / judged["bytes"]


def _row(what: str, parameters: int, tokens: list[float], bits: list[str]) -> str:
    sizes = f"{parameters / 1e6:.1f}M | {2 * parameters / 1e6:.0f}"
    per_byte = ", ".join(f"{number:.3f}" for number in tokens)
    return f"| {what} | {sizes} | {per_byte} | {', '.join(bits)} |"


if __name__ == "__main__":
    main()
