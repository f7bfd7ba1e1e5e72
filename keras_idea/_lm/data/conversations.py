"""Conversations as rows of tokens, of which the loss counts the responses."""

import contextlib
import datetime
import json
import os
import pathlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from keras_idea._lm.data.documents import name_hash, records
from keras_idea._lm.data.vocabulary import Vocabulary
from keras_idea._validation import plural, require
from keras_idea.errors import TextError

Messages: TypeAlias = Sequence[dict[str, str]]
# What a template that asks for today's date is told, so that a run can be repeated.
_TODAY = datetime.date(2024, 7, 26)
# Rows that are filled at the same time; more of them leave less padding.
_OPEN = 64


def conversations(files: Iterable[pathlib.Path]) -> Iterator[tuple[str, Messages]]:
    """Yields where each conversation is, for an error, and its messages.

    A record is {"messages": [{"role": ..., "content": ...}, ...]} or {"prompt": ...,
    "response": ...}, of JSON lines or of parquet.

    Raises:
        TextError: For a record that holds no conversation; names file and line.
    """
    for file in files:
        for line, record in records(file):
            try:
                messages = record.get("messages") or [
                    {"role": "user", "content": record["prompt"]},
                    {"role": "assistant", "content": record["response"]},
                ]
                # Half of a surrogate pair is no text.
                texts = [message["content"].encode().strip() for message in messages]
                if messages[-1]["role"] != "assistant" or not texts[-1]:
                    raise TextError("the last message is not an assistant's, or empty")
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise TextError(
                    f"{file}, line {line}: no conversation ({type(error).__name__}: "
                    f'{error}). Give "messages" with "role" and "content", or "prompt" '
                    'and "response".'
                ) from error
            yield f"{file}, line {line}", messages


def is_held_out(messages: Messages, fraction: float) -> bool:
    """Whether a conversation is held out; those with equal prompts are together."""
    prompt = "\n".join(f"{m['role']}: {m['content'].strip()}" for m in messages[:-1])
    return int.from_bytes(name_hash(prompt)) / 2.0**64 < fraction


def chat_template(template: str | os.PathLike) -> tuple[str, dict[str, str]]:
    """Returns a chat template, and the special tokens of its checkpoint by name.

    `template` is the folder of the checkpoint, or the text of the template itself.

    Raises:
        TextError: If the folder has no template.
    """
    if isinstance(template, str) and "{" in template:
        return template, {}
    folder = pathlib.Path(template)
    settings, file = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    config = json.loads(settings.read_text("utf-8")) if settings.is_file() else {}
    source = file.read_text("utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(source, list):  # several, by name
        source = {row["name"]: row["template"] for row in source}.get("default")
    if not source:
        raise TextError(
            f"{str(template)!r} has no chat template. Give the folder of a checkpoint "
            "that was tuned on conversations, or the text of a template."
        )
    tokens = {key: token for key, token in config.items() if key.endswith("_token")}
    for key, token in tokens.items():
        tokens[key] = token["content"] if isinstance(token, dict) else token or ""
    return source, tokens


def renderer(source: str, tokens: Mapping[str, str]) -> Callable[..., str]:
    """Returns a function that writes messages as a chat template says.

    Its argument `prompt` adds how a response begins. It raises a `TextError` if the
    template does not take the messages.
    """
    errors = require("jinja2", "A chat template").TemplateError
    made = require("jinja2.sandbox", "A chat template").ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )

    def refuse(message: str) -> None:
        raise TextError(f"The chat template does not take it: {message}")

    made.filters["tojson"] = json.dumps
    made.globals.update(strftime_now=_TODAY.strftime, raise_exception=refuse)
    # transformers' tag for what the assistant says: `Encoder` finds that without it.
    source = re.sub(r"({%-?\s*)generation(\s*-?%})", r"\1if true\2", source)
    source = re.sub(r"({%-?\s*)endgeneration(\s*-?%})", r"\1endif\2", source)

    def render(messages: Messages, prompt: bool = False) -> str:
        known = {"messages": messages, "add_generation_prompt": prompt, **tokens}
        try:
            return str(made.from_string(source).render(known))
        except errors as error:
            raise TextError(f"The chat template does not take it: {error}") from error

    return render


