"""Texts as tokens: found, read, held out, and read in one order of windows."""

import dataclasses
import warnings

import numpy as np
import pytest

from keras_idea._lm.data.tokens import stored
from keras_idea.data import TextError, byte_vocabulary, open_text
from tests.support.text_files import TEXTS, gz, jsonl, parquet, write, zst

BYTES = byte_vocabulary(end=True)


def ids_of(texts):
    return [i for text in texts for i in (*text.encode(), 256)]


def whole(tokens):
    return np.concatenate([tokens.train, tokens.held_out]).tolist()


FILES = {
    "a.jsonl": jsonl(TEXTS),
    "a.jsonl.gz": gz(jsonl(TEXTS)),
    "a.jsonl.zst": zst(jsonl(TEXTS), frames=3),
    "a.ndjson": b"\xef\xbb\xbf" + jsonl(TEXTS).replace(b"\n", b"\r\n\n"),
    "a.parquet": parquet({"url": TEXTS, "text": TEXTS}),
}


@pytest.mark.parametrize("name", FILES)
def test_every_format(tmp_path, name):
    write(tmp_path, {name: FILES[name]})
    tokens = open_text(paths=tmp_path / name, vocabulary=BYTES, cache=tmp_path / "c")
    assert whole(tokens) == ids_of(TEXTS)
    (file,) = (tmp_path / "c").iterdir()
    before = file.stat().st_mtime_ns
    again = open_text(paths=tmp_path / name, vocabulary=BYTES, cache=tmp_path / "c")
    assert whole(again) == whole(tokens) and file.stat().st_mtime_ns == before
    assert again.fingerprint() == tokens.fingerprint()


@pytest.mark.parametrize(
    ("documents", "texts"),
    [
        ("file", ["one\n  two\n\n \nthree\n"]),
        ("paragraphs", ["one\n  two", "three"]),
        ("lines", ["one", "  two", "three"]),
    ],
)
def test_documents_of_a_text_file(tmp_path, documents, texts):
    write(tmp_path, {"a.txt": b"one\n  two\n\n \nthree\n"})
    tokens = open_text(paths=[tmp_path], documents=documents, vocabulary=BYTES)
    assert whole(tokens) == ids_of(texts)


def test_without_an_end_token_documents_do_not_run_together(tmp_path):
    write(tmp_path, {"a.jsonl": jsonl(["one", "two\n"])})
    assert bytes(whole(open_text(paths=tmp_path / "a.jsonl"))) == b"one\ntwo\n"


def test_files_of_a_folder(tmp_path):
    names = ["a.txt", "b/c.md", "b/.hidden.txt", ".git/d.txt", "e.py", "f.bin"]
    write(tmp_path, {name: name.encode() for name in names})

    def read(**options):
        options = {"vocabulary": BYTES, "validation_fraction": 0.0, **options}
        found = bytes(i for i in whole(open_text(paths=tmp_path, **options)) if i < 256)
        return found

    assert sorted(read()) == sorted(b"a.txtb/c.md")
    assert read(pattern="*.py") == b"e.py"
    with pytest.raises(TextError, match="pattern"):
        read(pattern="*.c")
    with pytest.raises(TextError, match="no such file"):
        open_text(paths=tmp_path / "none")


BAD = {
    "no JSON": ({"a.jsonl": jsonl(["a", "b"]) + b'{"text": "cut'}, "a.jsonl, line 3"),
    "deep JSON": ({"a.jsonl": b"[" * 100_000}, "a.jsonl, line 1"),
    "another field": ({"a.jsonl": b'{"text": "a"}\n{"body": "b"}'}, "jsonl, line 2"),
    "a number": ({"a.jsonl": b'{"text": 3}\n'}, "a.jsonl, line 1"),
    "no object": ({"a.jsonl": b"[1]\n"}, "a.jsonl, line 1"),
    "half a character": ({"a.jsonl": b'{"text": "\\ud800"}\n'}, "a.jsonl, line 1"),
    "another column": ({"a.parquet": parquet({"body": TEXTS})}, "a.parquet, line 1"),
    "null": ({"a.parquet": parquet({"text": [*TEXTS, None]})}, "a.parquet, line 5"),
    "gz cut off": ({"a.jsonl.gz": gz(jsonl(TEXTS) * 50)[:-9]}, "a.jsonl.gz"),
    "zst cut off": ({"a.txt.zst": zst(jsonl(TEXTS) * 50)[:-9]}, "a.txt.zst"),
    "no zst": ({"a.txt.zst": b"plain"}, "a.txt.zst"),
    "parquet cut off": ({"a.parquet": parquet({"text": TEXTS})[:-9]}, "a.parquet"),
    "Latin-1": ({"a.txt": "Grüße".encode("latin-1")}, "a.txt"),
    "blank": ({"a.txt": b" \n"}, "no text"),
}


