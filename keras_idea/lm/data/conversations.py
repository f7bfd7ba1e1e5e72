"""Conversations as rows of tokens, of which the loss counts the responses."""

import datetime
import json
import os
import pathlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from keras_idea.errors import TextError
from keras_idea.lm.data.documents import name_hash, records
from keras_idea.lm.data.vocabulary import Vocabulary
from keras_idea.validation import plural, require

Messages: TypeAlias = Sequence[dict[str, str]]
#: Makes a text of messages; `prompt`: up to where the next response begins.
Render: TypeAlias = Callable[..., str]

# What templates that name today's date are told, so that a run can be repeated.
_TODAY = datetime.date(2024, 7, 26)
# Rows that are filled at the same time; more of them leave less padding.
_OPEN = 64


def conversations(files: Iterable[pathlib.Path]) -> Iterator[tuple[str, Messages]]:
    """Yields conversations and where each is, for an error.

    A record is {"messages": [{"role": ..., "content": ...}, ...]} or {"prompt": ...,
    "response": ...}, of JSON lines or of parquet.

    Raises:
        TextError: For a record that holds no conversation; names file and line.
    """
    for file in files:
        for line, record in records(file):
            where = f"{file}, line {line}"
            yield where, messages_of(record, where)


def messages_of(record: Any, where: str) -> Messages:
    """Returns the messages of a record; `where` names it in an error."""
    try:
        messages = record.get("messages") or [
            {"role": "user", "content": record["prompt"]},
            {"role": "assistant", "content": record["response"]},
        ]
        texts = [message["content"].strip() for message in messages]
        "".join(texts).encode()  # half of a surrogate pair is no text
        if messages[-1]["role"] != "assistant" or not texts[-1]:
            raise ValueError("the last message is not an assistant's, or is empty")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TextError(
            f"{where}: no conversation ({type(error).__name__}: {error}). Give "
            '"messages" with "role" and "content", or "prompt" and "response".'
        ) from error
    return messages


def is_held_out(messages: Messages, fraction: float) -> bool:
    """Whether a conversation is held out; those with equal prompts are together."""
    prompt = "\n".join(f"{m['role']}: {m['content'].strip()}" for m in messages[:-1])
    return int.from_bytes(name_hash(prompt)) / 2.0**64 < fraction


def template_source(template: str | os.PathLike) -> tuple[str, dict[str, Any]]:
    """Returns the chat template of a checkpoint's folder, and its special tokens.

    `template` is the folder, a file, or the text of the template itself.

    Raises:
        TextError: If the folder has no template.
    """
    if isinstance(template, str) and "{" in template:
        return template, {}
    path = pathlib.Path(template)
    if path.is_file():
        return path.read_text("utf-8"), {}
    settings = path / "tokenizer_config.json"
    config = json.loads(settings.read_text("utf-8")) if settings.is_file() else {}
    file = path / "chat_template.jinja"
    source = file.read_text("utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(source, list):  # several, by name
        source = {row["name"]: row["template"] for row in source}.get("default")
    if not source:
        raise TextError(
            f"{str(template)!r} has no chat template. Give the folder of a checkpoint "
            "that was tuned on conversations, or the text of a template."
        )
    tokens = {key: v for key, v in config.items() if key.endswith("_token") and v}
    return source, {
        k: v["content"] if isinstance(v, dict) else v for k, v in tokens.items()
    }


def renderer(source: str, tokens: Mapping[str, str]) -> Render:
    """Returns the function that writes messages as a chat template says.

    Raises:
        MissingPackage: If jinja2 is not installed.
        TextError: If the template is not one of jinja.
    """
    sandbox = require("jinja2.sandbox", "A chat template")
    errors = require("jinja2", "A chat template").TemplateError
    made = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = json.dumps
    made.globals["strftime_now"] = _TODAY.strftime

    def refuse(message: str) -> None:
        raise TextError(f"The chat template does not take it: {message}")

    made.globals["raise_exception"] = refuse
    # transformers' tag for what the assistant says: `Encoder` finds that without it.
    source = re.sub(r"({%-?\s*)generation(\s*-?%})", r"\1if true\2", source)
    source = re.sub(r"({%-?\s*)endgeneration(\s*-?%})", r"\1endif\2", source)
    try:
        template = made.from_string(source)
    except errors as error:
        raise TextError(f"The chat template is not one of jinja: {error}") from error

    def render(messages: Messages, prompt: bool = False) -> str:
        try:
            return str(
                template.render(
                    messages=messages, add_generation_prompt=prompt, **tokens
                )
            )
        except errors as error:
            raise TextError(f"The chat template does not take it: {error}") from error

    return render


def control_tokens(render: Render, vocabulary: Vocabulary) -> dict[str, int]:
    """Finds the tokens with which a template writes roles and ends, by writing some."""
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}]
    text = render(turns) + render(turns[:1], prompt=True)
    try:
        text += render([{"role": "system", "content": "a"}, *turns])
    except TextError:
        pass  # the template takes no system message
    names = {
        *re.findall(r"<[^<>\s]+>|\[[^\[\]\s]+\]", text),
        *vocabulary.names.values(),
    }
    ids = {name: vocabulary.token_id(name) for name in names}
    return {name: index for name, index in ids.items() if index is not None}


