"""What data costs: waiting for batches, and making the token cache.

    KERAS_BACKEND=jax python benchmarks/data_speed.py
    KERAS_BACKEND=jax python benchmarks/data_speed.py --rounds 2 --megabytes 1

About three minutes on 2 CPU cores. The text is every `.txt` of the folder that
--text names, else of ../shared/data/text beside the repository, else the source text
of Python's standard library. Expected: less than 2 % of a demo-size train step is
spent waiting for its batch, and the cache is made at 0.8 or more of the speed of the
tokenizer's library alone, which has the documents in memory and writes nothing.
Writes benchmarks/results/data_speed.json and .md.
"""

import argparse
import dataclasses
import io
import itertools
import json
import os
import pathlib
import tempfile
import time

import keras
import numpy as np
import record
import rich.console
import rich.progress
import zstandard
from contestants import SHAPES, make_model
from ratio import paired_ratio

from keras_idea.data import (
    TextSource,
    TokenBatches,
    build_cache,
    load_text,
    load_vocabulary,
)

TEXT = record.REPOSITORY.parent / "shared" / "data" / "text"
TOKENS = 4096
# Characters of a document: about those of a web page.
DOCUMENT = 3000
# Batches that are read ahead before the clock starts (of grain's buffer of 500).
WARM_UP = 10


def main():
    arguments = _parse_arguments()
    console = rich.console.Console()
    facts = record.environment()
    documents = _documents(arguments)
    size = sum(len(text.encode()) for text in documents)
    with tempfile.TemporaryDirectory() as name, _progress(console) as progress:
        folder = pathlib.Path(name)
        source = _write_source(folder, documents)
        builds = {
            kind: measure_build(kind, folder, source, documents, arguments, progress)
            for kind in ("tokenizers", "sentencepiece", "bytes")
        }
        waits = measure_input(folder, source, arguments, progress)
    results = {"bytes": size, "documents": len(documents)}
    results |= {"build": builds, "input": waits}
    tables = [_build_table(size, len(documents), builds), _input_table(waits)]
    record.print_tables(tables)
    for path in record.write(arguments.output, "data_speed", facts, results, tables):
        console.print(f"written: {path}")


def measure_build(kind, folder, source, documents, arguments, progress):
    """Seconds of a library alone and of the whole cache, in turn.

    Args:
        kind: "tokenizers", "sentencepiece" or "bytes".
        folder: `pathlib.Path` of an empty folder.
        source: `TextSource` of the documents, as .jsonl.zst.
        documents: list of str.
        arguments: of the command line.
        progress: `rich.progress.Progress`.

    Returns:
        dict of numbers.
    """
    vocabulary, alone = _tokenizer(kind, folder, documents)
    task = progress.add_task(f"cache, {kind}", total=arguments.rounds + 1)
    seconds = {"library": [], "cache": []}
    cpu_seconds = {"library": [], "cache": []}
    for turn in range(arguments.rounds + 1):
        place = folder / f"{kind}-{turn}"
        rivals = {
            "library": alone,
            "cache": lambda p=place: build_cache(source, vocabulary, p, progress=False),
        }
        for name in list(rivals)[:: 1 if turn % 2 else -1]:
            start, cpu = time.perf_counter(), time.process_time()
            made = rivals[name]()
            if turn:
                seconds[name].append(time.perf_counter() - start)
                cpu_seconds[name].append(time.process_time() - cpu)
            if name == "cache":
                cache = made
            del made
        progress.advance(task)
    ratio = paired_ratio(seconds["library"], seconds["cache"])
    cpu_ratio = paired_ratio(cpu_seconds["library"], cpu_seconds["cache"])
    return {
        "seconds": seconds,
        "CPU seconds": cpu_seconds,
        "tokens": len(cache),
        "speed, cache / library": dataclasses.asdict(ratio),
        "CPU time, library / cache": dataclasses.asdict(cpu_ratio),
    }


