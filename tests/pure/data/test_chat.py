"""Conversations as tokens: templates as published, what counts, rows."""

import numpy as np
import pytest

from keras_idea.errors import ArgumentError
from keras_idea.lm.data.chat.rows import packed_rows, weighted_tokens
from keras_idea.lm.data.chat.templates import (
    END,
    TEMPLATES,
    ChatTemplate,
    Message,
    Piece,
    family_template,
    render,
)
from tests.support.toy_vocabulary import toy_vocabulary

TURNS = [
    Message("user", "Hello, how are you?"),
    Message("assistant", "Fine, and you?"),
    Message("user", "I'm doing great!"),
    Message("assistant", "Glad to hear!"),
]
SYSTEM = Message("system", "Be brief.")

# What the families' own documents and tokenizers write. Mistral AI's table of chat
# templates puts a second space after "<s>" and "</s>" of version 1 alone.
PUBLISHED = {
    "llama3": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
    "Be brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
    "Hello, how are you?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    "Fine, and you?<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
    "I'm doing great!<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    "Glad to hear!<|eot_id|>",
    "gemma": "<bos><start_of_turn>user\nBe brief.\n\nHello, how are you?<end_of_turn>\n"
    "<start_of_turn>model\nFine, and you?<end_of_turn>\n"
    "<start_of_turn>user\nI'm doing great!<end_of_turn>\n"
    "<start_of_turn>model\nGlad to hear!<end_of_turn>\n",
    "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n"
    "<|im_start|>user\nHello, how are you?<|im_end|>\n"
    "<|im_start|>assistant\nFine, and you?<|im_end|>\n"
    "<|im_start|>user\nI'm doing great!<|im_end|>\n"
    "<|im_start|>assistant\nGlad to hear!<|im_end|>\n",
    "plain": "System:\nBe brief.\nUser:\nHello, how are you?\nAssistant:\n"
    "Fine, and you?{end}\nUser:\nI'm doing great!\nAssistant:\nGlad to hear!{end}\n",
}
PUBLISHED_WITHOUT_SYSTEM = {
    "mistral": "<s> [INST] Hello, how are you? [/INST] Fine, and you?</s> [INST] "
    "I'm doing great! [/INST] Glad to hear!</s>",
    "mistral_v3": "<s>[INST] Hello, how are you?[/INST] Fine, and you?</s>[INST] "
    "I'm doing great![/INST] Glad to hear!</s>",
}


def text_of(pieces, counted=False):
    return "".join(p.text for p in pieces if p.counts or not counted)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_the_published_one(name):
    if name in PUBLISHED:
        assert text_of(render(TEMPLATES[name], [SYSTEM, *TURNS])) == PUBLISHED[name]
    else:
        expected = PUBLISHED_WITHOUT_SYSTEM[name]
        assert text_of(render(TEMPLATES[name], TURNS)) == expected
        with_system = text_of(render(TEMPLATES[name], [SYSTEM, *TURNS]))
        assert with_system == expected.replace("Hello", "Be brief.\n\nHello")


ENDS = {
    "llama3": ("", "<|eot_id|>"),
    "gemma": ("", "<end_of_turn>"),
    "mistral": (" ", "</s>"),
    "mistral_v3": (" ", "</s>"),
    "chatml": ("", "<|im_end|>"),
    "plain": ("", END),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_responses_and_their_ends_count(name):
    begin, end = ENDS[name]
    counted = text_of(render(TEMPLATES[name], [SYSTEM, *TURNS]), counted=True)
    expected = f"{begin}Fine, and you?{end}{begin}Glad to hear!{end}"
    assert counted == expected


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_listed_tokens_are_pieces_of_their_own(name):
    pieces = render(TEMPLATES[name], [SYSTEM, *TURNS])
    tokens = {*TEMPLATES[name].tokens, END}
    assert {p.text for p in pieces if p.is_token} == tokens & set(
        p.text for p in pieces
    )
    assert all(p.is_token or not any(t in p.text for t in tokens) for p in pieces)


def test_a_token_may_begin_like_another():
    template = ChatTemplate("<s>{content}", "{content}</s>", tokens=("<s", "<s>"))
    pieces = render(template, TURNS[:2])
    assert [p.text for p in pieces if p.is_token] == ["<s>"]


def test_family_templates():
    assert family_template("Mistral", {"<s>", "</s>"}) == "mistral"
    every = {"<s>", "</s>", "[INST]", "[/INST]"}
    assert family_template("Mistral", every) == "mistral_v3"
    assert family_template("Qwen3", set()) == "chatml"
    with pytest.raises(ArgumentError, match="template of a Bloom is not known.*Set it"):
        family_template("Bloom", set())
    with pytest.raises(ArgumentError, match="template of a decoder is not known.*Set"):
        family_template("", set())


def test_a_token_over_the_border_counts():
    vocabulary = toy_vocabulary()
    pieces = [Piece("ae", False, False), Piece(" b", False, True)]
    ids, counts = weighted_tokens(pieces, vocabulary)
    assert ids.tolist() == [ord("a"), 256, ord("b")]
    assert counts.tolist() == [False, True, True]


@pytest.mark.parametrize("adds_space", [False, True])
def test_one_space_after_a_token(adds_space):
    """As Mistral AI's own tokenizers: "<s>▁[INST]▁a▁[/INST]▁b</s>▁[INST]▁c..."."""
    pieces = render(
        TEMPLATES["mistral"], [Message("user", "a"), Message("assistant", "b")]
    )
    ids, counts = weighted_tokens(pieces, toy_vocabulary(adds_space))
    expected = [257, *map(ord, " [INST] a [/INST] b"), 258]
    assert ids.tolist() == expected
    assert counts.tolist() == [False] * (len(ids) - 3) + [True] * 3


def test_a_template_of_other_tokens():
    pieces = render(TEMPLATES["chatml"], TURNS)
    with pytest.raises(ArgumentError, match=r"needs the token '<\|im_start\|>'.*Set"):
        weighted_tokens(pieces, toy_vocabulary())


@pytest.mark.parametrize("seed", range(5))
def test_rows_hold_whole_conversations(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 33, 400)
    given = [np.full(size, i + 1) for i, size in enumerate(sizes)]
    rows = list(packed_rows(given, 32, padding=0))
    assert {row.shape for row in rows} == {(32,)}
    stream = np.concatenate(rows)
    # Each is in one row, in one piece.
    for i, size in enumerate(sizes):
        places = np.flatnonzero(stream == i + 1)
        assert len(places) == size and places[-1] - places[0] == size - 1
        assert places[0] // 32 == places[-1] // 32
    # One after another, without a look at other open rows, 0.25 of it is padding.
    assert (stream == 0).mean() < 0.1
