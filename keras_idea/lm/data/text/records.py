"""Records that cannot be trained on: named, counted, then skipped or refused."""

import collections
import logging
import os
from typing import TypeGuard

from keras_idea.errors import TextError
from keras_idea.validation import check_choice, check_int, plural

#: What can be wrong with a record, and how to mend it.
BAD_RECORDS = {
    "broken_json": "the line is not one JSON value",
    "missing_field": "the record has no such field; name another with `field`",
    "not_a_string": "the field must hold a string",
    "invalid_utf8": "the text is not UTF-8; convert it",
    "empty": "the text holds nothing but white space",
    "huge": "the text is over `max_characters`; raise it, or cut the text with `split`",
    "no_messages": 'a chat record holds "messages", or "prompt" and "response"',
    "not_a_message": 'a message is an object with a string "role" and "content"',
    "unknown_role": 'a role is "system", "user" or "assistant"',
    "wrong_order": "after a system message, if any, user and assistant take turns",
    "control_token": "a message must not hold a special token of the chat template",
    "no_response": "the last message is the assistant's, and it is not empty",
}
POLICIES = ("refuse", "skip")

_LOGGER = logging.getLogger("keras_idea.data")


class BadRecordError(TextError):
    """Raised for a record that cannot be trained on.

    Attributes:
        kind: str. A key of `BAD_RECORDS`.
        path: str. The file or data set.
        line: int or None. Line of a text file or row of a table, from 1.
    """

    def __init__(
        self, kind: str, path: str | os.PathLike, line: int | None, detail: str
    ) -> None:
        self.kind, self.path, self.line = kind, str(path), line
        super().__init__(
            f"{_place(path, line)}: {kind.replace('_', ' ')}: {BAD_RECORDS[kind]}"
            f"{f' ({detail})' if detail else ''}. Correct the record, or leave out all "
            "such records with on_bad='skip': they are counted and logged."
        )


class ReadLog:
    """Counts the documents, bytes and bad records of one reading of a source.

    Pass it to `documents` of a source to see what was read. Bad records are logged as
    warnings to the logger "keras_idea.data", with file and line, up to a limit per
    kind. All of them are counted.

    Args:
        on_bad: str. "refuse" (raise `BadRecordError` at the first bad record) or
            "skip". Defaults to "refuse".
        log_limit: int >= 0. Warnings per kind. Defaults to 10.

    Attributes:
        documents: int. Documents read.
        bytes_read: int. Bytes of the files on disk that were read.
        bad: collections.Counter. Maps a kind to the number of records skipped.

    Example:
    >>> from keras_idea.data import TextSource
    >>> log = ReadLog(on_bad="skip")
    >>> texts = list(TextSource("corpus").documents(log))
    >>> log.documents, log.bad["broken_json"]
    (3, 0)
    """

    def __init__(self, on_bad: str = "refuse", log_limit: int = 10) -> None:
        self.on_bad = check_choice("on_bad", on_bad, POLICIES)
        self.log_limit = check_int("log_limit", log_limit, minimum=0)
        self.documents = self.bytes_read = 0
        self.bad: collections.Counter[str] = collections.Counter()

    def reject(
        self,
        kind: str,
        path: str | os.PathLike,
        line: int | None = None,
        detail: str = "",
        count: int = 1,
    ) -> None:
        """Raises an error for a bad record, or counts it and continues.

        Args:
            kind: str. A key of `BAD_RECORDS`.
            path: str or path. The file.
            line: int or None. Line or row, from 1. Defaults to None.
            detail: str. What was seen. Defaults to "".
            count: int. The number of such records. Defaults to 1.

        Raises:
            BadRecordError: If `on_bad` is "refuse".
        """
        if self.on_bad == "refuse":
            raise BadRecordError(kind, path, line, detail)
        before = self.bad[kind]
        self.bad[kind] += count
        if before < self.log_limit:
            more = f" ({detail})" if detail else ""
            _LOGGER.warning(
                "%s: %s: skipped%s", _place(path, line), kind.replace("_", " "), more
            )
            if before + 1 == self.log_limit:
                _LOGGER.warning(
                    "further records of this kind (%s) are counted, not logged",
                    kind.replace("_", " "),
                )

    def accept(
        self,
        text: object,
        path: str | os.PathLike,
        line: int | None,
        max_characters: int,
    ) -> TypeGuard[str]:
        """Counts a document, or rejects it.

        Args:
            text: any value. The document; only a `str` is good.
            path: str or path. The file.
            line: int or None. Line or row, from 1.
            max_characters: int. Longer documents are rejected.

        Returns:
            bool, whether `text` is a document.

        Raises:
            BadRecordError: If it is not and `on_bad` is "refuse".
        """
        if not isinstance(text, str):
            self.reject("not_a_string", path, line, f"a {type(text).__name__}")
        elif len(text) > max_characters:
            detail = f"{len(text):,} characters, allowed {max_characters:,}"
            self.reject("huge", path, line, detail)
        elif not text or text.isspace():
            self.reject("empty", path, line)
        elif not _is_unicode(text):
            self.reject("invalid_utf8", path, line, "half of a surrogate pair")
        else:
            self.documents += 1
            return True
        return False

    def summary(self) -> str:
        """Returns one line: what was read and what was skipped."""
        parts = [plural(self.documents, "document")]
        parts += [
            f"{count:,} {kind.replace('_', ' ')} skipped"
            for kind, count in sorted(self.bad.items())
        ]
        return ", ".join(parts)


def _is_unicode(text: str) -> bool:
    # JSON can spell half a surrogate pair, which no tokenizer takes.
    try:
        return text.isascii() or text.encode() is not None
    except UnicodeEncodeError:
        return False


def _place(path: str | os.PathLike, line: int | None) -> str:
    return f"{path}, line {line}" if line is not None else str(path)
