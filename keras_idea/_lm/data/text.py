"""A text as tokens: found, read, tokenized once, some of it held out."""

import dataclasses
import itertools
import math
import os
import pathlib
import warnings
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from keras_idea._lm.data import conversations as chats
from keras_idea._lm.data import documents as reading
from keras_idea._lm.data.documents import STDLIB, Files, Paths
from keras_idea._lm.data.tokens import Tokens, stored
from keras_idea._lm.data.vocabulary import CHUNK, Ids, Vocabulary, byte_vocabulary
from keras_idea._validation import check_choice, check_number, plural
from keras_idea.errors import ArgumentError, TextError

# Changes with what a cached file holds: those of another one are made again.
_FORMAT = 2
# Documents that are tokenized at once, and bytes of the sample for a new tokenizer.
_AT_ONCE, _SAMPLE = 64, 16_000_000


def open_text(
    *,
    paths: Paths | None = None,
    dataset: str | None = None,
    field: str = "text",
    documents: str = "file",
    pattern: str | None = None,
    validation_paths: Paths | None = None,
    validation_fraction: float = 0.05,
    max_megabytes: float | None = None,
    chat: bool = False,
    template: str | os.PathLike | None = None,
    length: int | None = None,
    vocabulary: Vocabulary | Callable[[str], Vocabulary] | None = None,
    cache: str | os.PathLike | None = None,
) -> Tokens:
    """Opens a text as tokens; the first time, tokenizes it.

    Of several files, whole files are held out, chosen by a hash of their names: the
    same on every machine. If that cannot come near to `validation_fraction`, the end of
    the text is held out; of conversations, prompts by their hash.

    Args:
        paths: path, or several. Text (`.txt`, `.text`, `.md`), JSON lines (`.jsonl`,
            `.ndjson`) and `.parquet`; `.gz` and `.zst`, too; folders of them. Defaults
            to None: "stdlib", the source text of Python's standard library.
        dataset: str or None. The split "train" of a Hugging Face data set in place of
            `paths`, streamed: "NAME:CONFIG@REVISION", the last two if needed.
        field: str. The key or column of a record's text. Defaults to "text".
        documents: str. What a document of a text file is: "file", "paragraphs" or
            "lines". Defaults to "file".
        pattern: str or None. Reads the files of folders that match, such as "*.py".
        validation_paths: path, or several. The text held out.
        validation_fraction: float. The share held out without it. Defaults to 0.05.
        max_megabytes: float or None. Warns, and reads no more. Defaults to None: all.
        chat: bool. Whether the records are conversations. Defaults to False.
        template: str, path or None. For conversations: the chat template, or the
            folder of a checkpoint that has one.
        length: int or None. For conversations: the tokens of a row.
        vocabulary: `Vocabulary`, or a function that makes one of a sample of the text,
            a str. Defaults to None: bytes.
        cache: path or None. A folder for the tokens, which are then mapped from a
            file. Defaults to None: they stay in memory.

    Returns:
        `Tokens`.

    Raises:
        TextError: If there is no text, or a file or record cannot be read.
        MissingPackage: If a package that reads a format is not installed.

    Example:
    >>> tokens = open_text(paths="text.txt")
    >>> x, y = next(iter(tokens.batches(length=16, batch_size=4)))
    >>> x.shape
    (4, 16)
    """
    check_choice("documents", documents, reading.SPLITS)
    check_number("validation_fraction", validation_fraction, minimum=0.0, maximum=1.0)
    if chat and (length is None or template is None or dataset is not None):
        raise ArgumentError(
            "`chat` needs `paths`, `template` and `length`. Give the folder of the "
            "checkpoint as `template`, and the tokens of a sequence as `length`."
        )
    most = math.inf if max_megabytes is None else max_megabytes * 1e6
    paths = STDLIB if paths in (None, [STDLIB], (STDLIB,)) else paths
    name: str | None = dataset
    files: Files = {}
    if dataset is None:
        name, files = reading.name_of(paths), reading.find_files(paths, pattern)
    truncated = most < reading.size_of(files.values())
    if truncated and paths != STDLIB:
        warnings.warn(
            f"`max_megabytes={max_megabytes:g}` truncates the text ({name}). Raise it "
            "to read all of it.",
            stacklevel=2,
        )
    files = reading.first_bytes(files, most)
    fraction = None
    if validation_paths is not None:
        held_out: Files = reading.find_files(validation_paths, pattern)
    elif chat:
        held_out, fraction = files, validation_fraction
    else:
        held_out = reading.held_out_files(files, validation_fraction)
        files = {name: file for name, file in files.items() if name not in held_out}
        most -= reading.size_of(held_out.values())
    part = _Part(files, most, dataset, field, documents, fraction, not truncated)
    vocabulary = byte_vocabulary() if vocabulary is None else vocabulary
    if not isinstance(vocabulary, Vocabulary):
        vocabulary = vocabulary(part.sample(chat))
    encoder = None
    if chat and template is not None and length is not None:
        encoder = chats.Encoder(template, vocabulary, length)
    token_bytes = np.array(vocabulary.token_bytes)
    if vocabulary.end_id is not None:
        token_bytes[vocabulary.end_id] = 0  # it stands for no text
    if encoder is not None:
        token_bytes[list(encoder.control.values())] = 0
    vocabulary = dataclasses.replace(vocabulary, token_bytes=token_bytes)
    train = part.tokens(vocabulary, encoder, cache)
    if held_out:
        part = dataclasses.replace(part, files=held_out, most=math.inf, held_out=True)
        others = part.tokens(vocabulary, encoder, cache)
        how = f"{plural(len(files), 'file')} to train on, {len(held_out)} held out"
    else:
        cut = len(train) - round(len(train) * validation_fraction)
        train, others, how = train[:cut], train[cut:], "the end held out"
    limit = "" if max_megabytes is None else f", at most {max_megabytes:g} MB"
    description = f"{name}: {'conversations' if chat else how}{limit}"
    return Tokens(
        train, others, vocabulary, description, row_length=length if chat else None
    )


