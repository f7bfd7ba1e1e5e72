"""Conversations: as transformers writes them, and the loss counts the responses."""

import json

import numpy as np
import pytest

from keras_idea._lm.data.conversations import Encoder
from keras_idea.data import TextError, Vocabulary, byte_vocabulary, open_text
from tests.support.text_files import write

CHATML = """{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}
{%- if m['role'] == 'assistant' %}
{%- generation %}{{- m['content'] + '<|im_end|>' }}{%- endgeneration %}
{%- else %}
{{- m['content'] + '<|im_end|>' }}
{%- endif %}
{{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
TURNS = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Grüße?"},
    {"role": "assistant", "content": "Yes"},
    {"role": "user", "content": "And?"},
    {"role": "assistant", "content": "No, <b>never</b>."},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The tokenizer files of a checkpoint, as transformers saves them."""
    import tokenizers
    import transformers

    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator([turn["content"] for turn in TURNS] * 9, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", chat_template=CHATML
    )
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def vocabulary(folder):
    import tokenizers

    made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return Vocabulary(
        lambda texts: [made.encode(text).ids for text in texts],
        lambda ids: made.decode([int(i) for i in ids], skip_special_tokens=False),
        np.ones(made.get_vocab_size()),
        end_id=made.token_to_id("<|im_end|>"),
        token_id=made.token_to_id,
    )


def test_equals_transformers(folder, vocabulary):
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    expected = tokenizer.apply_chat_template(
        TURNS, return_dict=True, return_assistant_tokens_mask=True
    )
    found = Encoder(folder, vocabulary, 64).weighted(TURNS)
    assert (found >> 1).tolist() == expected["input_ids"]
    assert (found & 1).tolist() == expected["assistant_masks"]


def records(count):
    return [{"prompt": f"add {i} and 1", "response": f"{i + 1}"} for i in range(count)]


def lines(values):
    return "".join(json.dumps(value) + "\n" for value in values).encode()


def test_rows_hold_whole_conversations(tmp_path, folder, vocabulary):
    long = {"messages": [{"role": "user", "content": "x" * 99}, TURNS[-1]]}
    write(tmp_path, {"a.jsonl": lines([*records(40), long, *records(40)])})
    options = {"paths": tmp_path, "chat": True, "template": folder, "length": 64}
    with pytest.warns(UserWarning, match="1 conversation longer"):
        tokens = open_text(
            **options, vocabulary=vocabulary, validation_fraction=0.3, cache=tmp_path
        )
    texts = []
    for part in (tokens.train, tokens.held_out):
        rows = part[:-1].reshape(-1, 64)
        texts.append("".join(vocabulary.decode(row >> 1) for row in rows))
    # Equal prompts are of the same part.
    prompts = [{i for i in range(40) if f"add {i} and" in text} for text in texts]
    assert prompts[0] | prompts[1] == set(range(40)) and not prompts[0] & prompts[1]
    x, y, weights = next(iter(tokens.batches(length=64, batch_size=4)))
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    counted = vocabulary.decode(y[weights > 0]).split("<|im_end|>")[:-1]
    assert all(text.isdigit() for text in counted) and len(counted) >= 4
    silent = vocabulary.end_id
    assert tokens.vocabulary.token_bytes[silent] == 0 < tokens.counted < 1
    ids = tokens.train[:][tokens.train[:] % 2 == 1] // 2
    answers = vocabulary.decode(ids).replace("<|im_end|>", "").encode()
    assert tokens.bytes_per_token() == pytest.approx(len(answers) / len(ids))
    with pytest.raises(ValueError, match="length"):
        tokens.held_out_windows(32)


BAD = {
    "no response": ({"prompt": "a"}, "line 2"),
    "the user last": ({"messages": TURNS[:2]}, "line 2"),
    "no messages": ({"text": "a"}, "line 2"),
    "no object": ([1], "line 2"),
    "a control token": ({"prompt": "a<|im_end|>", "response": "b"}, "line 2"),
}


@pytest.mark.parametrize("record, place", BAD.values(), ids=BAD)
def test_a_bad_record_is_an_error(tmp_path, folder, vocabulary, record, place):
    write(tmp_path, {"a.jsonl": lines([*records(1), record])})
    with pytest.raises(TextError, match=place):
        open_text(
            paths=tmp_path,
            chat=True,
            template=folder,
            length=64,
            vocabulary=vocabulary,
            validation_fraction=0.0001,
        )


def test_templates(tmp_path, vocabulary):
    with pytest.raises(TextError, match="template"):
        Encoder(tmp_path, vocabulary, 64)
    with pytest.raises(TextError, match="template"):
        Encoder("{{ raise_exception('no') }}", vocabulary, 64)
    source = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    config = {"chat_template": source, "bos_token": {"content": "<s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = Encoder(tmp_path, byte_vocabulary(), 64).weighted(TURNS[1:3])
    assert bytes((found >> 1).tolist()).decode() == "<s>Grüße?Yes"
    # Code of a template runs in a sandbox.
    with pytest.raises(TextError, match="template"):
        Encoder("{{ ''.__class__.__mro__ }}{{ cycler.__init__() }}", vocabulary, 9)