def _tokenizer(kind, folder, documents):
    """A vocabulary, and a function that runs its library alone as fast as it can."""
    if kind == "bytes":
        return load_vocabulary("bytes"), lambda: [
            np.frombuffer(text.encode(), "uint8").astype("<u2") for text in documents
        ]
    lines = [line for text in documents[:300] for line in text.splitlines()]
    if kind == "sentencepiece":
        import sentencepiece

        path, model = folder / "tokenizer.model", io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="bpe",
            vocab_size=TOKENS,
            hard_vocab_limit=False,
            byte_fallback=True,
            minloglevel=2,
        )
        path.write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        cores = len(os.sched_getaffinity(0))
        return load_vocabulary(path), lambda: processor.encode(
            documents, num_threads=cores
        )
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return load_vocabulary(
        folder / "tokenizer.json"
    ), lambda: tokenizer.encode_batch_fast(documents, add_special_tokens=False)


def measure_input(folder, source, arguments, progress):
    """Seconds a train step waits for its batch, and whether reading slows it.

    The same model is fitted on batches of the cache and on batches that lie in
    memory, in turn, each from an iterator that goes on from turn to turn. The clock
    runs while `fit`'s own thread asks for the next batch.

    Args:
        folder: `pathlib.Path`, where the cache lies or is made.
        source: `TextSource`.
        arguments: of the command line.
        progress: `rich.progress.Progress`.

    Returns:
        dict of numbers.
    """
    shape = SHAPES[arguments.shape]
    vocabulary = load_vocabulary("bytes")
    shape = dataclasses.replace(shape, vocabulary_size=vocabulary.vocabulary_size)
    cache = build_cache(source, vocabulary, folder / "input", progress=False)
    batches = TokenBatches(cache, shape.sequence_length, shape.batch_size)
    dataset = batches.dataset()
    ready = [dataset[step] for step in range(32)]
    rows = {"cache": _Timed(dataset), "memory": _Timed(itertools.cycle(ready))}
    model = make_model("decoder", shape, shape.hidden_dim, prunable=False)
    task = progress.add_task("train steps", total=2 * (arguments.rounds + 1))
    steps = {name: [] for name in rows}
    waits = {name: [] for name in rows}
    cpu = {name: [] for name in rows}
    for turn in range(arguments.rounds + 1):
        for name in list(rows)[:: 1 if turn % 2 else -1]:
            model.fit(rows[name].batches(), steps_per_epoch=WARM_UP, verbose=0)
            rows[name].seconds = 0.0
            start, cpu_start = time.perf_counter(), time.process_time()
            model.fit(rows[name].batches(), steps_per_epoch=arguments.steps, verbose=0)
            if turn:
                steps[name].append((time.perf_counter() - start) / arguments.steps)
                waits[name].append(rows[name].seconds / arguments.steps)
                cpu[name].append((time.process_time() - cpu_start) / arguments.steps)
            progress.advance(task)
    shares = np.asarray(waits["cache"]) / np.asarray(steps["cache"])
    return {
        "shape": str(shape),
        "seconds a step": steps,
        "seconds waited a step": waits,
        "share of the step": {
            "median": float(np.median(shares)),
            "largest": float(shares.max()),
        },
        "step, cache / memory": dataclasses.asdict(
            paired_ratio(steps["cache"], steps["memory"])
        ),
        "CPU seconds a step": cpu,
        "CPU time of a step, cache / memory": dataclasses.asdict(
            paired_ratio(cpu["cache"], cpu["memory"])
        ),
    }


class _Timed:
    """One iterator for several calls of `fit`, timed while it makes a batch."""

    def __init__(self, batches):
        self._iterator, self.seconds = iter(batches), 0.0

    def batches(self):
        """A generator, which `fit` knows."""
        while True:
            start = time.perf_counter()
            batch = next(self._iterator)
            self.seconds += time.perf_counter() - start
            yield batch


def _documents(arguments):
    """Real text cut into documents of whole lines."""
    folder = pathlib.Path(arguments.text or TEXT)
    if folder.is_dir():
        text = "\n".join(p.read_text() for p in sorted(folder.rglob("*.txt")))
    else:
        text = load_text("stdlib").train.tobytes().decode(errors="ignore")
    text, documents, start = text[: int(arguments.megabytes * 1e6)], [], 0
    while start < len(text):
        end = text.find("\n", start + DOCUMENT)
        end = len(text) if end < 0 else end + 1
        documents.append(text[start:end])
        start = end
    return [text for text in documents if text.strip()]


