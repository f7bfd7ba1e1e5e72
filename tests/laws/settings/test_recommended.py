"""Settings that follow from a model, its tokens and a target."""

import keras
import pytest

import keras_idea as ki


def chain(width=512, features=8, blocks=2):
    """A model of FFNs of one width: 2 kernels of each, biases, an embedding, logits."""
    x = inputs = keras.Input((4,), dtype="int32")
    x = keras.layers.Embedding(16, features)(x)
    for _ in range(blocks):
        hidden = keras.layers.Dense(width, "relu")(x)
        x = keras.layers.Add()([x, keras.layers.Dense(features)(hidden)])
    return keras.Model(inputs, keras.layers.Dense(16)(x))


def parameters(width, features=8, blocks=2):
    block = 2 * width * features + width + features
    return 16 * features + blocks * block + features * 16 + 16


@pytest.mark.parametrize(
    "per_parameter, situation, per_step, share",
    [
        # docs/settings.md, columns (b) to (d); two runs of (c).
        (4.4, "many", 2048, 1 / 3),
        (0.99, "few", 1024, 1 / 4),
        (0.25, "few", 1024, 1 / 4),
        (0.0059, "very few", 512, None),
    ],
)
def test_a_checkpoint_by_its_tokens(per_parameter, situation, per_step, share):
    wide = {"many": 512, "few": 4096, "very few": 65_536}[situation]
    model, count = chain(wide), parameters(wide)
    assert model.count_params() == count
    tokens = round(per_parameter * count)
    found = ki.recommended(model, tokens)
    assert found.situation == situation
    assert found["tokens_per_step"] == per_step
    assert found["batch_size"] * found["sequence_length"] == per_step
    steps = tokens // per_step
    every = max(1, min(100, steps // 8))
    assert found["steps_per_epoch"] == every
    assert found["total_steps"] == steps // every * every
    kept = round(0.67 * wide / 32) * 32
    assert found["kept"] == {"neurons": kept}
    if share is None:
        assert found.prune is None and found["prune_steps"] == 1
        assert found.shrink["targets"] == {"neurons": kept} and found.shrink["refit"]
        windows = -(-max(16_384, 2 * kept) // 128)
        assert found.shrink["num_samples"] == windows
    else:
        assert found.shrink is None
        assert found.prune == {
            "target_dim": 0.67,
            "begin_step": 0,
            "prune_steps": round(share * found["total_steps"]),
            "method": "sensitivity",
            "round_to": 32,
        }
    assert found.distiller["weight"] == 0.5


def test_the_run_that_was_measured_on_a_released_checkpoint():
    """benchmarks/checkpoints, "refit, logits": 128 steps of 4 rows of 128 tokens."""
    found = ki.recommended(chain(1536, 1024, blocks=4), tokens=65_536)
    assert found.situation == "very few"
    assert (found["batch_size"], found["sequence_length"]) == (4, 128)
    assert found["kept"] == {"neurons": 1024} and found["refit_windows"] == 128
    assert found.shrink["method"].name == "activation"
    assert found.shrink["method"].by_weights and found["by_weights"]
    assert found.schedule == {
        "peak_learning_rate": 3e-4,
        "end_learning_rate": 3e-6,
        "total_steps": 128,
        "warmup_steps": 11,
    }
    assert found.distiller == {"temperature": 1.0, "weight": 0.5}