@pytest.mark.parametrize("files, place", BAD.values(), ids=BAD)
def test_a_bad_record_or_file_is_an_error_that_names_it(tmp_path, files, place):
    write(tmp_path, files)
    with pytest.raises(TextError, match=place):
        open_text(paths=tmp_path, cache=tmp_path / "c")
    assert not list(tmp_path.glob("c/*.ids"))


class TestHeldOut:
    def test_whole_files_if_they_come_near(self, tmp_path):
        files = {f"{i}.txt": f"file {i:02}\n".encode() for i in range(40)}
        write(tmp_path, files)
        tokens = open_text(paths=tmp_path, validation_fraction=0.1)
        train, held_out = (
            set(bytes(part.tolist()).decode().splitlines())
            for part in (tokens.train, tokens.held_out)
        )
        assert len(held_out) == 4 and len(train) == 36 and not train & held_out
        # By their names: another folder holds out the same.
        write(tmp_path / "other", files)
        again = open_text(paths=tmp_path / "other", validation_fraction=0.1)
        assert again.fingerprint() == tokens.fingerprint()

    def test_else_the_end(self, tmp_path):
        write(tmp_path, {"a.txt": b"0123456789" * 10 + b"\n"})
        tokens = open_text(paths=tmp_path / "a.txt", validation_fraction=0.2)
        assert bytes(tokens.held_out.tolist()) == b"1234567890123456789\n"

    def test_other_files(self, tmp_path):
        write(tmp_path, {"a.txt": b"train", "v/b.txt": b"other"})
        tokens = open_text(paths=tmp_path / "a.txt", validation_paths=tmp_path / "v")
        assert bytes(tokens.train.tolist()) == b"train\n"
        assert bytes(tokens.held_out.tolist()) == b"other\n"


def test_a_limit_truncates_with_a_warning(tmp_path):
    write(tmp_path, {"a.jsonl": jsonl(["x" * 1000] * 9)})
    with pytest.warns(UserWarning, match="max_megabytes"):
        tokens = open_text(paths=tmp_path, max_megabytes=0.0025)
    assert sum(i == ord("x") for i in whole(tokens)) == 2500
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_text(paths=tmp_path, max_megabytes=1.0)


def test_a_changed_file_or_option_is_read_again(tmp_path):
    write(tmp_path, {"a.jsonl": jsonl(["one"], "a") + jsonl(["two"], "a")})
    options = {"paths": tmp_path / "a.jsonl", "cache": tmp_path / "c", "field": "a"}
    before = whole(open_text(**options))
    assert whole(open_text(**options, vocabulary=BYTES)) != before
    write(tmp_path, {"a.jsonl": jsonl(["three"], "a")})
    assert bytes(whole(open_text(**options))) == b"three\n"


def test_a_text_that_changes_while_it_is_read(tmp_path):
    write(tmp_path, {"a.txt": b"one"})

    def vocabulary(sample):
        def encode(texts):
            write(tmp_path, {"a.txt": b"another"})
            return [[1] for _ in texts]

        assert sample == "one"
        return type(BYTES)(encode, str, np.ones(9), fingerprint="x")

    with pytest.raises(TextError, match="changed"):
        open_text(paths=tmp_path / "a.txt", vocabulary=vocabulary, cache=tmp_path / "c")


def test_ids_that_are_not_in_the_vocabulary():
    with pytest.raises(TextError, match="id"):
        stored(lambda: [[1, 9]], 9)


