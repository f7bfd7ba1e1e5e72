"""The table `[chat]` of a run's description: prompts with responses."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_idea.errors import ArgumentError
from keras_idea.lm.data.chat.chat_text import ChatText
from keras_idea.lm.data.chat.row_cache import COUNTED, ON_LONG
from keras_idea.lm.data.chat.templates import TEMPLATES, ChatTemplate
from keras_idea.lm.data.text.records import POLICIES
from keras_idea.lm.data.text.sources import TextSource
from keras_idea.lm.runs.config import fields
from keras_idea.lm.runs.config.corpus_table import check_paths
from keras_idea.validation import check_choice, did_you_mean

_KEYS = tuple(field.name for field in dataclasses.fields(ChatTemplate))


def check_template(name: str, value: Any) -> str | dict[str, Any]:
    """`value` if it is the name of a chat template or a table that makes one."""
    if not isinstance(value, Mapping):
        return str(check_choice(name, value, tuple(TEMPLATES)))
    wrong = next((key for key in value if key not in _KEYS), None)
    missing = [key for key in ("user", "assistant") if key not in value]
    if wrong is not None or missing:
        raise ArgumentError(
            f"`{name}` must be a name or a table of {', '.join(_KEYS)}, of which "
            f"`user` and `assistant` are needed. Received: the keys "
            f"{', '.join(map(str, value))}.{did_you_mean(wrong, _KEYS)}"
        )
    for key, text in value.items():
        listed = isinstance(text, list | tuple)
        texts = text if listed else [text]
        if listed != (key == "tokens") or not all(
            isinstance(t, str) and t for t in texts
        ):
            kind = "a list of strings" if key == "tokens" else "a non-empty string"
            raise ArgumentError(
                f"`{name}.{key}` must be {kind}. Received: {key}={text!r}."
            )
    table = {**value, "tokens": list(value.get("tokens", ()))}
    template_of(table)
    return table


def template_of(table: Mapping[str, Any]) -> ChatTemplate:
    """The `ChatTemplate` of a table."""
    return ChatTemplate(**{**table, "tokens": tuple(table["tokens"])})


@dataclasses.dataclass(frozen=True)
class ChatConfig(fields.Table):
    """`[chat]`: conversations, instead of `data.text` and `[corpus]`.

    A row of `model.sequence_length` tokens holds whole conversations, one after
    another. `data.validation_fraction` is the share of the prompts that is held out;
    validation always judges responses alone.
    """

    table = "chat"
    paths: tuple[str, ...] | None = fields.checked(None, check_paths)
    validation_paths: tuple[str, ...] | None = fields.checked(None, check_paths)
    template: str | Mapping[str, Any] | None = fields.optional(check_template)
    loss: str = fields.choice("responses", *COUNTED)
    on_long: str = fields.choice("skip", *ON_LONG)
    on_bad: str = fields.choice("refuse", *POLICIES)
    cache: str = fields.checked("runs/token-cache", fields.check_text)

    @property
    def given(self) -> bool:
        """bool, whether the run reads conversations."""
        return self.paths is not None

    def _check_together(self) -> None:
        set_ = [n for n in ("validation_paths", "template") if getattr(self, n)]
        if not self.given and set_:
            raise fields.ConfigError(
                "[chat] needs `paths`, the conversations to train on. Received: "
                f"{self.describe(*set_)}. Set `chat.paths`, or delete the table."
            )

    def read(self, validation_fraction: float, length: int) -> ChatText:
        """What the run reads, in rows of `length` tokens.

        Raises:
            TextError: if there is no such file.
        """
        template: Any = self.template
        if isinstance(template, Mapping):
            template = template_of(template)
        counted: Any = self.loss
        on_long: Any = self.on_long
        held_out = self.validation_paths
        return ChatText(
            self._files(self.paths or ()),
            self.cache,
            length,
            template,
            counted=counted,
            on_long=on_long,
            validation=None if held_out is None else self._files(held_out),
            validation_fraction=validation_fraction,
        )

    def _files(self, paths: tuple[str, ...]) -> TextSource:
        return TextSource(paths, on_bad=self.on_bad)
