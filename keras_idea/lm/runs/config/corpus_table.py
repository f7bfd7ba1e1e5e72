"""The table `[corpus]` of a run's description: documents of any amount."""

import dataclasses
from collections.abc import Iterable

from keras_idea.errors import ArgumentError
from keras_idea.lm.data.documents import SPLITS
from keras_idea.lm.runs.config import fields

_OF_A_DATASET = ("dataset_config", "dataset_split", "dataset_revision")
_OF_FILES = ("documents", "pattern")


def check_paths(name: str, value: object) -> tuple[str, ...] | None:
    """`value` as a tuple of str if it is a path or several; None stays None."""
    if value is None:
        return None
    paths = (value,) if isinstance(value, str) else value
    if not isinstance(paths, list | tuple) or not paths:
        raise ArgumentError(
            f"`{name}` must be a path or a list of paths. Received: {name}={value!r}."
        )
    return tuple(fields.check_text(name, path) for path in paths)


@dataclasses.dataclass(frozen=True)
class CorpusConfig(fields.Table):
    """`[corpus]`: documents that are tokenized once, instead of `data.text`.

    They are packed without padding, the token that ends a document between them, and
    each window is seen once an epoch. `data.validation_fraction` then is the share at
    the end that is held out, and of `data.max_megabytes` a tokenizer is trained. A data
    set of a `dataset_revision` that is a commit is the same for ever.
    """

    table = "corpus"
    paths: tuple[str, ...] | None = fields.checked(None, check_paths)
    dataset: str | None = fields.optional(fields.check_text)
    dataset_config: str | None = fields.optional(fields.check_text)
    dataset_split: str = fields.checked("train", fields.check_text)
    dataset_revision: str | None = fields.optional(fields.check_text)
    validation_paths: tuple[str, ...] | None = fields.checked(None, check_paths)
    field: str = fields.checked("text", fields.check_text)
    documents: str = fields.choice("file", *SPLITS)
    pattern: str | None = fields.optional(fields.check_text)
    cache: str = fields.checked("runs/token-cache", fields.check_text)

    @property
    def given(self) -> bool:
        """bool, whether the run reads documents rather than `data.text`."""
        return self.paths is not None or self.dataset is not None

    def _check_together(self) -> None:
        if self.paths is not None and self.dataset is not None:
            raise fields.ConfigError(
                "`corpus.paths` and `corpus.dataset` cannot both be given. Received: "
                f"paths={list(self.paths)}, dataset={self.dataset!r}. Delete one of "
                "them."
            )
        files = self.paths is not None or self.validation_paths is not None
        self._refuse_without("dataset", self.dataset is not None, _OF_A_DATASET)
        self._refuse_without("paths", files, _OF_FILES)
        if not self.given and any(map(self._is_set, ("validation_paths", "field"))):
            raise fields.ConfigError(
                "[corpus] needs `paths` or `dataset`, the documents to train on. "
                "Received neither. Set one of them, or delete the table."
            )

    def _refuse_without(self, needed: str, there: bool, names: Iterable[str]) -> None:
        for name in filter(self._is_set, () if there else names):
            raise fields.ConfigError(
                f"`corpus.{name}` belongs to corpus.{needed}, which is not given. "
                f"Received: {self.describe(name)}. Set `corpus.{needed}`, or delete "
                f"`{name}`."
            )

    def _is_set(self, name: str) -> bool:
        default = type(self).__dataclass_fields__[name].default
        return getattr(self, name) != default