class Encoder:
    """Makes tokens of conversations, and knows which of them the loss counts.

    Args:
        template: str or path. See `template_source`.
        vocabulary: `Vocabulary`.
        length: int. The tokens of a row.

    Example:
    >>> encoder = Encoder("{{ messages[1].content }}", byte_vocabulary(), 64)
    >>> encoder.weighted([{"role": "user", "content": "a"},
    ...                   {"role": "assistant", "content": "bc"}]) % 2
    array([0, 1])
    """

    def __init__(
        self, template: str | os.PathLike, vocabulary: Vocabulary, length: int
    ) -> None:
        source, tokens = template_source(template)
        self._made_of = [source, tokens, length]
        self.render = renderer(source, {**vocabulary.names, **tokens})
        self.vocabulary, self.length = vocabulary, length
        self.control = control_tokens(self.render, vocabulary)
        names = sorted(self.control, key=len, reverse=True)
        # Without control tokens nothing is split: the pattern cannot match.
        self._split = re.compile(f"({'|'.join(map(re.escape, names)) or '(?!)'})")
        # Some SentencePiece tokenizers put a space before a text.
        ids = vocabulary.encode("a")
        self._adds_space = bool(vocabulary.token_bytes[ids].sum() > 1)

    def key(self) -> list:
        """What the rows depend on besides the vocabulary, JSON-serializable."""
        return self._made_of

    def ids(self, text: str) -> np.ndarray:
        """Returns the tokens of a text, in which control tokens are read."""
        found = [np.zeros(0, "int64")]
        for part in filter(None, self._split.split(text)):
            if part in self.control:
                found.append(np.array([self.control[part]]))
                continue
            skipped = int(self._adds_space and part.startswith(" "))
            found.append(self.vocabulary.encode(part[skipped:]).astype("int64"))
        return np.concatenate(found)

    def weighted(self, messages: Messages) -> np.ndarray:
        """Returns twice each token's id, plus 1 if it is of a response.

        The end of a response counts, too: the model has to learn to stop.

        Raises:
            TextError: If the template does not take the messages, or they hold one of
                its control tokens, which would end a turn.
        """
        for message in messages:
            held = [token for token in self.control if token in message["content"]]
            if held:
                raise TextError(f"a message holds the control token {held[0]!r}")
        ids = self.ids(self.render(messages))
        counts = np.zeros(len(ids), bool)
        for i, message in enumerate(messages):
            if message["role"] == "assistant":
                start = _shared(ids, self.ids(self.render(messages[:i], prompt=True)))
                end = _shared(ids, self.ids(self.render(messages[: i + 1])))
                counts[start:end] = True
        counts[:1] = False  # nothing predicts the first token
        return 2 * ids + counts

    def rows(self, found: Iterable[tuple[str, Messages]]) -> Iterator[np.ndarray]:
        """Yields rows of whole conversations; warns of those longer than a row.

        Raises:
            TextError: If a conversation cannot be written; says where it is.
        """
        left_out = 0

        def fitting() -> Iterator[np.ndarray]:
            nonlocal left_out
            for where, messages in found:
                try:
                    ids = self.weighted(messages)
                except TextError as error:
                    raise TextError(f"{where}: {error}") from error
                if len(ids) <= self.length:
                    yield ids
                else:
                    left_out += 1

        padding = 2 * (self.vocabulary.end_id or 0)
        yield from packed(fitting(), self.length, padding)
        yield np.array([padding])  # the last row predicts one token more
        if left_out:
            warnings.warn(
                f"{plural(left_out, 'conversation')} longer than {self.length} tokens "
                "left out. Set longer sequences to read them.",
                stacklevel=2,
            )


def _shared(ids: np.ndarray, others: np.ndarray) -> int:
    """Counts the tokens that two texts have in common at their begin."""
    most = min(len(ids), len(others))
    same = ids[:most] == others[:most]
    return most if same.all() else int(np.argmin(same))


def packed(
    arrays: Iterable[np.ndarray], length: int, padding: int
) -> Iterator[np.ndarray]:
    """Yields arrays `(length,)` of whole ones, the rest of each `padding`.

    An array goes into the fullest of the open rows that has room for it.

    Example:
    >>> arrays = [np.full(size, size) for size in (3, 4, 2)]
    >>> [row.tolist() for row in packed(arrays, 5, padding=0)]
    [[3, 3, 3, 2, 2], [4, 4, 4, 4, 0]]
    """
    rows: list[list[np.ndarray]] = []
    room: list[int] = []
    for ids in arrays:
        fit = [i for i, free in enumerate(room) if free >= len(ids)]
        if not fit and len(room) == _OPEN:
            fullest = int(np.argmin(room))
            yield _padded(rows.pop(fullest), room.pop(fullest), padding)
        if not fit:
            rows.append([])
            room.append(length)
        best = min(fit, key=room.__getitem__) if fit else len(room) - 1
        rows[best].append(ids)
        room[best] -= len(ids)
    for row, free in zip(rows, room, strict=True):
        yield _padded(row, free, padding)


def _padded(row: list[np.ndarray], room: int, padding: int) -> np.ndarray:
    return np.concatenate([*row, np.full(room, padding)])
