"""Documents of a Hugging Face data set, streamed."""

import dataclasses
import glob
import pathlib
from collections.abc import Iterator, Sequence
from types import ModuleType

from keras_idea.data.text.readers import field_of
from keras_idea.data.text.records import POLICIES, ReadLog
from keras_idea.data.text.sources import place_of
from keras_idea.errors import TextError
from keras_idea.extras import require
from keras_idea.validation import check_choice, check_int


@dataclasses.dataclass(frozen=True)
class StreamedDataset:
    """Documents of a Hugging Face data set, streamed by its name.

    `datasets` reads several rows ahead, so that an error in one of them (broken JSON,
    say) ends the reading, whatever `on_bad` is; and it takes a `.zst` that is cut off
    between two lines for a whole one. For local files `TextSource` does better.

    Args:
        name: str, as `datasets.load_dataset` takes it: a data set of the hub, a
            folder, or a format ("json", "parquet", "text") with `data_files`.
        config: str or None, the data set's configuration.
        split: str, such as "train". Default "train".
        data_files: str, sequence of str or None, of a format or data set only these.
        revision: str or None, branch, tag or commit of the hub. A commit makes the
            text the same; `key` knows no more of a hub's data set than its
            name and revision.
        field: str, column of the text. Default "text".
        on_bad: "refuse" or "skip" bad records. Default "refuse".
        max_characters: int, longer documents are bad records. Default 10,000,000.

    Raises:
        ValueError: if an argument is none of those allowed.

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
        """None: it is not known before the end."""
        return None

    def __iter__(self) -> Iterator[str]:
        return self.documents(ReadLog(self.on_bad))

    def documents(self, log: ReadLog) -> Iterator[str]:
        """The documents, each once.

        Args:
            log: `ReadLog`, which counts documents and bad records.

        Yields:
            str.

        Raises:
            BadRecordError: at a bad record, if the log's `on_bad` is "refuse".
            MissingPackage: if `datasets` is not installed.
            TextError: if the data set cannot be found or read to its end.
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
        yield from datasets.load_dataset(
            self.name,
            self.config,
            split=self.split,
            data_files=list(files) if isinstance(files, tuple) else files,
            revision=self.revision,
            streaming=True,
        )

    def key(self) -> dict:
        """What the documents depend on: the arguments, and a local folder's files.

        Returns:
            dict, JSON-serializable.
        """
        files = self.data_files or ()
        names = [self.name, *((files,) if isinstance(files, str) else files)]
        found = [pathlib.Path(f) for n in names for f in glob.glob(n, recursive=True)]
        places = [
            place_of(f)
            for path in found
            for f in (path, *path.rglob("*"))
            if f.is_file()
        ]
        return {**dataclasses.asdict(self), "files": sorted(places)}
