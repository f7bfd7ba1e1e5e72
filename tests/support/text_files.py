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
