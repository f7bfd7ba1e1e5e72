"""Chat templates: how a family of models writes a conversation.

KerasHub presets carry none, so the well-known ones are here, each a row of data.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from keras_idea.errors import ArgumentError

#: Where a template takes a message, and where the token that ends a document.
CONTENT, END = "{content}", "{end}"


class Message(NamedTuple):
    """One turn of a conversation; the role is "system", "user" or "assistant"."""

    role: str
    content: str


class Piece(NamedTuple):
    """Text of a rendered conversation, or the name of a single token."""

    text: str
    is_token: bool
    counts: bool  # whether the loss counts it


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
    """Says how each message of a conversation is written.

    The loss counts the `{content}` of `assistant`, spaces right before it, and what
    follows it up to the last character that is not white space: the token that ends the
    turn.

    Args:
        user: str. A user's message, with `{content}`.
        assistant: str. A response, with `{content}`; `{end}` is the token that ends a
            document.
        system: str. A system message. "" puts its content and a blank line before the
            first user message. Defaults to "".
        start: str. What a conversation begins with. Defaults to "".
        tokens: tuple of str. The parts of the template that are one token each.
            Defaults to ().

    Raises:
        ArgumentError: If a message has no place for its content.

    Example:
    >>> template = ChatTemplate("Q: {content} ", "A: {content}{end} ")
    >>> turns = [Message("user", "1 + 1?"), Message("assistant", "2")]
    >>> [piece.text for piece in render(template, turns) if piece.counts]
    [' 2', '{end}']
    """

    user: str
    assistant: str
    system: str = ""
    start: str = ""
    tokens: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for role in ("user", "assistant", "system"):
            text = getattr(self, role)
            if text.count(CONTENT) != 1 and (text or role != "system"):
                raise ArgumentError(
                    f"`{role}` of a chat template must hold {CONTENT} once. Received: "
                    f"{role}={text!r}. Put {CONTENT} where the message stands."
                )


def _of_headers(begin: str, middle: str, end: str, start: str = "") -> ChatTemplate:
    """The template of families that write every role alike."""
    written = {r: f"{begin}{r}{middle}{CONTENT}{end}" for r in ("system", "user")}
    tokens = re.findall(r"<\|\w+\|>", start + begin + middle + end)
    assistant = f"{begin}assistant{middle}{CONTENT}{end}"
    return ChatTemplate(
        **written, assistant=assistant, start=start, tokens=tuple(tokens)
    )


#: Template of each name. Published by Meta (Llama 3), Google (Gemma), Mistral AI
#: (tokenizer versions 1 and 3) and Qwen (ChatML); "plain" needs no special token.
TEMPLATES: Mapping[str, ChatTemplate] = MappingProxyType(
    {
        "llama3": _of_headers(
            "<|start_header_id|>",
            "<|end_header_id|>\n\n",
            "<|eot_id|>",
            "<|begin_of_text|>",
        ),
        "gemma": ChatTemplate(
            start="<bos>",
            user="<start_of_turn>user\n{content}<end_of_turn>\n",
            assistant="<start_of_turn>model\n{content}<end_of_turn>\n",
            tokens=("<bos>", "<start_of_turn>", "<end_of_turn>"),
        ),
        "mistral": ChatTemplate(
            start="<s>",
            user=" [INST] {content} [/INST]",
            assistant=" {content}</s>",
            tokens=("<s>", "</s>"),
        ),
        "mistral_v3": ChatTemplate(
            start="<s>",
            user="[INST] {content}[/INST]",
            assistant=" {content}</s>",
            tokens=("<s>", "</s>", "[INST]", "[/INST]"),
        ),
        "chatml": _of_headers("<|im_start|>", "\n", "<|im_end|>\n"),
        "plain": ChatTemplate(
            system="System:\n{content}\n",
            user="User:\n{content}\n",
            assistant="Assistant:\n{content}{end}\n",
        ),
    }
)
# Templates of a family; the first of which the tokenizer has all tokens is meant.
_OF_FAMILY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Llama3": ("llama3",),
        "Gemma": ("gemma",),
        "Gemma3": ("gemma",),
        "Mistral": ("mistral_v3", "mistral"),
        "Mixtral": ("mistral_v3", "mistral"),
        "Qwen": ("chatml",),
        "QwenMoe": ("chatml",),
        "Qwen3": ("chatml",),
        "Qwen3Moe": ("chatml",),
    }
)


def family_template(family: str, known: Collection[str]) -> str:
    """The name of the template of a KerasHub family, such as "Llama3".

    `known` are the tokens that its tokenizer has, of those of all templates.

    Raises:
        ArgumentError: if no template of the family is known.

    Example:
    >>> family_template("Mistral", known={"<s>", "</s>"})
    'mistral'
    """
    names = _OF_FAMILY.get(family)
    if names is None:
        raise ArgumentError(
            f"The chat template of a {family or 'decoder'} is not known. Received: no "
            f"`chat.template`. Set it to one of {', '.join(TEMPLATES)}, or to a table."
        )
    fit = [name for name in names if set(TEMPLATES[name].tokens) <= set(known)]
    return (fit or list(names))[0]


def render(template: ChatTemplate, messages: Sequence[Message]) -> list[Piece]:
    """A conversation as the pieces that a template makes of it.

    Content is stripped of white space at both ends. The text that a model reads is
    that of all pieces, one after another.

    Example:
    >>> turns = [Message("user", "Hi"), Message("assistant", "Hello")]
    >>> "".join(piece.text for piece in render(TEMPLATES["mistral"], turns))
    '<s> [INST] Hi [/INST] Hello</s>'
    """
    pieces = _split(template.start, template.tokens)
    held = ""
    for role, content in messages:
        written = getattr(template, role)
        if not written:
            held = f"{content.strip()}\n\n"
            continue
        before, after = written.split(CONTENT)
        end, content = "", content.strip()
        if role == "user":
            content, held = held + content, ""
        if role == "assistant":
            # A prompt ends before the space: the model writes that too.
            prompt, end = before.rstrip(" "), after.rstrip()
            before, content = prompt, before[len(prompt) :] + content
        pieces += _split(before, template.tokens)
        pieces.append(Piece(content, False, role == "assistant"))
        pieces += _split(end, template.tokens, counts=True)
        pieces += _split(after[len(end) :], template.tokens)
    return pieces


def _split(text: str, tokens: Iterable[str], counts: bool = False) -> list[Piece]:
    """The pieces of a part of a template; `{end}` is a token of any."""
    # The longer first: "<s" must not be found in "<s>".
    tokens = sorted({*tokens, END}, key=lambda token: (-len(token), token))
    parts = re.split(f"({'|'.join(map(re.escape, tokens))})", text)
    return [Piece(part, part in tokens, counts) for part in parts if part]