def _write_source(folder, documents):
    """The documents in four files .jsonl.zst, as DCLM's come."""
    compress = zstandard.ZstdCompressor().compress
    (folder / "text").mkdir()
    for index, part in enumerate(np.array_split(np.arange(len(documents)), 4)):
        lines = (json.dumps({"text": documents[i]}) + "\n" for i in part)
        path = folder / "text" / f"part-{index}.jsonl.zst"
        path.write_bytes(compress("".join(lines).encode()))
    return TextSource(folder / "text")


def _build_table(size, documents, builds):
    rows = []
    for kind, found in builds.items():
        ratio = found["speed, cache / library"]
        rates = {
            name: f"{size / 1e6 / np.median(seconds):.1f}"
            for name, seconds in found["seconds"].items()
        }
        interval = f"{ratio['low']:.2f} to {ratio['high']:.2f}"
        aim = "" if kind == "bytes" else "0.80"
        row = [kind, rates["library"], rates["cache"], f"{ratio['median']:.2f}"]
        cpu = f"{found['CPU time, library / cache']['median']:.2f}"
        rows.append([*row, interval, f"{ratio['of_fast']:.2f}", cpu, aim])
    return {
        "title": f"Token cache of {size / 1e6:.1f} MB, {documents:,} documents",
        "columns": [
            "tokenizer",
            "library alone, MB/s",
            "cache, MB/s",
            "cache / library",
            "95 %",
            "of quartiles",
            "CPU time, library / cache",
            "aim",
        ],
        "rows": rows,
        "notes": "The library has the documents in memory, in one call on all cores. "
        "The cache's time is from .jsonl.zst files to files on the disk, checksums "
        "and fsync among it. CPU time counts all threads and stands a busy machine "
        "better. (Of bytes there is no library: NumPy's copy of the "
        "encoded text stands for it.)",
    }


def _input_table(waits):
    share = waits["share of the step"]
    step = 1e3 * np.median(waits["seconds a step"]["cache"])
    wait = 1e3 * np.median(waits["seconds waited a step"]["cache"])
    memory = 1e3 * np.median(waits["seconds waited a step"]["memory"])
    return {
        "title": f"Train step from the cache, {waits['shape']}",
        "columns": ["", "measured", "aim"],
        "rows": [
            ["train step, ms", f"{step:.1f}", ""],
            ["waiting for its batch, ms", f"{wait:.3f}", ""],
            ["the same, batches in memory, ms", f"{memory:.3f}", ""],
            ["share of the step, median", f"{100 * share['median']:.2f} %", "2 %"],
            ["share of the step, largest", f"{100 * share['largest']:.2f} %", ""],
            *(
                [
                    name,
                    "{median:.3f} ({low:.3f} to {high:.3f})".format(**waits[name]),
                    "",
                ]
                for name in (
                    "step, cache / memory",
                    "CPU time of a step, cache / memory",
                )
            ),
        ],
        "notes": "Waiting is measured in the thread of `fit`, while grain reads ahead "
        "in others; whether these slow the step down is what the last two rows say, "
        "of which the last stands a busy machine better.",
    }


def _progress(console):
    return rich.progress.Progress(
        *rich.progress.Progress.get_default_columns(),
        rich.progress.TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def _parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", help="folder of .txt files")
    parser.add_argument(
        "--megabytes", type=float, default=10.0, help="text used (default: 10)"
    )
    parser.add_argument(
        "--shape", default="small", choices=SHAPES, help="default: small"
    )
    parser.add_argument(
        "--steps", type=int, default=40, help="steps of a round (default: 40)"
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="measured rounds (default: 7)"
    )
    parser.add_argument(
        "--output",
        default=str(record.REPOSITORY / "benchmarks" / "results"),
        help="folder, or file ending in .json or .md (default: benchmarks/results)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    main()
