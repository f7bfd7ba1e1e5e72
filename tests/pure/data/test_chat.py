"""Conversations: templates as published, tokens that count, rows, bad records."""

import dataclasses
import json
import logging

import numpy as np
import pytest

from keras_idea.data import BadRecordError, ReadLog, TextError, TextSource, Vocabulary
from keras_idea.data.chat.chat_text import ChatText
from keras_idea.data.chat.conversations import read_conversations
from keras_idea.data.chat.rows import packed_rows, weighted_tokens
from keras_idea.data.chat.templates import (
    END,
    TEMPLATES,
    ChatTemplate,
    Message,
    Piece,
    family_template,
    render,
)
from keras_idea.errors import ArgumentError

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


def toy_vocabulary(adds_space=False):
    """Bytes, but "e " is one token (256), and tokens <s>, </s> (257, 258)."""

    def encode(text):
        text = f" {text}" if adds_space and text else text
        ids, place = [], 0
        while place < len(text):
            merged = text[place : place + 2] == "e "
            ids.append(256 if merged else ord(text[place]))
            place += 1 + merged
        return np.array(ids, "int32")

    sizes = np.array([1.0] * 256 + [2.0, 0.0, 0.0])
    ids = {"<s>": 257, "</s>": 258}
    decode = "".join
    return Vocabulary(encode, decode, sizes, 258, "toy", token_id=ids.get)


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


GOOD = {"prompt": "Hi", "response": "Hello"}


def messages(*roles_and_texts):
    return {"messages": [{"role": r, "content": c} for r, c in roles_and_texts]}


BAD = {
    "a list": ([1], "no messages", r"received: a list"),
    "a text": ({"text": "a"}, "no messages", "received: the keys text"),
    "messages that are none": ({"messages": "a"}, "no messages", "messages='a'"),
    "no response": ({"prompt": "a"}, "no response", "received: the keys prompt"),
    "a prompt last": (messages(("user", "a")), "no response", "received: 'user' last"),
    "an empty response": (
        messages(("user", "a"), ("assistant", " ")),
        "no response",
        "an empty response in message 2",
    ),
    "an empty prompt": ({"prompt": "", "response": "a"}, "empty", "message 1"),
    "no message": ({"messages": []}, "no response", "received: no message"),
    "a tool": (
        messages(("user", "a"), ("tool", "b"), ("assistant", "c")),
        "unknown role",
        "received: 'tool' in message 2",
    ),
    "two users": (
        messages(("user", "a"), ("user", "b"), ("assistant", "c")),
        "wrong order",
        "received: user, user, assistant",
    ),
    "a late system": (
        messages(("user", "a"), ("system", "b"), ("assistant", "c")),
        "wrong order",
        "received: user, system, assistant",
    ),
    "a number": ({"prompt": 1, "response": "a"}, "not a message", "as message 1"),
    "half a pair": ({"prompt": "\ud800", "response": "a"}, "invalid utf8", "message 1"),
}


@pytest.mark.parametrize("record, kind, received", BAD.values(), ids=BAD.keys())
def test_bad_records_are_named_with_file_and_line(tmp_path, record, kind, received):
    path = tmp_path / "chat.jsonl"
    path.write_text("\n".join(map(json.dumps, (GOOD, record, GOOD))))
    source = TextSource(path)
    with pytest.raises(BadRecordError) as raised:
        list(read_conversations(source, ReadLog()))
    told = str(raised.value)
    assert told.startswith(f"{path}, line 2: {kind}: ") and received in told
    assert "Correct the record, or leave out all such records" in told
    log = ReadLog("skip")
    assert len(list(read_conversations(source, log))) == log.documents == 2
    assert sum(log.bad.values()) == 1


@pytest.mark.parametrize("empty", [None, 3])
def test_columns_of_the_other_form_may_be_empty(tmp_path, empty):
    """As a table of both forms is written to JSON lines."""
    path = tmp_path / "chat.jsonl"
    turns = messages(("user", "Hi"), ("assistant", "Hello"))
    none = dict.fromkeys(("prompt", "response"))
    records = [{"messages": empty, **GOOD}, {**turns, **none}]
    path.write_text("\n".join(map(json.dumps, records)))
    first, second = read_conversations(TextSource(path), ReadLog())
    assert first.messages == second.messages


