"""Batches: every window once an epoch, the same again after a resume, shards apart."""

import json

import numpy as np
import pytest

from keras_idea.data import TokenBatches, TokenCache
from keras_idea.errors import PositionError, TextError
from tests.support.token_batches import DOCUMENTS, LENGTH, ids_of, make_cache


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """53 windows of 8 tokens, all of them different."""
    cache = make_cache(tmp_path_factory.mktemp("batches"), DOCUMENTS)
    windows = TokenBatches(cache, LENGTH, 1).windows
    assert len(windows) == 53
    assert len({windows[i][0].tobytes() for i in range(len(windows))}) == 53
    return cache


class TestOrder:
    @pytest.mark.parametrize("batch_size", [1, 4, 53, 60])
    def test_an_epoch_has_every_window_once(self, cache, batch_size):
        batches = TokenBatches(cache, LENGTH, batch_size, seed=3)
        assert batches.steps_per_epoch == 53 / batch_size
        # Also where an epoch ends in the middle of a batch.
        row = ids_of(batches, -(-53 * 4 // batch_size))
        epochs = row[: 53 * 4].reshape(4, 53)
        for epoch in epochs:
            np.testing.assert_array_equal(np.sort(epoch), np.arange(53))
        for i, epoch in enumerate(epochs):
            assert all((epoch != other).any() for other in epochs[:i])
            assert (epoch != np.arange(53)).sum() > 40

    def test_the_row_does_not_depend_on_the_batch_size(self, cache):
        one = ids_of(TokenBatches(cache, LENGTH, 1, seed=3), 120)
        other = ids_of(TokenBatches(cache, LENGTH, 8, seed=3), 15)
        np.testing.assert_array_equal(one, other)

    def test_seeds_share_no_epoch(self, cache):
        rows = [ids_of(TokenBatches(cache, LENGTH, 53, seed=s), 5) for s in range(4)]
        epochs = np.concatenate([row.reshape(5, 53) for row in rows])
        assert len(np.unique(epochs, axis=0)) == 20

    def test_known_order(self, cache):
        # Another one would give resumed runs other batches than they were to see.
        batches = TokenBatches(cache, LENGTH, 6, seed=0)
        assert batches.sample_ids(0).tolist() == KNOWN[0]
        assert batches.sample_ids(8).tolist() == KNOWN[1]


class TestDataset:
    def test_rows_are_the_windows_of_the_ids(self, cache):
        batches = TokenBatches(cache, LENGTH, 4, seed=1)
        stream = cache[:].astype(int)
        dataset = batches.dataset()
        for step in (0, 1, 12, 13, 14, 1000):
            x, y = dataset[step]
            assert x.shape == y.shape == (4, LENGTH) and x.dtype == y.dtype == "int32"
            for row, number in enumerate(batches.sample_ids(step)):
                place = number * LENGTH
                assert x[row].tolist() == stream[place : place + LENGTH].tolist()
                assert (
                    y[row].tolist() == stream[place + 1 : place + LENGTH + 1].tolist()
                )

    @pytest.mark.parametrize("start", [1, 13, 14, 500])
    def test_from_a_step_on_it_is_the_same(self, cache, start):
        straight = TokenBatches(cache, LENGTH, 4, seed=1).dataset()
        resumed = TokenBatches(cache, LENGTH, 4, seed=1).dataset(start)
        for step, (x, y) in zip(range(30), resumed, strict=False):
            np.testing.assert_array_equal(x, straight[start + step][0])
            np.testing.assert_array_equal(y, straight[start + step][1])


@pytest.mark.parametrize("count", [2, 3, 6])
class TestShards:
    def shards(self, cache, count):
        return [
            TokenBatches(cache, LENGTH, 6, 2, shard_index=i, shard_count=count)
            for i in range(count)
        ]

    def test_together_they_read_what_one_process_reads(self, cache, count):
        whole = TokenBatches(cache, LENGTH, 6, seed=2)
        shards = self.shards(cache, count)
        for step in range(40):
            parts = [shard.sample_ids(step) for shard in shards]
            assert all(len(part) == 6 // count for part in parts)
            # Side by side, in the batch's own order.
            np.testing.assert_array_equal(np.concatenate(parts), whole.sample_ids(step))

    def test_no_window_is_in_two_shards_and_none_in_none(self, cache, count):
        # Six epochs are 53 whole steps.
        rows = [ids_of(shard, 53) for shard in self.shards(cache, count)]
        steps = np.stack([row.reshape(53, 6 // count) for row in rows], axis=1)
        for epoch in steps.reshape(6, 53):
            np.testing.assert_array_equal(np.sort(epoch), np.arange(53))

    def test_the_batches_are_of_the_ids(self, cache, count):
        for shard in self.shards(cache, count):
            x, _ = shard.dataset(7)[0]
            expected = [shard.windows[i][0] for i in shard.sample_ids(7)]
            np.testing.assert_array_equal(x, expected)


class TestPosition:
    def test_it_comes_back_through_json(self, cache):
        batches = TokenBatches(cache, LENGTH, 4, seed=1)
        saved = json.loads(json.dumps(batches.position(17)))
        again = TokenBatches(cache, LENGTH, 4, seed=1)
        assert again.restore(saved) == 17

    def test_every_process_takes_the_same(self, cache):
        one = TokenBatches(cache, LENGTH, 4, shard_index=0, shard_count=2)
        other = TokenBatches(cache, LENGTH, 4, shard_index=1, shard_count=2)
        assert other.restore(one.position(3)) == 3

    @pytest.mark.parametrize(
        "change, match",
        [
            ({"seed": 5}, "seed: 1 then, 5 now"),
            ({"batch_size": 2}, "batch_size: 4 then, 2 now"),
            ({"length": 9}, "windows: 53 then, 47 now; length: 8 then, 9 now"),
        ],
    )
    def test_other_settings_are_refused(self, cache, change, match):
        settings = {"length": LENGTH, "batch_size": 4, "seed": 1}
        saved = TokenBatches(cache, **settings).position(17)
        other = TokenBatches(cache, **(settings | change))
        with pytest.raises(PositionError, match=f"other data, .*exactly: {match}. Gi"):
            other.restore(saved)

    def test_any_number_of_processes_goes_on(self, cache):
        saved = TokenBatches(cache, LENGTH, 4, seed=1).position(17)
        # As positions were saved when the number of processes was part of them.
        before = {"step": 17, "data": {**saved["data"], "shard_count": 4}}
        for position in (saved, before):
            other = TokenBatches(cache, LENGTH, 4, 1, shard_index=1, shard_count=2)
            assert other.restore(position) == 17

    def test_another_text_is_refused(self, cache, tmp_path):
        texts = [*DOCUMENTS]
        same = TokenBatches(make_cache(tmp_path / "1", texts), LENGTH, 4)
        saved = same.position(17)
        # Built elsewhere of the same text: the same data.
        assert TokenBatches(cache, LENGTH, 4).restore(saved) == 17
        texts[3] = "x" * 11
        other = TokenBatches(make_cache(tmp_path / "2", texts), LENGTH, 4)
        match = "cache: '[0-9a-f]{32}' then, '[0-9a-f]{32}' now. Give the same text"
        with pytest.raises(PositionError, match=match):
            other.restore(saved)

    @pytest.mark.parametrize(
        "saved",
        [None, {}, {"step": 1}, {"step": -1, "data": {}}, {"step": 1.5, "data": {}}, 7],
    )
    def test_garbage_is_refused(self, cache, saved):
        with pytest.raises(PositionError, match="No position in the data: "):
            TokenBatches(cache, LENGTH, 4).restore(saved)


class TestRefused:
    @pytest.mark.parametrize(
        "options, match",
        [
            ({"cache": np.arange(100)}, "`cache` must be a `TokenCache`.*ndarray"),
            ({"length": 0}, "`length` must be an integer >= 1.*=0"),
            ({"batch_size": 0}, "`batch_size` must be an integer >= 1.*=0"),
            ({"seed": -1}, "`seed` must be an integer >= 0.*=-1"),
            ({"shard_count": 0}, "`shard_count` must be an integer >= 1.*=0"),
            ({"shard_index": 1}, "`shard_index` must be an.* >= 0 and <= 0.*=1"),
            ({"shard_count": 3}, "`shard_count` must divide `batch_size`.*=4, .*=3"),
        ],
    )
    def test_bad_argument(self, cache, options, match):
        sound = {"cache": cache, "length": LENGTH, "batch_size": 4}
        with pytest.raises(ValueError, match=match):
            TokenBatches(**(sound | options))

    def test_too_short(self, cache):
        with pytest.raises(TextError, match="tokens, and a window of 1000 needs 1001"):
            TokenBatches(cache, 1000, 4)

    def test_too_long(self, cache, monkeypatch):
        monkeypatch.setattr(TokenCache, "__len__", lambda self: 8 * 2**32)
        with pytest.raises(TextError, match="4,294,967,295 windows are more than"):
            TokenBatches(cache, LENGTH, 4)

    @pytest.mark.parametrize("method", ["dataset", "sample_ids", "position"])
    def test_steps(self, cache, method):
        with pytest.raises(ValueError, match="step` must be an integer >= 0.*=-1"):
            getattr(TokenBatches(cache, LENGTH, 4), method)(-1)


# Windows of the first batch, and of one that lies in two epochs.
KNOWN = [[2, 16, 1, 25, 20, 46], [34, 37, 7, 14, 48, 48]]
