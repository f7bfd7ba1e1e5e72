"""The text of a run: opened as `[data]` says, in the models' vocabulary."""

import os
import pathlib
from collections.abc import Iterator

import keras

from keras_idea.lm.data.chat.chat_text import ChatText, RawText, TokenizedText
from keras_idea.lm.data.text.file_streams import COMPRESSED
from keras_idea.lm.data.text.hf_dataset import StreamedDataset
from keras_idea.lm.data.text.readers import suffix_of
from keras_idea.lm.data.text.sources import TextSource
from keras_idea.lm.data.text.vocabulary import Vocabulary
from keras_idea.lm.data.tokens.cached_corpus import Documents
from keras_idea.lm.data.tokens.interfaces import START_EVERY, Batch, BatchShard
from keras_idea.lm.data.tokens.load_text import load_text
from keras_idea.lm.runs.config import Data, RunConfig

_RECORDS = (".jsonl", ".ndjson", ".parquet")


def packs_documents(data: Data) -> bool:
    """Whether documents are packed one after another, with a token between them."""
    given = (data.dataset, data.pattern, data.validation_paths)
    several = len(data.paths) > 1 or data.documents != "file"
    return (
        several or any(value is not None for value in given) or _has_records(data.paths)
    )


def _has_records(paths: list[str]) -> bool:
    files: list[pathlib.Path] = []
    for path in map(pathlib.Path, paths):
        files += path.rglob("*") if path.is_dir() else [path]
    return any(f.suffix in COMPRESSED or suffix_of(f) in _RECORDS for f in files)


def open_raw(config: RunConfig) -> RawText:
    """The run's text before it is tokenized."""
    data = config.data
    fraction = data.validation_fraction

    def files(paths: list[str]) -> TextSource:
        return TextSource(
            paths, field=data.field, split=data.documents, pattern=data.pattern
        )

    held_out = None if data.validation_paths is None else files(data.validation_paths)
    if data.chat:
        return ChatText(
            files(data.paths),
            data.cache,
            config.model.sequence_length,
            data.template,
            validation=held_out,
            validation_fraction=fraction,
        )
    most = round(data.max_megabytes * 1e6)
    if not packs_documents(data):
        return load_text(data.paths[0], fraction, most)
    source: TextSource | StreamedDataset = files(data.paths)
    if data.dataset is not None:
        name, _, revision = data.dataset.partition("@")
        source = StreamedDataset(name, revision=revision or None, field=data.field)
    name = data.dataset or ", ".join(data.paths)
    return Documents(source, data.cache, held_out, fraction, most, name)


def tokenize(
    raw: RawText,
    vocabulary: Vocabulary,
    length: int,
    backbone: type[keras.Model] | None = None,
    start_id: int | None = None,
    starts_all: bool = False,
) -> TokenizedText:
    """The text in a vocabulary; `backbone` chooses the chat template.

    Raises:
        TextError: If there is less than a sequence of it.
    """
    if isinstance(raw, ChatText) and backbone is not None:
        raw = raw.of_family(backbone.__name__.removesuffix("Backbone"))
    text = raw.tokenized(vocabulary, start_id, 1 if starts_all else START_EVERY)
    text.check_length(length)
    return text


def batches(
    text: TokenizedText, config: RunConfig, start_step: int, index: int, count: int
) -> Iterator[Batch]:
    """The training batches of one process of `count`, from a step on."""
    return text.batches(
        seed=config.run.seed,
        batch_size=config.data.batch_size,
        length=config.model.sequence_length,
        start_step=start_step,
        share=BatchShard(config.parts, index, count),
    )


def paths_read(config: RunConfig) -> list[str]:
    """The files and folders that a run reads, but for the standard library."""
    model, data = config.model, config.data
    given = [model.preset, config.distillation.teacher]
    paths = [*data.paths, *(data.validation_paths or ())]
    return [
        os.path.realpath(path)
        for path in [*given, *paths]
        if path is not None and path != "stdlib" and os.path.exists(path)
    ]
