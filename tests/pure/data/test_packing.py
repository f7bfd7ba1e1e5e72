"""Documents joined and cut: nothing lost, nothing padded, every token once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_idea.data import PackedWindows, join_documents
from keras_idea.errors import TextError

END = 999
DOCUMENTS = st.lists(st.lists(st.integers(0, 998), max_size=20), max_size=20)


def joined_by_hand(documents):
    return [token for ids in documents for token in [*ids, END]]


@settings(deadline=None)
@given(documents=DOCUMENTS)
def test_joined_documents_are_the_documents_and_their_ends(documents):
    stream = join_documents(documents, END, "uint16")
    assert stream.dtype == "uint16" and stream.tolist() == joined_by_hand(documents)
    # They can be had back: each end is where a document ends.
    parts = np.split(stream, np.flatnonzero(stream == END) + 1)
    assert [part[:-1].tolist() for part in parts[:-1]] == documents
    assert len(parts[-1]) == 0


@settings(deadline=None)
@given(documents=DOCUMENTS, length=st.integers(1, 15))
def test_every_token_is_read_once_and_predicted_once(documents, length):
    stream = join_documents(documents, END)
    if len(stream) <= length:
        with pytest.raises(TextError, match=f"too short: .* needs {length + 1}"):
            PackedWindows(stream, length)
        return
    windows = PackedWindows(stream, length)
    pairs = [windows[i] for i in range(len(windows))]
    read = np.concatenate([x for x, _ in pairs])
    predicted = np.concatenate([y for _, y in pairs])
    assert all(x.shape == y.shape == (length,) for x, y in pairs)
    assert read.dtype == predicted.dtype == "int32"
    whole = joined_by_hand(documents)
    # Windows tile the stream: no token twice, none left out but the last few.
    assert read.tolist() == whole[: len(read)]
    assert predicted.tolist() == whole[1 : len(predicted) + 1]
    assert 0 <= windows.left_out < length
    assert 1 + len(predicted) + windows.left_out == len(whole)


@pytest.mark.parametrize("size, count, left", [(9, 2, 0), (10, 2, 1), (12, 2, 3)])
def test_known_counts(size, count, left):
    windows = PackedWindows(np.arange(size), length=4)
    assert (len(windows), windows.left_out) == (count, left)
    np.testing.assert_array_equal(windows[1], [[4, 5, 6, 7], [5, 6, 7, 8]])


def test_windows_can_be_written_to(tmp_path):
    stream = np.arange(9, dtype="uint16")
    windows = PackedWindows(stream, 4)
    windows[0][0][:] = 0
    assert stream[3] == 3


@pytest.mark.parametrize(
    "limit, expected", [(None, range(5)), (9, range(5)), (2, [0, 2]), (1, [0])]
)
def test_arrays_for_validation(limit, expected):
    windows = PackedWindows(np.arange(17), length=3)
    x, y = windows.arrays(limit)
    assert x.tolist() == [[3 * i, 3 * i + 1, 3 * i + 2] for i in expected]
    np.testing.assert_array_equal(y, x + 1)


@pytest.mark.parametrize("index", [-1, 2, 5])
def test_outside(index):
    with pytest.raises(IndexError, match=f"window {index} of 2"):
        PackedWindows(np.arange(9), 4)[index]


def test_refused():
    with pytest.raises(ValueError, match="`length` must be an integer >= 1.*=0"):
        PackedWindows(np.arange(9), 0)
    with pytest.raises(ValueError, match="`limit` must be an integer >= 1.*=0"):
        PackedWindows(np.arange(9), 4).arrays(0)
    with pytest.raises(TextError, match="it has 0 tokens, and a window of 4 needs 5"):
        PackedWindows(np.zeros(0, int), 4)
