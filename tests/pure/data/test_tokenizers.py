"""Tokenizers from files: the ids of their libraries, no byte lost count of."""

import hashlib

import numpy as np
import pytest

from keras_idea.data import (
    byte_vocabulary,
    huggingface_vocabulary,
    load_vocabulary,
    sentencepiece_vocabulary,
)
from keras_idea.errors import TextError
from tests.support.text_files import TEXTS, huggingface_file, sentencepiece_file

HARD = [*TEXTS, "", " ", "<|endoftext|></s><unk>", "e\u0301 \ufb01 \x00 \t\r\n  x  "]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    huggingface_file(folder / "tokenizer.json")
    sentencepiece_file(folder / "tokenizer.model")
    return folder


@pytest.fixture(params=["bytes", "tokenizer.model", "tokenizer.json"])
def vocabulary(request, folder):
    name = request.param
    return load_vocabulary(name if name == "bytes" else folder / name)


class TestEvery:
    def test_text_comes_back(self, vocabulary):
        for text in HARD:
            assert vocabulary.decode(vocabulary.encode(text)) == text

    def test_ids(self, vocabulary):
        for text in HARD:
            ids = vocabulary.encode(text)
            assert ids.dtype == "int32" and ids.ndim == 1
            assert (ids >= 0).all() and (ids < vocabulary.vocabulary_size).all()

    def test_a_text_never_holds_the_end(self, vocabulary):
        assert 0 <= vocabulary.end_id < vocabulary.vocabulary_size
        for text in HARD:
            assert vocabulary.end_id not in vocabulary.encode(text)

    def test_every_byte_counts(self, vocabulary):
        for text in HARD:
            counted = vocabulary.token_bytes[vocabulary.encode(text)].sum()
            assert counted == len(text.encode())
        assert vocabulary.token_bytes[vocabulary.end_id] == 0

    def test_many_at_once_as_one_by_one(self, vocabulary):
        assert vocabulary.encode_all([]) == []
        for one, other in zip(vocabulary.encode_all(HARD), HARD, strict=True):
            np.testing.assert_array_equal(one, vocabulary.encode(other))


class TestAgainstTheLibrary:
    def test_sentencepiece(self, folder):
        import sentencepiece

        path = folder / "tokenizer.model"
        library = sentencepiece.SentencePieceProcessor(model_file=str(path))
        vocabulary = sentencepiece_vocabulary(path)
        assert vocabulary.vocabulary_size == library.vocab_size()
        assert vocabulary.end_id == library.eos_id() == library.piece_to_id("</s>")
        for text in HARD:
            assert vocabulary.encode(text).tolist() == library.encode(text)

    def test_huggingface(self, folder):
        from tokenizers import Tokenizer

        path = folder / "tokenizer.json"
        library = Tokenizer.from_file(str(path))
        vocabulary = huggingface_vocabulary(path)
        assert vocabulary.vocabulary_size == library.get_vocab_size()
        assert vocabulary.end_id == library.token_to_id("<|endoftext|>")
        for text in TEXTS:
            assert vocabulary.encode(text).tolist() == library.encode(text).ids

    def test_huggingface_neither_cuts_nor_pads_nor_adds(self, tmp_path):
        from tokenizers import Tokenizer, processors

        path = huggingface_file(tmp_path / "tokenizer.json")
        plain = huggingface_vocabulary(path)
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.enable_truncation(3)
        tokenizer.enable_padding(length=50)
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
        )
        tokenizer.save(str(path))
        assert len(tokenizer.encode(TEXTS[0]).ids) == 50
        np.testing.assert_array_equal(
            huggingface_vocabulary(path).encode(TEXTS[0]), plain.encode(TEXTS[0])
        )

    def test_bytes(self):
        vocabulary = load_vocabulary("bytes")
        for text in HARD:
            assert bytes(vocabulary.encode(text).tolist()) == text.encode()
        assert (vocabulary.vocabulary_size, vocabulary.end_id) == (257, 256)


class TestFingerprint:
    def test_it_is_the_same_again(self, folder):
        for name in ("tokenizer.json", "tokenizer.model"):
            one, other = load_vocabulary(folder / name), load_vocabulary(folder / name)
            assert one.fingerprint == other.fingerprint
        # Known: another one would make every cache anew.
        text = '["bytes", true]'
        known = hashlib.sha256(text.encode()).hexdigest()[:32]
        assert load_vocabulary("bytes").fingerprint == known

    def test_what_differs_has_another(self, tmp_path, folder):
        paths = [folder / "tokenizer.json", folder / "tokenizer.model"]
        paths += [huggingface_file(tmp_path / "a.json", merges=290)]
        paths += [huggingface_file(tmp_path / "b.json", special="</s>")]
        paths += [sentencepiece_file(tmp_path / "a.model", vocab_size=310)]
        found = [load_vocabulary(path).fingerprint for path in paths]
        found += [load_vocabulary(paths[1], end_token="a").fingerprint]
        found += [byte_vocabulary().fingerprint, load_vocabulary("bytes").fingerprint]
        assert None not in found and len(set(found)) == len(found)


class TestEndToken:
    def test_it_can_be_named(self, tmp_path, folder):
        path = huggingface_file(tmp_path / "tokenizer.json", special="<doc>")
        with pytest.raises(TextError, match="no token that ends a document.*end_token"):
            load_vocabulary(path)
        vocabulary = load_vocabulary(path, end_token="<doc>")
        assert vocabulary.decode([vocabulary.end_id]) == ""
        vocabulary = load_vocabulary(folder / "tokenizer.model", end_token="<s>")
        assert vocabulary.end_id == 1

    @pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
    def test_unknown(self, folder, name):
        with pytest.raises(TextError, match="has no token '<no>'.*`end_token`"):
            load_vocabulary(folder / name, end_token="<no>")
        with pytest.raises(ValueError, match="'bytes' and a KerasHub.*Received: '<s>'"):
            load_vocabulary("bytes", end_token="<s>")

    def test_a_model_without_one(self, tmp_path):
        path = sentencepiece_file(tmp_path / "a.model", eos_id=-1)
        with pytest.raises(TextError, match="no token that ends a document"):
            load_vocabulary(path)


class TestFiles:
    def test_a_folder(self, tmp_path, folder):
        found = load_vocabulary(str(folder)).fingerprint
        assert found == load_vocabulary(folder / "tokenizer.json").fingerprint
        sentencepiece_file(tmp_path / "tokenizer.model")
        assert load_vocabulary(tmp_path).end_id == 2

    def test_missing(self, tmp_path):
        for path in (tmp_path, tmp_path / "a.model", "nowhere"):
            with pytest.raises(TextError, match="No tokenizer at .*Give 'bytes'"):
                load_vocabulary(path)

    @pytest.mark.parametrize("content", [b"", b"{}", b"garbage", b"\0" * 99])
    @pytest.mark.parametrize(
        "name, match",
        [("a.json", "is no tokenizer.json"), ("a.model", "is no SentencePiece model")],
    )
    def test_garbage(self, tmp_path, name, match, content):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TextError, match=match):
            load_vocabulary(tmp_path / name)
