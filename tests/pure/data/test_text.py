"""Text: what is read, what is held out, and which windows are seen."""

import numpy as np
import pytest

from keras_idea.data import Corpus, Vocabulary, load_text
from keras_idea.errors import TextError


def write(folder, files):
    """Writes a dict of relative path to bytes."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def many_files(count=40, size=100):
    """Files that can be told apart: each repeats its own two digits."""
    digits = [f"{i:02}" for i in range(count)]
    return {f"part_{d}/text.txt": d.encode() * (size // 2) for d in digits}


def numbers(array):
    """Which files of `many_files` an array of bytes is made of."""
    text = bytes(array)
    return {text[i : i + 2] for i in range(0, len(text), 2)}


def corpus_of(size, validation=50):
    bytes_ = np.arange(size, dtype="int64").astype("uint8")
    return Corpus(bytes_, bytes_[:validation], "numbers")


class TestLoad:
    def test_standard_library(self):
        corpus = load_text("stdlib", max_bytes=400_000)
        assert 300_000 < len(corpus.train) + len(corpus.validation) <= 400_000
        assert b"def " in bytes(corpus.train) and b"def " in bytes(corpus.validation)
        assert "standard library" in corpus.description
        again = load_text("stdlib", max_bytes=400_000)
        np.testing.assert_array_equal(corpus.train, again.train)
        np.testing.assert_array_equal(corpus.validation, again.validation)

    def test_whole_files_are_held_out(self, tmp_path):
        write(tmp_path, many_files())
        corpus = load_text(tmp_path, validation_fraction=0.1)
        assert len(corpus.validation) == 400 and len(corpus.train) == 3600
        assert not numbers(corpus.train) & numbers(corpus.validation)
        assert "36 files to train on, 4 held out" in corpus.description

    def test_held_out_files_depend_on_their_path_alone(self, tmp_path):
        # Known names: a change of the hash would mix earlier runs' training text
        # into the validation of later ones.
        write(tmp_path, many_files())
        corpus = load_text(tmp_path, validation_fraction=0.1)
        assert numbers(corpus.validation) == {b"02", b"08", b"13", b"34"}

    def test_a_byte_order_mark_is_no_text(self, tmp_path):
        """With it and without, the same bytes are trained on and held out."""
        mark = b"\xef\xbb\xbf"
        files = {name: mark + text for name, text in many_files(count=4).items()}
        files |= {"only a mark.txt": mark, "in the middle.txt": b"a" + mark + b"b" * 99}
        write(tmp_path / "marked", files)
        plain = {name: text.removeprefix(mark) for name, text in files.items()}
        write(tmp_path / "plain", plain)
        (tmp_path / "one.txt").write_bytes(mark + b"one text " * 20)
        names = ("marked", "plain", "one.txt")
        corpora = [load_text(tmp_path / name, 0.2) for name in names]
        for name in ("train", "validation"):
            found = [getattr(corpus, name).tobytes() for corpus in corpora]
            assert found[0] == found[1] and not found[2].startswith(mark)
        assert len(corpora[2].train) + len(corpora[2].validation) == 180
        with pytest.raises(TextError, match="is empty"):
            load_text(tmp_path / "marked/only a mark.txt")

    def test_few_files_hold_out_one(self, tmp_path):
        write(tmp_path, many_files(count=4))
        corpus = load_text(tmp_path, validation_fraction=0.05)
        assert len(corpus.validation) == 100 and len(corpus.train) == 300
        assert not numbers(corpus.train) & numbers(corpus.validation)

    def test_one_file_that_outweighs_the_rest(self, tmp_path):
        book = bytes(range(32, 127)) * 100
        write(tmp_path, {"book.txt": book, "readme.txt": b"a note"})
        corpus = load_text(tmp_path, validation_fraction=0.1)
        assert abs(len(corpus.validation) - 950) < 10
        assert "the end held out" in corpus.description

    def test_single_file_holds_out_its_end(self, tmp_path):
        write(tmp_path, {"book.txt": b"a" * 900 + b"b" * 100})
        corpus = load_text(tmp_path / "book.txt", validation_fraction=0.1)
        assert bytes(corpus.train) == b"a" * 900
        assert bytes(corpus.validation) == b"b" * 100

    def test_binary_and_hidden_files_are_left_out(self, tmp_path):
        extra = {
            "nul.txt": b"a\0b" * 100,
            "latin.txt": "süß".encode("latin-1") * 100,
            ".git/text": b"hidden" * 100,
            "empty.txt": b"",
        }
        write(tmp_path, many_files() | extra)
        corpus = load_text(tmp_path)
        assert len(corpus.train) + len(corpus.validation) == 4000
        assert "2 binary files skipped" in corpus.description

    def test_cap(self, tmp_path):
        write(tmp_path, many_files())
        corpus = load_text(tmp_path, validation_fraction=0.1, max_bytes=2050)
        assert len(corpus.train) + len(corpus.validation) == 2050
        assert "only 2,050 bytes of it" in corpus.description

    @pytest.mark.parametrize("path", [".", "part_00/text.txt"])
    def test_a_text_that_is_cut_says_so(self, tmp_path, path):
        """And only that: not one of just so many bytes, nor one with binary files."""
        write(tmp_path, many_files(count=3) | {"binary": b"\0" * 50})
        size = 300 if path == "." else 100
        for most, cut in ((size - 1, True), (size, path == "."), (size + 60, False)):
            corpus = load_text(tmp_path / path, max_bytes=most)
            assert len(corpus.train) + len(corpus.validation) == min(size, most)
            assert ("bytes of it read" in corpus.description) == cut

    def test_cap_inside_a_character(self, tmp_path):
        write(tmp_path, {"umlauts.txt": "ü".encode() * 500})
        corpus = load_text(tmp_path / "umlauts.txt", max_bytes=501)
        assert len(corpus.train) + len(corpus.validation) == 501


class TestRefused:
    @pytest.mark.parametrize(
        "files, path, match",
        [
            ({}, "nowhere", "no such file or folder .*Give 'stdlib'"),
            ({}, ".", "holds no readable UTF-8 text file"),
            ({"a.bin": b"\0", "b.bin": b"\xff\xff"}, ".", "2 binary files skipped"),
            ({"file": b""}, "file", "is empty"),
            ({"file": b"a\0b"}, "file", "holds a NUL .its byte 1."),
        ],
    )
    def test_no_text(self, tmp_path, files, path, match):
        write(tmp_path, files)
        with pytest.raises(TextError, match=match):
            load_text(tmp_path / path)

    def test_text_shorter_than_a_sequence(self):
        corpus_of(100).check_length(49)
        with pytest.raises(TextError, match="validation text .* has 50 bytes; .* 51"):
            corpus_of(100).check_length(50)
        with pytest.raises(TextError, match="The train text .* has 10 bytes"):
            corpus_of(10, validation=10).check_length(49)
        with pytest.raises(TextError, match="The train text"):
            next(corpus_of(10).batches(seed=0, batch_size=2, length=49))


class TestWindows:
    def test_batch_is_a_function_of_seed_and_step(self):
        corpus, shape = corpus_of(1000), {"batch_size": 4, "length": 16}
        x, y = corpus.batch(7, seed=1, **shape)
        again = corpus_of(1000).batch(7, seed=1, **shape)
        np.testing.assert_array_equal(x, again[0])
        np.testing.assert_array_equal(y, again[1])
        assert (x != corpus.batch(8, seed=1, **shape)[0]).any()
        assert (x != corpus.batch(7, seed=2, **shape)[0]).any()

    def test_batches_resume(self):
        corpus, kwargs = corpus_of(1000), {"seed": 3, "batch_size": 4, "length": 16}
        straight = corpus.batches(**kwargs)
        for _ in range(5):
            next(straight)
        resumed = corpus.batches(**kwargs, start_step=5)
        for _ in range(3):
            for one, other in zip(next(straight), next(resumed), strict=True):
                np.testing.assert_array_equal(one, other)

    def test_targets_follow_inputs(self):
        x, y = corpus_of(1000).batch(0, seed=0, batch_size=8, length=16)
        assert x.shape == y.shape == (8, 16) and x.dtype == y.dtype == "int32"
        np.testing.assert_array_equal(y, (x + 1) % 256)

    def test_every_place_is_reached(self):
        corpus = corpus_of(20, validation=20)
        x, y = corpus.batch(0, seed=0, batch_size=2000, length=16)
        assert set(x[:, 0]) == {0, 1, 2, 3} and y.max() == 19

    def test_validation_windows_do_not_overlap(self):
        x, y = corpus_of(100, validation=50).validation_windows(length=7)
        np.testing.assert_array_equal(x.ravel(), np.arange(49))
        np.testing.assert_array_equal(y.ravel(), np.arange(1, 50))

    def test_validation_windows_are_spread(self):
        x, _ = corpus_of(200, validation=101).validation_windows(length=10, limit=5)
        np.testing.assert_array_equal(x[:, 0], [0, 20, 40, 60, 80])


class TestTokens:
    """A corpus of tokens: here one for "ab" and one for "ü"."""

    PAIRS = {"ab": 1, "<e>": 2, "ü": 3}

    def corpus(self, text, start_id=None, token_bytes=(0, 2, 2, 2), **told):
        def encode(text):
            pairs = [p for p in self.PAIRS for _ in range(text.count(p))]
            return np.array([self.PAIRS[pair] for pair in pairs])

        array = np.frombuffer(text, "uint8")
        of_bytes = Corpus(array, told.pop("held_out", array[:4]), "pairs")

        def decode(ids):
            return "".join(p for i in ids for p, n in self.PAIRS.items() if i == n)

        vocabulary = Vocabulary(encode, decode, np.array(token_bytes, float))
        return of_bytes.tokenized(vocabulary, start_id, **told)

    def test_bytes_are_counted_exactly(self):
        corpus = self.corpus("abüü".encode())
        np.testing.assert_array_equal(corpus.train, [1, 3, 3])
        np.testing.assert_array_equal(corpus.validation, [1, 3])
        assert corpus.train.dtype == "uint8" and corpus.description == "pairs"
        assert corpus.bytes_per_token(corpus.train) == 2.0

    def test_cut_characters_are_left_out(self):
        corpus = self.corpus("aüab".encode()[2:] + "ü".encode()[:1])
        np.testing.assert_array_equal(corpus.train, [1])

    def test_a_tokenizer_that_changes_the_text_is_scaled(self):
        # Six bytes are counted for the ten there are, in train and validation.
        corpus = self.corpus(b"abxxab", token_bytes=(0, 2, 2, 2))
        assert corpus.bytes_per_token(corpus.train) == pytest.approx(10 / 3)

    def test_a_special_token_in_the_text_is_none_of_its_bytes(self):
        text = "ab<e><e>ü".encode()
        first = np.frombuffer(b"ab", "uint8")
        corpus = self.corpus(text, token_bytes=(0, 2, 0, 2), held_out=first)
        np.testing.assert_array_equal(corpus.train, [1, 2, 2, 3])
        assert corpus.bytes_per_token(corpus.train) == 1.0

    def test_bits_of_bytes_are_unchanged(self):
        corpus = corpus_of(100)
        assert corpus.bytes_per_token(corpus.train) == 1.0

    def test_a_fourth_of_the_windows_begins_with_the_start_token(self):
        corpus = self.corpus(b"ab" * 50, start_id=0)
        shape = {"batch_size": 8, "length": 5}
        for step in range(3):
            x, y = corpus.batch(step, seed=0, **shape)
            np.testing.assert_array_equal(x[:, 0] == 0, (step + np.arange(8)) % 4 == 0)
            assert (x[:, 1:] == 1).all() and (y == 1).all()
        x, _ = self.corpus(b"ab" * 50).batch(0, seed=0, **shape)
        assert (x == 1).all()

    def test_every_window_can_begin_with_the_start_token(self):
        """Of the held-out text too, whose tokens stay as they are."""
        held_out = np.frombuffer(b"ab" * 20, "uint8")
        corpus = self.corpus(b"ab" * 50, 0, start_every=1, held_out=held_out)
        held = corpus.validation_windows(length=5)
        for x, y in (corpus.batch(3, seed=0, batch_size=8, length=5), held, held):
            assert (x[:, 0] == 0).all() and (x[:, 1:] == 1).all() and (y == 1).all()
        assert (corpus.validation == 1).all()
        with pytest.raises(ValueError, match="`start_every` must be .*1"):
            self.corpus(b"ab" * 50, 0, start_every=0)
        plain = self.corpus(b"ab" * 50, 0, held_out=held_out)
        assert (plain.validation_windows(length=5)[0] == 1).all()

    def test_too_short_in_tokens(self):
        with pytest.raises(TextError, match="validation text .* has 2 tokens; a s"):
            self.corpus(b"ab" * 50).check_length(5)
