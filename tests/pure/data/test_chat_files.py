"""Conversations of files: bad records, the batches of a corpus, what is left out."""

import dataclasses
import json
import logging

import numpy as np
import pytest

from keras_idea.data import BadRecordError, ReadLog, TextError, TextSource
from keras_idea.errors import ArgumentError
from keras_idea.lm.data.chat.chat_text import ChatText
from keras_idea.lm.data.chat.conversations import read_conversations
from keras_idea.lm.data.chat.templates import ChatTemplate
from tests.support.toy_vocabulary import toy_vocabulary

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
    # Rows of another length would split conversations.
    other = {"seed": 0, "batch_size": 6, "length": 12}
    for split in (
        lambda: corpus.batch(0, **other),
        lambda: next(corpus.batches(**other)),
        lambda: corpus.validation_windows(length=12),
        lambda: corpus.check_length(48),
    ):
        with pytest.raises(ArgumentError, match="`length`"):
            split()
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


@pytest.mark.parametrize("fraction", [0.3, 0.7])
def test_bad_records_are_counted_in_both_parts(tmp_path, fraction):
    """Once each: a prompt without a response, and ten with a token of the template."""
    pytest.importorskip("grain")
    template = dataclasses.replace(QA, tokens=("<b>",))
    held = [{"prompt": f"{i}<b>", "response": "c"} for i in range(10)]
    path = tmp_path / "chat.jsonl"
    lines = [json.dumps(record) for record in (*RECORDS, *held, {"prompt": "a"})]
    path.write_text("\n".join(lines))
    source = TextSource(path, on_bad="skip")
    given = {"template": template, "validation_fraction": fraction}
    text = ChatText(source, tmp_path / "cache", 24, **given)
    corpus = text.tokenized(toy_vocabulary())
    assert "11 bad records left out" in corpus.description


@pytest.mark.parametrize("record", [{"prompt": "a<b>", "response": "c"}])
def test_a_message_with_a_token_of_the_template(tmp_path, record):
    """A tokenizer that obeys it would begin a turn in the middle of a message."""
    pytest.importorskip("grain")
    template = dataclasses.replace(QA, tokens=("<b>",))
    text = chat_text(tmp_path, [record, *RECORDS], template=template)
    with pytest.raises(BadRecordError, match=r"line 1: control token.*received: '<b>'"):
        text.tokenized(toy_vocabulary())
