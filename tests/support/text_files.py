"""Files that tests read, and tokenizers that are made in a moment."""

import gzip
import io
import json

import zstandard

TEXTS = [
    "The first document.",
    "Zweites: Grüße aus München, 北京 ☃ 🎉",
    "third\nof three lines\n\nand a blank one",
    "the end",
]


def jsonl(texts, field="text"):
    """Bytes of JSON lines, each with another field beside the text."""
    records = [{"url": f"page {i}", field: text} for i, text in enumerate(texts)]
    return b"".join(json.dumps(r, ensure_ascii=False).encode() + b"\n" for r in records)


def zst(data, frames=1):
    """Bytes of a Zstandard file of several frames."""
    compress = zstandard.ZstdCompressor().compress
    size = -(-len(data) // frames)
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(map(compress, parts))


def gz(data):
    return gzip.compress(data)


def parquet(columns):
    """Bytes of a parquet file of several row groups."""
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table, file, row_group_size=2)
    return file.getvalue()


def write(folder, files):
    """Writes a dict of relative path to bytes, and returns the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def huggingface_file(path, special="<|endoftext|>", merges=300):
    """Writes a byte-level BPE `tokenizer.json`, trained on `TEXTS`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=merges,
        special_tokens=[special],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 5, trainer)
    tokenizer.save(str(path))
    return path


def sentencepiece_file(path, **options):
    """Writes a SentencePiece `.model` with byte fallback, trained on `TEXTS`."""
    import sentencepiece

    model = io.BytesIO()
    settings = {
        "model_type": "bpe",
        "vocab_size": 320,
        "hard_vocab_limit": False,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
        "minloglevel": 2,
        "num_threads": 1,
    }
    lines = [line for text in TEXTS * 5 for line in text.splitlines()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, **settings | options
    )
    path.write_bytes(model.getvalue())
    return path
