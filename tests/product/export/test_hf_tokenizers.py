"""Tokenizers of Hugging Face folders, of SentencePiece: texts of every kind."""

import json

import numpy as np
import pytest

from keras_idea.export import export_hf
from keras_idea.lm.data.make_tokenizer import make_tokenizer
from tests.support.hub_models import tiny_lm
from tests.support.with_tokenizer import TEXT, VOCABULARY, with_tokenizer

# With each of their control tokens.
FAMILIES = {
    "llama": ("<s>", "</s>", "<unk>"),
    "mistral": ("<s>", "</s>", "<unk>"),
    "gemma": ("<bos>", "<eos>", "<unk>", "<pad>", "<start_of_turn>"),
}
TEXTS = ("the fox", "  two spaces, 2024", "naïve 漢字\n\n    x\t")
CHAT = (
    "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{{ eos_token }}"
    "{% endfor %}"
)


def exported(family, folder, change=lambda model: None):
    """A folder, the model's own function of a text to ids, and what was printed."""
    from sentencepiece import sentencepiece_model_pb2

    lm = tiny_lm(family, num_layers=1, vocabulary_size=VOCABULARY)
    tokenizer = make_tokenizer(family, "sentencepiece", TEXT, VOCABULARY)
    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.proto)
    change(model)
    with_tokenizer(lm, family)
    tokenizer = type(tokenizer)(proto=model.SerializeToString())
    lm.preprocessor = type(lm.preprocessor)(tokenizer, sequence_length=16)
    export = export_hf(lm, folder)

    def encode(text):
        return [tokenizer.start_token_id, *np.asarray(tokenizer(text)).tolist()]

    return encode, tokenizer, str(export)


def loaded(folder, **options):
    import transformers

    return transformers.AutoTokenizer.from_pretrained(folder, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_special_tokens_in_a_text(family, tmp_path):
    encode, ours, told = exported(family, tmp_path / "hf")
    names = FAMILIES[family]
    line = next(x for x in told.splitlines() if x.startswith("In a text its tokenizer"))
    assert all(name in line for name in names)
    assert "`tokenizer(text, split_special_tokens=True)` gives" in line
    tokenizer = loaded(tmp_path / "hf")
    texts = [f"a {name} b{name}" for name in names] + ["".join(names), *TEXTS]
    for text in texts:
        for found in (
            tokenizer(text, split_special_tokens=True)["input_ids"],
            loaded(tmp_path / "hf", split_special_tokens=True).encode(text),
        ):
            assert found == encode(text)
            assert tokenizer.decode(found, skip_special_tokens=True) == text
    # Without it they are tokens, of which chat templates are made.
    assert tokenizer.encode(names[0])[1:] == [ours.start_token_id]
    tokenizer.chat_template = CHAT
    found = tokenizer.apply_chat_template([{"role": "user", "content": "the fox"}])
    found = found["input_ids"] if hasattr(found, "keys") else found
    assert found == [*encode("the fox"), ours.end_token_id]
    assert tokenizer.decode(found, skip_special_tokens=True) == "the fox"


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_space_before_every_text(family, tmp_path):
    """As released ones of these families put it."""

    def change(model):
        model.normalizer_spec.add_dummy_prefix = True

    encode, ours, told = exported(family, tmp_path / "hf", change)
    assert "Warning" not in told
    tokenizer = loaded(tmp_path / "hf")
    assert encode("the fox") != encode(" the fox") != encode("  the fox")
    for text in (*TEXTS, " the fox", "  the fox"):
        assert tokenizer.encode(text) == encode(text)
        assert tokenizer.decode(encode(text), skip_special_tokens=True) == text


@pytest.mark.parametrize("family", FAMILIES)
def test_every_version_of_transformers_is_told_of_no_space(family, tmp_path):
    """4.57 puts one where that is not said, 5 does not in each family."""
    exported(family, tmp_path / "hf")
    settings = json.loads((tmp_path / "hf/tokenizer_config.json").read_text())
    assert settings["add_prefix_space"] is False


def test_pieces_that_kerashub_reads_in_a_text_too(tmp_path):
    """As a released Gemma's marks of a turn: they are not told of."""

    def change(model):
        for piece in model.pieces:
            if piece.piece.endswith("_of_turn>"):
                piece.type = piece.USER_DEFINED

    encode, _, told = exported("gemma", tmp_path / "hf", change)
    text = "<start_of_turn>user\nhi<end_of_turn>"
    assert loaded(tmp_path / "hf").encode(text) == encode(text)
    line = next(x for x in told.splitlines() if x.startswith("In a text its tokenizer"))
    assert "<bos>" in line and "_of_turn>" not in line
    # Which would split these, too.
    assert "split_special_tokens" not in line