class Encoder:
    """Makes tokens of conversations, and knows which of them the loss counts.

    Args:
        template: str or path. See `chat_template`.
        vocabulary: `Vocabulary`.
        length: int. The tokens of a row.

    Example:
    >>> from keras_idea.data import byte_vocabulary
    >>> encoder = Encoder("{{ messages[-1].content }}", byte_vocabulary(), 64)
    >>> encoder.weighted([{"role": "user", "content": "a"},
    ...                   {"role": "assistant", "content": "bcd"}]) % 2
    array([0, 1, 1])
    """

    def __init__(
        self, template: str | os.PathLike, vocabulary: Vocabulary, length: int
    ) -> None:
        source, tokens = chat_template(template)
        #: What the rows depend on besides the vocabulary, JSON-serializable.
        self.key = [source, tokens, length]
        self.render = renderer(source, {**vocabulary.names, **tokens})
        self.vocabulary, self.length = vocabulary, length
        #: Ids of the tokens with which the template writes roles and ends.
        self.control = self._control_tokens()
        names = sorted(self.control, key=len, reverse=True)
        # Without control tokens nothing is split: the pattern cannot match.
        self._split = re.compile(f"({'|'.join(map(re.escape, names)) or '(?!)'})")
        # Some SentencePiece tokenizers put a space before a text.
        ids = vocabulary.encode("a")
        self._adds_space = bool(vocabulary.token_bytes[ids].sum() > 1)

    def _control_tokens(self) -> dict[str, int]:
        turns = [{"role": r, "content": "a"} for r in ("system", "user", "assistant")]
        text = self.render(turns[1:]) + self.render(turns[1:2], prompt=True)
        with contextlib.suppress(TextError):  # no template has to take these
            text += self.render(turns)
        names = re.findall(r"<[^<>\s]+>|\[[^\[\]\s]+\]", text)
        names += self.vocabulary.names.values()
        look_up = self.vocabulary.token_id or (lambda name: None)
        ids = {name: look_up(name) for name in names}
        return {name: index for name, index in ids.items() if index is not None}

    def _ids(self, messages: Messages, prompt: bool = False) -> np.ndarray:
        found = [np.zeros(0, int)]
        for part in self._split.split(self.render(messages, prompt)):
            if part in self.control:
                found.append(np.array([self.control[part]]))
            else:
                skipped = int(self._adds_space and part.startswith(" "))
                found.append(self.vocabulary.encode(part[skipped:]))
        return np.concatenate(found)

    def weighted(self, messages: Messages) -> np.ndarray:
        """Returns twice each token's id, plus 1 if it is of a response or ends one.

        Raises:
            TextError: If the template does not take the messages, or they hold one of
                its control tokens, which would end a turn.
        """
        text = "".join(message["content"] for message in messages)
        for token in self.control:
            if token in text:
                raise TextError(f"A message holds the control token {token!r}.")
        ids = self._ids(messages)
        counts = np.zeros(len(ids), bool)
        for i, message in enumerate(messages):
            if message["role"] == "assistant":
                start = _shared(ids, self._ids(messages[:i], prompt=True))
                end = _shared(ids, self._ids(messages[: i + 1]))
                # White space behind the token that ends the response is the template's.
                last = np.isin(ids[:end], [*self.control.values()]).nonzero()[0][-1:]
                if (
                    len(last)
                    and not self.vocabulary.decode(ids[last[0] + 1 : end]).strip()
                ):
                    end = last[0] + 1
                counts[start:end] = True
        counts[:1] = False  # nothing predicts the first token
        return 2 * ids + counts

    def rows(self, found: Iterable[tuple[str, Messages]]) -> Iterator[list[int]]:
        """Yields rows of whole conversations; warns of those longer than a row.

        A conversation goes into the fullest open row that has room for it.

        Raises:
            TextError: If a conversation cannot be written; says where it is.
        """
        rows: list[list[int]] = []
        padding, left_out = 2 * (self.vocabulary.end_id or 0), 0
        for where, messages in found:
            try:
                ids = self.weighted(messages).tolist()
            except TextError as error:
                raise TextError(f"{where}: {error}") from error
            if len(ids) > self.length:
                left_out += 1
                continue
            fit = [row for row in rows if len(row) + len(ids) <= self.length]
            if not fit and len(rows) == _OPEN:
                fullest = rows.pop(max(range(_OPEN), key=lambda i: len(rows[i])))
                yield fullest + [padding] * (self.length - len(fullest))
            if not fit:
                rows.append([])
            max(fit or rows[-1:], key=len).extend(ids)
        for row in rows:
            yield row + [padding] * (self.length - len(row))
        yield [padding]  # the last row predicts one token more
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
