"""A text as tokens: found, read, tokenized once, some of it held out."""

import dataclasses
import math
import os
import pathlib
import warnings
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from keras_idea.errors import ArgumentError, TextError
from keras_idea.lm.data import conversations as chats
from keras_idea.lm.data import documents as reading
from keras_idea.lm.data.documents import STDLIB, Files, Paths
from keras_idea.lm.data.tokens import Tokens, stored
from keras_idea.lm.data.vocabulary import CHUNK, Ids, Vocabulary, byte_vocabulary
from keras_idea.validation import check_choice, check_number, plural

# Changes with what a cached file holds: those of another one are made again.
_FORMAT = 1
# Characters that are tokenized at once, and bytes of the sample for a new tokenizer.
_AT_ONCE, _SAMPLE = 1 << 20, 16_000_000


def open_text(
    *,
    paths: Paths | None = None,
    dataset: str | None = None,
    dataset_config: str | None = None,
    dataset_split: str = "train",
    dataset_revision: str | None = None,
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
        dataset: str or None. A Hugging Face data set in place of `paths`, streamed.
        dataset_config: str or None. Its configuration.
        dataset_split: str. Its split. Defaults to "train".
        dataset_revision: str or None. Its branch, tag or commit.
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
    if dataset is None:
        name, files = reading.name_of(paths), reading.find_files(paths, pattern)
    else:
        name, files = dataset, {}
    size = reading.size_of(files.values())
    if most < size and paths != STDLIB:
        warnings.warn(
            f"`max_megabytes={max_megabytes:g}` truncates the text ({name}), which has "
            f"{size / 1e6:,.3f} MB.",
            stacklevel=2,
        )
    files = reading.first_bytes(files, most)
    if validation_paths is not None:
        held_out = reading.find_files(validation_paths, pattern)
    elif chat:
        held_out = files
    else:
        names = reading.held_out_names(files, validation_fraction)
        held_out = {name: file for name, file in files.items() if name in names}
        files = {name: file for name, file in files.items() if name not in names}
        most -= reading.size_of(held_out.values())

    source = _Source(
        (dataset, dataset_config, dataset_split, dataset_revision),
        field,
        documents,
        validation_fraction if chat and validation_paths is None else None,
    )
    vocabulary = byte_vocabulary() if vocabulary is None else vocabulary
    if not isinstance(vocabulary, Vocabulary):
        vocabulary = vocabulary(source.sample(files, most, chat))
    silent = [] if vocabulary.end_id is None else [vocabulary.end_id]
    encoder = None
    if chat:
        encoder = chats.Encoder(template, vocabulary, length)
        silent += encoder.control.values()
    token_bytes = np.array(vocabulary.token_bytes)
    token_bytes[silent] = 0  # they stand for no text
    vocabulary = dataclasses.replace(vocabulary, token_bytes=token_bytes)

    def tokens(files: Files, most: float, is_held_out: bool) -> np.ndarray:
        def key() -> list:
            return [
                source.key(files),
                most,
                is_held_out,
                vocabulary.fingerprint,
                vocabulary.end_id,
                encoder and encoder.key,
            ]

        begun = key()

        def rows() -> Iterator[Ids]:
            if encoder is None:
                yield from _encoded(source.texts(files, most), vocabulary)
            else:
                yield from encoder.rows(source.conversations(files, is_held_out))
            if key() != begun:
                raise TextError(
                    "The text changed while it was read. Open it again when it is "
                    "complete."
                )

        return stored(rows, len(token_bytes) * (2 if chat else 1), cache, begun)

    train = tokens(files, most, False)
    if held_out:
        others = tokens(held_out, math.inf, True)
        how = f"{plural(len(files), 'file')} to train on, {len(held_out)} held out"
    else:
        cut = len(train) - round(len(train) * validation_fraction)
        train, others, how = train[:cut], train[cut:], "the end held out"
    how = "conversations" if chat else how
    limit = "" if max_megabytes is None else f", at most {max_megabytes:g} MB"
    return Tokens(
        train,
        others,
        vocabulary,
        f"{name}: {how}{limit}",
        row_length=length if chat else None,
    )


@dataclasses.dataclass(frozen=True)
class _Source:
    """What is read: a data set, or files, and how a record becomes a text."""

    dataset: tuple[str | None, str | None, str, str | None]
    field: str
    split: str
    fraction: float | None  # of the prompts that are held out; None: other files are

    def texts(self, files: Files, most: float) -> Iterator[str]:
        name, *options = self.dataset
        if name is not None and not files:
            found = reading.streamed(name, *options, self.field)
        else:
            found = reading.documents(files.values(), self.field, self.split)
        return reading.at_most(found, most, warn=not files)

    def conversations(
        self, files: Files, is_held_out: bool
    ) -> Iterator[tuple[str, chats.Messages]]:
        for where, messages in chats.conversations(files.values()):
            fraction = self.fraction
            if fraction is None or chats.is_held_out(messages, fraction) == is_held_out:
                yield where, messages

    def sample(self, files: Files, most: float, chat: bool) -> str:
        """The begin of the text, to train a tokenizer on."""
        texts: Iterable[str] = self.texts(files, most)
        if chat:
            found = self.conversations(files, False)
            texts = (m["content"] for _, messages in found for m in messages)
        return "\n".join(reading.at_most(texts, _SAMPLE, warn=False))

    def key(self, files: Files) -> list:
        """What the text depends on, JSON-serializable."""
        folder = pathlib.Path(self.dataset[0] or "\0")
        local = [f for f in sorted(folder.rglob("*")) if f.is_file()]
        places = [
            (str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns)
            for f in (*files.values(), *local)
        ]
        return [_FORMAT, *dataclasses.astuple(self), places]


def _encoded(texts: Iterable[str], vocabulary: Vocabulary) -> Iterator[Ids]:
    """Yields the ids of each document, and what ends it."""
    end = vocabulary.end_id
    for some in _groups(texts):
        found = vocabulary.encode_batch([text for text in some if len(text) <= CHUNK])
        short = iter(found)
        for text in some:
            yield next(short) if len(text) <= CHUNK else vocabulary.encode(text)
            if end is not None:
                yield [end]
            elif not text.endswith("\n"):
                yield vocabulary.encode("\n")  # documents must not run together


def _groups(texts: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    size = 0
    for text in texts:
        some.append(text)
        size += len(text)
        if size >= _AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some
