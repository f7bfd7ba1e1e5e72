"""Generation against a plain loop, and sampling against its distribution."""

import keras
import numpy as np
import pytest

from keras_idea.layers import GatedFFN
from keras_idea.models import DecoderConfig, decoder, generate, sample
from keras_idea.models.generate import extend_rows, greedy

VOCABULARY = 11
PROMPT_BP = np.array([[1, 2, 3], [7, 7, 0]])


def successor_model(sharpness=50.0):
    """A model whose next token is the last one plus one, for hand-made answers."""
    ids = keras.Input((None,), dtype="int32")
    logits = keras.layers.Embedding(
        VOCABULARY, VOCABULARY, embeddings_initializer="zeros"
    )
    model = keras.Model(ids, logits(ids))
    logits.set_weights([sharpness * np.roll(np.eye(VOCABULARY), 1, axis=1)])
    return model


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    config = DecoderConfig(
        vocabulary_size=VOCABULARY,
        model_dim=16,
        num_layers=1,
        num_heads=2,
        hidden_dim=24,
        sequence_length=8,
    )
    model = decoder(config, ffn=GatedFFN)
    rng = np.random.default_rng(0)
    for v in model.trainable_variables:
        if len(v.shape) == 2:
            v.assign(rng.normal(size=v.shape) / np.sqrt(v.shape[0]))
    return model


def greedy_by_hand(model, ids, num_tokens, window):
    for _ in range(num_tokens):
        logits = model.predict_on_batch(ids[:, -window:])
        ids = np.concatenate([ids, logits[:, -1].argmax(-1)[:, None]], axis=1)
    return ids


@pytest.mark.parametrize("window", [None, 2, 5, 12])
def test_greedy_equals_an_argmax_loop(model, window):
    ids = generate(model, PROMPT_BP, 5, temperature=0, window=window)
    by_hand = greedy_by_hand(model, PROMPT_BP, 5, window or 8)
    np.testing.assert_array_equal(ids, by_hand)
    assert ids.dtype == np.int32


def test_greedy_counts_up():
    ids = generate(successor_model(), [4], 9, temperature=0, window=3)
    assert ids.tolist() == [4, 5, 6, 7, 8, 9, 10, 0, 1, 2]


def test_a_fixed_input_length_is_the_window(model):
    fixed = keras.Input((4,), dtype="int32")
    narrow = keras.Model(fixed, model(fixed))
    np.testing.assert_array_equal(
        generate(narrow, PROMPT_BP, 5, temperature=0),
        generate(model, PROMPT_BP, 5, temperature=0, window=4),
    )


def test_every_call_of_the_model_has_one_shape():
    shapes = []

    class Recorder:
        def predict_on_batch(self, ids):
            shapes.append(ids.shape)
            return np.zeros((*ids.shape, VOCABULARY))

    generate(Recorder(), PROMPT_BP, 7, window=5)
    assert shapes == [(2, 5)] * 7


def test_a_row_does_not_depend_on_its_batch(model):
    together = generate(model, PROMPT_BP, 5, temperature=0)
    for row, prompt in zip(together, PROMPT_BP, strict=True):
        np.testing.assert_array_equal(generate(model, prompt, 5, temperature=0), row)


def test_the_seed_decides(model):
    draws = [generate(model, PROMPT_BP, 20, seed=seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()
    np.testing.assert_array_equal(draws[0][:, :3], PROMPT_BP)


def test_no_new_token_returns_the_prompt(model):
    np.testing.assert_array_equal(generate(model, PROMPT_BP, 0), PROMPT_BP)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("top_k", [None, 2])
def test_sample_draws_from_the_softmax(temperature, top_k):
    logits = np.log([0.1, 0.2, 0.3, 0.4])
    rng = np.random.default_rng(0)
    draws = sample(np.tile(logits, (20000, 1)), rng, temperature, top_k)
    expected = np.exp(logits / temperature)
    expected[: len(expected) - (top_k or 4)] = 0
    frequencies = np.bincount(draws, minlength=4) / 20000
    np.testing.assert_allclose(frequencies, expected / expected.sum(), atol=0.015)


def test_sample_takes_the_lower_id_on_ties_and_the_best_of_one():
    rng = np.random.default_rng(0)
    assert sample([[0.0, 2.0, 2.0]], rng, temperature=0).tolist() == [1]
    assert sample([[0.0, 3.0, 2.0]], rng, top_k=1).tolist() == [1]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"prompt_ids": []}, "one token or more"),
        ({"prompt_ids": [0.5]}, r"non-negative integers .* prompt_ids=\[0\.5\]"),
        ({"prompt_ids": [[1, 2], [3]]}, "rows of equal length"),
        ({"prompt_ids": [1, -2]}, r"non-negative .* prompt_ids=\[1, -2\]"),
        ({"prompt_ids": [[[1]]]}, r"shape \(tokens,\) or \(batch, tokens\)"),
        ({"num_tokens": -1}, "`num_tokens` must be an integer >= 0"),
        ({"temperature": -0.1}, r"`temperature` must be a number in \[0\.0, inf\)"),
        ({"top_k": 0}, "`top_k` must be an integer >= 1"),
        ({"window": 0}, "`window` must be an integer >= 1"),
    ],
)
def test_bad_arguments_are_refused(model, change, message):
    arguments = {"prompt_ids": [1], "num_tokens": 1, **change}
    with pytest.raises(ValueError, match=message):
        generate(model, **arguments)


def test_nan_logits_are_refused():
    with pytest.raises(ValueError, match="logits that are NaN"):
        generate(successor_model(float("nan")), [1], 1)


class TestWriteOn:
    """The loop behind `generate`, exports and the harness."""

    def test_rows_of_any_length_and_number(self):
        seen = []

        def next_tokens(rows):
            seen.append([list(row) for row in rows])
            return [row[-1] + 1 for row in rows]

        rows = extend_rows(next_tokens, [[3], [7, 8], [5]], [2, 0, 1])
        assert rows == [[3, 4, 5], [7, 8], [5, 6]]
        assert seen == [[[3], [5]], [[3, 4]]]

    def test_a_row_ends_by_itself(self):
        rows = extend_rows(
            lambda rows: [row[-1] + 1 for row in rows],
            [[0], [4]],
            9,
            ended=lambda i, new: i == 1 and new == [5, 6],
        )
        assert rows == [list(range(10)), [4, 5, 6]]

    def test_greedy_sees_a_window_of_one_shape(self):
        table, shapes = np.roll(np.eye(VOCABULARY), 1, axis=1), []

        def logits(ids):
            shapes.append(ids.shape)
            return table[ids]

        ids = greedy(logits, np.array([[8], [1]]), 4, window=3)
        assert ids.tolist() == [[8, 9, 10, 0, 1], [1, 2, 3, 4, 5]]
        assert ids.dtype == np.int32 and shapes == [(2, 3)] * 4
