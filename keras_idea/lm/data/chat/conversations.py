"""Conversations of JSON lines: read and checked."""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from keras_idea.errors import TextError
from keras_idea.lm.data.chat.templates import Message
from keras_idea.lm.data.text.readers import json_records, suffix_of
from keras_idea.lm.data.text.records import ReadLog
from keras_idea.lm.data.text.sources import TextSource, named

_ROLES = ("system", "user", "assistant")
_SUFFIXES = (".jsonl", ".ndjson")


class Conversation(NamedTuple):
    """The messages of a record, and where it stands."""

    messages: tuple[Message, ...]
    path: str
    line: int

    @property
    def prompt(self) -> str:
        """All that stands before the last response, as it is rendered: stripped."""
        return "\n".join(f"{m.role}: {m.content.strip()}" for m in self.messages[:-1])


def read_conversations(source: TextSource, log: ReadLog) -> Iterator[Conversation]:
    """The conversations of a source's JSON lines.

    A line is {"messages": [{"role": "user", "content": "..."}, ...]} or {"prompt":
    "...", "response": "..."}.

    Raises:
        BadRecordError: at a bad record, if the log's `on_bad` is "refuse".
        TextError: if a file holds no JSON lines, or cannot be read to its end.
    """
    for path in source.files():
        if suffix_of(path) not in _SUFFIXES:
            raise TextError(
                f"Chat records are JSON lines ({' or '.join(_SUFFIXES)}). Received: "
                f"{str(path)!r}. Convert the file, or leave it out."
            )
        with named(path, log), path.open("rb") as file:
            for line, record in json_records(file, path, source.max_characters, log):
                messages = messages_of(record, path, line, log)
                if messages is not None:
                    log.documents += 1
                    yield Conversation(messages, str(path), line)


def messages_of(
    record: Any, path: str | os.PathLike, line: int, log: ReadLog
) -> tuple[Message, ...] | None:
    """The messages of a record, or None if the log has rejected it.

    Example:
    >>> messages_of({"prompt": "Hi", "response": "Hello"}, "a.jsonl", 1, ReadLog())
    (Message(role='user', content='Hi'), Message(role='assistant', content='Hello'))
    """
    wrong = _wrong_shape(record)
    if wrong is None:
        messages = _messages(record)
        wrong = _wrong_message(messages) or _wrong_turn(messages)
    if wrong is not None:
        kind, received = wrong
        log.reject(kind, path, line, f"received: {received}")
        return None
    return tuple(Message(m["role"], m["content"]) for m in messages)


def _messages(record: dict) -> list:
    if isinstance(record.get("messages"), list):
        return record["messages"]
    return [
        {"role": "user", "content": record["prompt"]},
        {"role": "assistant", "content": record["response"]},
    ]


def _wrong_shape(record: Any) -> tuple[str, str] | None:
    """Kind of bad record and what was received; None: there are messages."""
    if not isinstance(record, dict):
        return "no_messages", f"a {type(record).__name__}"
    if isinstance(record.get("messages"), list) or {"prompt", "response"} <= set(
        record
    ):
        return None
    if "prompt" in record and "messages" not in record:
        return "no_response", f"the keys {', '.join(sorted(record)[:10])}"
    if "messages" in record:
        return "no_messages", f"messages={str(record['messages'])[:40]!r}"
    return "no_messages", f"the keys {', '.join(sorted(record)[:10]) or 'of none'}"


def _wrong_message(messages: list) -> tuple[str, str] | None:
    for number, message in enumerate(messages, start=1):
        keys = ("role", "content")
        fields = message if isinstance(message, dict) else {}
        if not all(isinstance(fields.get(key), str) for key in keys):
            return "not_a_message", f"{str(message)[:60]} as message {number}"
        if message["role"] not in _ROLES:
            return "unknown_role", f"{message['role']!r} in message {number}"
        if not _is_unicode(message["content"]):
            return "invalid_utf8", f"half of a surrogate pair in message {number}"
    return None


def _wrong_turn(messages: list) -> tuple[str, str] | None:
    roles = [message["role"] for message in messages]
    if not roles or roles[-1] != "assistant":
        return "no_response", f"{roles[-1]!r} last" if roles else "no message"
    turns = roles[1:] if roles[0] == "system" else roles
    if turns != ["user", "assistant"] * (len(turns) // 2):
        return "wrong_order", ", ".join(roles[:8])
    empty = [n for n, m in enumerate(messages, start=1) if not m["content"].strip()]
    if any(roles[number - 1] == "assistant" for number in empty):
        return "no_response", f"an empty response in message {empty[0]}"
    if empty and roles[empty[0] - 1] == "user":
        return "empty", f"message {empty[0]}"
    return None


def _is_unicode(text: str) -> bool:
    try:
        return text.isascii() or text.encode() is not None
    except UnicodeEncodeError:
        return False