def test_files_of_other_kinds(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(TextError, match=r"Chat records are JSON lines.*a.txt'. Conv"):
        list(read_conversations(TextSource(tmp_path), ReadLog()))


QA = ChatTemplate("Q:{content}\n", "A:{content}</s>", tokens=("</s>",))


def chat_text(tmp_path, records, **more):
    path = tmp_path / "chat.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    given = {"template": QA, "validation_fraction": 0.3, **more}
    return ChatText(TextSource(path), tmp_path / "cache", 24, **given)


RECORDS = [{"prompt": f"{i}", "response": f"no {i}"} for i in range(40)]


def test_batches_have_the_weights_of_responses(tmp_path):
    pytest.importorskip("grain")
    vocabulary = toy_vocabulary()
    corpus = chat_text(tmp_path, RECORDS).tokenized(vocabulary)
    x, y, w = corpus.batch(0, seed=0, batch_size=6, length=24)
    assert x.shape == y.shape == w.shape == (6, 24)
    assert w.dtype == "float32" and set(np.unique(w)) == {0.0, 1.0}
    assert (x[:, 1:] == y[:, :-1]).all()
    # Exactly the responses and their ends: what stands between "A:" and the end.
    for targets, weights in zip(y, w, strict=True):
        text = "".join("|" if i == 258 else chr(i) for i in targets)
        counted = "".join(c for c, n in zip(text, weights, strict=True) if n)
        answers = [part.split("A:")[1] for part in text.split("|") if "A:" in part]
        assert counted == "".join(f"{answer}|" for answer in answers) != ""
    # The figures of the whole: every response once.
    stream = "".join(chr(i) for i in corpus.train[:] >> 1)
    prompts = [r for r in RECORDS if f"Q:{r['prompt']}\n" in stream]
    assert corpus.counted_bytes == sum(len(r["response"]) for r in prompts)
    assert corpus.counted_tokens == corpus.counted_bytes + len(prompts)
    assert corpus.counted == corpus.counted_tokens / (len(corpus.train) - 1)
    # Of a step they depend on its number alone.
    later = next(corpus.batches(seed=0, batch_size=6, length=24, start_step=3))
    again = corpus.batch(3, seed=0, batch_size=6, length=24)
    assert all((a == b).all() for a, b in zip(later, again, strict=True))


def test_equal_prompts_are_in_one_part(tmp_path):
    pytest.importorskip("grain")
    # White space at the ends is not rendered.
    twice = RECORDS + [
        {"prompt": f"{record['prompt']}\n", "response": "yes"} for record in RECORDS
    ]
    corpus = chat_text(tmp_path, twice).tokenized(toy_vocabulary())
    parts = []
    for ids in (corpus.train, corpus.validation):
        text = "".join(chr(i >> 1) for i in ids[:] if i >> 1 < 256)
        parts.append({p.split("\n")[0] for p in text.split("Q:")[1:]})
    assert parts[0] and parts[1] and not parts[0] & parts[1]
    assert len(parts[0]) + len(parts[1]) == 40


def test_all_tokens_count_if_the_run_says_so(tmp_path):
    pytest.importorskip("grain")
    corpus = chat_text(tmp_path, RECORDS, counted="all").tokenized(toy_vocabulary())
    ids = corpus.train[:-1]
    begins = (ids >> 1 == ord("Q")).sum()
    padding = ids == 2 * 258
    # All but the first token of each and the padding.
    assert (ids & 1).sum() == len(ids) - begins - padding.sum()
    # Validation judges the responses in any case.
    other = chat_text(tmp_path, RECORDS).tokenized(toy_vocabulary())
    assert (corpus.validation[:] == other.validation[:]).all()


LONG = {"prompt": "long", "response": "x" * 40}


@pytest.mark.parametrize("on_long", ["skip", "truncate"])
def test_long_conversations_are_counted(tmp_path, on_long):
    pytest.importorskip("grain")
    records = [*RECORDS, LONG, {"prompt": "x" * 40, "response": "lost"}]
    text = chat_text(tmp_path, records, on_long=on_long, validation=None)
    corpus = text.tokenized(toy_vocabulary())
    truncated = 0 if on_long == "skip" else 1
    told = f"2 longer than 24 tokens, of which {2 - truncated} left out and {truncated}"
    assert told in corpus.description
    stream = np.concatenate([corpus.train[:], corpus.validation[:]]) >> 1
    assert ("x" * 15 in "".join(map(chr, stream))) == bool(truncated)


def test_long_conversations_can_be_refused(tmp_path):
    pytest.importorskip("grain")
    text = chat_text(tmp_path, [*RECORDS, LONG], on_long="refuse")
    match = r"line 41: the conversation is longer than a row. Received: 50 tokens, .*50"
    with pytest.raises(TextError, match=match):
        text.tokenized(toy_vocabulary())
    assert not list((tmp_path / "cache").glob("*"))  # nothing half made


def test_nothing_is_left(tmp_path):
    pytest.importorskip("grain")
    with pytest.raises(TextError, match="no conversation to train on.*Set a larger `m"):
        chat_text(tmp_path, [LONG], on_long="skip").tokenized(toy_vocabulary())


def test_bad_records_are_told_of_in_the_description(tmp_path, caplog):
    pytest.importorskip("grain")
    path = tmp_path / "chat.jsonl"
    lines = [json.dumps(record) for record in (*RECORDS, {"prompt": "a"})]
    path.write_text("\n".join(lines))
    source = TextSource(path, on_bad="skip")
    text = ChatText(source, tmp_path / "cache", 24, QA, validation_fraction=0.3)
    with caplog.at_level(logging.WARNING, "keras_idea.data"):
        corpus = text.tokenized(toy_vocabulary())
    assert "1 bad record left out" in corpus.description
    assert f"{path}, line 41: no response: skipped" in caplog.text


@pytest.mark.parametrize("record", [{"prompt": "a<b>", "response": "c"}])
def test_a_message_with_a_token_of_the_template(tmp_path, record):
    """A tokenizer that obeys it would begin a turn in the middle of a message."""
    pytest.importorskip("grain")
    template = dataclasses.replace(QA, tokens=("<b>",))
    text = chat_text(tmp_path, [record, *RECORDS], template=template)
    with pytest.raises(BadRecordError, match=r"line 1: control token.*received: '<b>'"):
        text.tokenized(toy_vocabulary())
