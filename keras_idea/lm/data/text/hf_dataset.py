"""Documents of a Hugging Face data set, streamed."""

import dataclasses
import glob
import pathlib
from collections.abc import Iterator, Sequence
from types import ModuleType

from keras_idea.errors import TextError
from keras_idea.lm.data.text.file_streams import BYTE_ORDER_MARK
from keras_idea.lm.data.text.readers import field_of
from keras_idea.lm.data.text.records import POLICIES, ReadLog
from keras_idea.lm.data.text.sources import place_of
from keras_idea.validation import check_choice, check_int, require

_MARK = BYTE_ORDER_MARK.decode()


@dataclasses.dataclass(frozen=True)
class StreamedDataset:
    """Streams the documents of a Hugging Face data set, by its name.

    For local files use `TextSource`: `datasets` reads several rows ahead, so an error
    in one of them (such as broken JSON) ends the reading, whatever `on_bad` is. It also
    takes a `.zst` that is cut off between two lines as complete.

    Args:
        name: str. As `datasets.load_dataset` takes it: a data set of the hub, a folder,
            or a format ("json", "parquet", "text") with `data_files`.
        config: str or None. The data set's configuration. Defaults to None.
        split: str. The split, such as "train". Defaults to "train".
        data_files: str, sequence of str or None. Reads only these files of a format or
            data set. Defaults to None.
        revision: str or None. Branch, tag or commit of the hub. A commit fixes the
            text: on the hub, `key` knows only name and revision. Defaults to None.
        field: str. Column of the text. Defaults to "text".
        on_bad: str. "refuse" or "skip" bad records. Defaults to "refuse".
        max_characters: int. Longer documents are bad records. Defaults to 10,000,000.

    Raises:
        ValueError: If an argument is not allowed.

    Example:
    >>> source = StreamedDataset("HuggingFaceFW/fineweb-edu", config="sample-10BT")
    >>> first = next(iter(source))  # doctest: +SKIP
    >>> next(iter(StreamedDataset("json", data_files="corpus/*.jsonl")))
    'one'

    Reference: https://huggingface.co/docs/datasets/stream
    """

    name: str
    config: str | None = None
    split: str = "train"
    data_files: str | Sequence[str] | None = None
    revision: str | None = None
    field: str = "text"
    on_bad: str = "refuse"
    max_characters: int = 10_000_000

    def __post_init__(self) -> None:
        if self.data_files is not None and not isinstance(self.data_files, str):
            object.__setattr__(self, "data_files", tuple(map(str, self.data_files)))
        check_choice("on_bad", self.on_bad, POLICIES)
        check_int("max_characters", self.max_characters, minimum=1)

    def total_bytes(self) -> None:
        """Returns None: the size is not known before the end."""
        return None

    def __iter__(self) -> Iterator[str]:
        return self.documents(ReadLog(self.on_bad))

    def documents(self, log: ReadLog) -> Iterator[str]:
        """Yields the documents, each once.

        Args:
            log: `ReadLog`. Counts documents and bad records.

        Yields:
            str.

        Raises:
            BadRecordError: At a bad record, if the log's `on_bad` is "refuse".
            MissingPackage: If `datasets` is not installed.
            TextError: If the data set cannot be found or read to its end.
        """
        row, title = 0, f"data set {self.name!r}, split {self.split!r}"
        # Outside of what is caught: a missing package is no fault of the data.
        datasets = require("datasets", f"Streaming {title}")
        records = self._records(datasets)
        while True:
            try:
                record = next(records)
            except StopIteration:
                return
            # Whatever a builder or the network raises: it is not about one record.
            except Exception as error:
                raise TextError(
                    f"Cannot read {title} to its end: {type(error).__name__}: {error}. "
                    f"{row:,} rows of it were read."
                ) from error
            row += 1
            text = field_of(record, self.field, title, row, log)
            if text is not None and log.accept(text, title, row, self.max_characters):
                yield text

    def _records(self, datasets: ModuleType) -> Iterator[object]:
        files = self.data_files
        records = datasets.load_dataset(
            self.name,
            self.config,
            split=self.split,
            data_files=list(files) if isinstance(files, tuple) else files,
            revision=self.revision,
            streaming=True,
        )
        # Of text files alone: of others it leaves the byte order mark out itself.
        if records.info.builder_name == "text":
            records = map(_unmarked, records)
        yield from records

    def key(self) -> dict:
        """Returns what the documents depend on: the arguments, and local files.

        Returns:
            dict, JSON-serializable.
        """
        files = self.data_files or ()
        names = [self.name, *((files,) if isinstance(files, str) else files)]
        paths = [pathlib.Path(f) for n in names for f in glob.glob(n, recursive=True)]
        places = [
            place_of(f)
            for path in paths
            for f in (path, *path.rglob("*"))
            if f.is_file()
        ]
        return {**dataclasses.asdict(self), "files": sorted(places)}


def _unmarked(record: dict[str, str]) -> dict[str, str]:
    """A line of a text file without the mark that some editors write first."""
    return {name: text.removeprefix(_MARK) for name, text in record.items()}