def test_a_data_set_is_streamed(tmp_path):
    pytest.importorskip("datasets")
    folder = tmp_path / "rows"
    write(folder, {"a.jsonl": jsonl(TEXTS)})
    options = {"dataset": str(folder), "vocabulary": BYTES, "cache": tmp_path / "c"}
    assert whole(open_text(**options)) == ids_of(TEXTS)
    with pytest.raises(TextError, match="rows, line 1"):
        open_text(**options, field="body")
    with pytest.raises(TextError, match="none"):
        open_text(dataset=str(tmp_path / "none"))


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    write(folder, {"a.txt": " ".join(f"{i**5:011}" for i in range(60)).encode()})
    return open_text(paths=folder, vocabulary=BYTES, cache=folder / "c")


class TestBatches:
    def first(self, tokens, steps, **options):
        batches = iter(tokens.batches(length=8, **options))
        return [next(batches) for _ in range(steps)]

    def test_an_epoch_reads_each_window_once_in_a_new_order(self, tokens):
        windows = (len(tokens.train) - 1) // 8
        rows = [x[0].tolist() for x, _ in self.first(tokens, 2 * windows, batch_size=1)]
        expected = tokens.train[: 8 * windows].reshape(-1, 8).tolist()
        first, second = rows[:windows], rows[windows:]
        assert sorted(first) == sorted(second) == sorted(expected)
        assert first != second and first != expected

    def test_targets_are_the_tokens_that_follow(self, tokens):
        for x, y in self.first(tokens, 5, batch_size=3):
            assert x.shape == y.shape == (3, 8) and x.dtype == y.dtype == "int32"
            np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
            known = np.lib.stride_tricks.sliding_window_view(tokens.train, 9)
            for row in np.concatenate([x, y[:, -1:]], axis=1):
                assert (known == row).all(-1).any()

    def test_a_batch_depends_on_its_step_and_the_seed(self, tokens):
        """So a run resumes by its step; another seed shares no order."""
        straight = self.first(tokens, 40, batch_size=4, seed=1)
        resumed = self.first(tokens, 3, batch_size=4, seed=1, start_step=37)
        np.testing.assert_array_equal(straight[37:], resumed)
        other = self.first(tokens, 40, batch_size=4, seed=2)
        same = [np.array_equal(a, b) for a, b in zip(straight, other, strict=True)]
        assert not any(same)

    @pytest.mark.parametrize("count", [2, 3])
    def test_shares_together_are_the_batch(self, tokens, count):
        options = {"batch_size": 6, "start_step": 17}
        whole = self.first(tokens, 4, **options)
        shares = [
            self.first(tokens, 4, index=i, count=count, **options) for i in range(count)
        ]
        for step, batch in enumerate(whole):
            for kind in range(2):
                parts = [share[step][kind] for share in shares]
                np.testing.assert_array_equal(np.concatenate(parts), batch[kind])
        with pytest.raises(ValueError, match="count"):
            tokens.batches(length=8, batch_size=5, count=2)

    def test_held_out_windows_are_spread(self, tokens):
        x, y = tokens.held_out_windows(4)
        np.testing.assert_array_equal(x.ravel(), tokens.held_out[: x.size])
        np.testing.assert_array_equal(y.ravel(), tokens.held_out[1 : x.size + 1])
        few, _ = tokens.held_out_windows(4, limit=3)
        np.testing.assert_array_equal(few, x[np.arange(3) * len(x) // 3])

    def test_start_tokens(self, tokens):
        started = dataclasses.replace(tokens, start_id=7)
        for x, _ in self.first(started, 3, batch_size=8, start_step=2):
            assert (x[:, 0] == 7).tolist() == [True, False, False, False] * 2
        assert (started.held_out_windows(4)[0][:, 0] != 7).all()
        always = dataclasses.replace(tokens, start_id=7, start_every=1)
        assert (self.first(always, 1, batch_size=3)[0][0][:, 0] == 7).all()
        assert (always.held_out_windows(4)[0][:, 0] == 7).all()

    def test_a_text_that_is_too_short(self, tokens):
        with pytest.raises(TextError, match="held-out"):
            tokens.check_length(len(tokens.held_out))
        with pytest.raises(TextError, match="train"):
            tokens.batches(length=len(tokens.train), batch_size=1)

    def test_special_tokens_are_no_bytes_of_text(self, tokens):
        assert tokens.bytes_per_token(np.array([[97, 256], [98, 99]])) == 0.75
        share = np.mean(np.asarray(tokens.train) < 256)
        assert tokens.bytes_per_token() == pytest.approx(share)
        assert tokens.counted == 1.0