@dataclasses.dataclass(frozen=True)
class _Part:
    """The text to train on, or the one held out, and how it is read."""

    files: Files
    most: float  # bytes
    dataset: str | None
    field: str
    split: str
    fraction: float | None  # of prompts that are held out; None: other files are
    warn: bool  # whether to say that the text is truncated
    held_out: bool = False

    def texts(self) -> Iterator[str]:
        """Yields the documents."""
        if self.dataset is not None and not self.files:
            found = reading.streamed(self.dataset, self.field)
        else:
            found = reading.documents(self.files.values(), self.field, self.split)
        return reading.at_most(found, self.most, self.warn)

    def conversations(self) -> Iterator[tuple[str, chats.Messages]]:
        """Yields where each conversation is, and its messages."""
        for where, turns in chats.conversations(self.files.values()):
            if self.fraction is None or self.held_out == chats.is_held_out(
                turns, self.fraction
            ):
                yield where, turns

    def sample(self, chat: bool) -> str:
        """Returns the begin of the text, to train a tokenizer on."""
        texts: Iterable[str] = self.texts()
        if chat:
            texts = (m["content"] for _, turns in self.conversations() for m in turns)
        return "\n".join(reading.at_most(texts, _SAMPLE, warn=False))

    def key(self) -> list:
        """Returns what the text depends on, JSON-serializable."""
        local = pathlib.Path(self.dataset or "\0").rglob("*")
        files = [*self.files.values(), *sorted(f for f in local if f.is_file())]
        stats = [
            (str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns) for f in files
        ]
        options = self.most, self.dataset, self.field, self.split, self.fraction
        return [_FORMAT, stats, *options, self.held_out]

    def tokens(
        self,
        vocabulary: Vocabulary,
        encoder: chats.Encoder | None,
        cache: str | os.PathLike | None,
    ) -> np.ndarray:
        """Returns the ids of the text, from the cache or made now."""
        key = self.key()

        def rows() -> Iterator[Ids]:
            if encoder is None:
                yield from _encoded(self.texts(), vocabulary)
            else:
                yield from encoder.rows(self.conversations())
            if self.key() != key:
                raise TextError(
                    "The text changed while it was read. Open it again when it is "
                    "complete."
                )

        size = vocabulary.vocabulary_size * (1 if encoder is None else 2)
        more = [vocabulary.fingerprint, vocabulary.end_id, encoder and encoder.key]
        return stored(rows, size, cache, [*key, *more])


def _encoded(texts: Iterator[str], vocabulary: Vocabulary) -> Iterator[Ids]:
    """Yields the ids of documents, and of what ends each."""
    while some := list(itertools.islice(texts, _AT_ONCE)):
        chunks = [t[i : i + CHUNK] for t in some for i in range(0, len(t), CHUNK)]
        found = iter(vocabulary.encode_batch(chunks))
        for text in some:
            yield from itertools.islice(found, -(-len(text) // CHUNK))
            if vocabulary.end_id is not None:
                yield [vocabulary.end_id]
            elif not text.endswith("\n"):
                yield vocabulary.encode("\n")  # documents must not run together
