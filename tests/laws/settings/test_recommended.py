"""Settings that follow from a model, its tokens and a target."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.settings.recommended import situation_of
from keras_idea.settings.rules import PEAKS, RULES, Advice
from tests.support.hub_models import tiny_lm


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
    assert found.distiller["features"] == (per_parameter == 0.25)


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
    assert found.distiller == {"temperature": 1.0, "weight": 0.5, "features": False}


def test_from_nothing():
    """Of 30 tokens per parameter of the narrow model: half wide, half of the rest."""
    narrow = parameters(343)  # 0.67 of 512
    found = ki.recommended(chain(), 30 * narrow, trained=False)
    steps = 30 * narrow // 1024
    every = max(1, steps // 8)
    total = steps // every * every
    assert found["total_steps"] == total
    begin = round(total / 2 / every) * every
    assert found.prune["begin_step"] == begin and begin % every == 0
    assert found.prune["prune_steps"] == round((total - begin) / 2)
    assert found.distiller is None and found.shrink is None
    assert found.prune["round_to"] == 1 and found["kept"] == {"neurons": 343}
    longer = ki.recommended(chain(), 300 * narrow, trained=False)
    every = longer["steps_per_epoch"]
    tenth = longer["total_steps"] / 10
    assert longer["begin_step"] == max(1, round(tenth / every)) * every


def test_a_limit_of_parameters():
    model, most = chain(), parameters(300)
    found = ki.recommended(model, 100_000, target=most)
    assert found.prune["target_parameters"] == most
    # The widest multiple of 32 within it.
    assert found["kept"] == {"neurons": 288}
    assert found.settings["target_parameters"].basis == "given"


def test_a_number_of_neurons_is_not_rounded():
    found = ki.recommended(chain(), 100_000, target={"neurons": 300})
    assert found.prune["targets"] == {"neurons": 300}
    assert found.prune["round_to"] == 1


def test_steps_of_more_tokens_and_smaller_ffns():
    found = ki.recommended(chain(48), tokens=2**26)
    assert found["round_to"] == 1  # a third of 48 is no multiple of 32
    # 2**26 / 4000 tokens, the power of two below.
    assert found["tokens_per_step"] == 16_384 == 16 * found["sequence_length"]
    assert found.settings["tokens_per_step"].basis == "an estimate"
    assert 4000 <= found["total_steps"] <= 4200


def test_each_setting_has_a_reason():
    found = ki.recommended(chain(), 100_000)
    for name, setting in found.settings.items():
        assert setting.basis in ("measured", "an estimate", "given"), name
        assert setting.reason and "](" not in setting.reason, name
        assert (setting.basis == "measured") == setting.reason.endswith("]"), name
        assert f"{name} = {setting.value!r}" in str(found)


def test_a_reason_does_not_repeat_the_value():
    told = {
        Advice("1,024", "HR", 1024): "[H, R]",
        Advice('"activation": as `fit` needs', "L", "activation"): "as fit needs [L]",
        Advice("no, see [the table](#here)", "", False): "no, see the table",
        Advice("0.69: loss +0.013", "C", 0.67): "0.69: loss +0.013 [C]",
    }
    assert {advice: advice.reason for advice in told} == told


def test_every_value_of_the_rules_is_of_its_kind():
    for name, row in RULES.items():
        for situation, advice in row.items():
            assert advice[0].value is not None, (name, situation)
    assert [row.most for row in PEAKS] == sorted(row.most for row in PEAKS)
    assert situation_of(1.0) == "many" and situation_of(0.006) == "few"


@pytest.mark.parametrize("tokens", [100_000, 8_000], ids=["in fit", "in one step"])
def test_the_arguments_are_those_of_the_functions(tokens):
    """A tiny recovery by nothing but the recommended arguments."""
    features = {100_000: 8, 8_000: 700}[tokens]
    teacher, student = chain(512, features), chain(512, features)
    student.set_weights(teacher.get_weights())
    found = ki.recommended(student, tokens, target=0.5)
    x = np.arange(4 * 256).reshape(256, 4) % 16
    if found.shrink is not None:
        student = ki.shrink(student, data=x, **found.shrink)
    rate = ki.CosineDecay(**found.schedule)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    student.compile(keras.optimizers.AdamW(rate), loss)
    pair = ki.distiller(teacher, student, **found.distiller)
    prune = [] if found.prune is None else [ki.IdeaPruneCallback(**found.prune)]
    pair.fit(
        x,
        x,
        batch_size=4,
        callbacks=prune,
        verbose=0,
    )
    assert {ffn.hidden_dim for ffn in ki.find_ffns(student)} == {256}


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"tokens": 0}, "`tokens` must be an integer >= 1"),
        ({"tokens": 100}, "`tokens` must be at least 6,144"),
        ({"target": 1.5}, "`target` must be a float in (0, 1)"),
        ({"target": True}, "`target` must be a float in (0, 1)"),
        ({"target": 10**9}, "is within target_parameters=1,000,000,000 already"),
        ({"target": 50}, "target_parameters=50 cannot be met by pruning"),
        ({"target": {"neurons": 1024}}, "fewer than the 1024 neurons"),
        ({"target": {"kv_groups": 0.5}}, "has no 'kv_groups' that can be pruned"),
        ({"target": 0.999999}, "Received: target=0.999999, which keeps 1024"),
    ],
)
def test_what_cannot_be(arguments, words):
    with pytest.raises(ValueError) as raised:
        ki.recommended(**{"model": chain(1024, 700), "tokens": 8_000, **arguments})
    assert words in str(raised.value)


def test_experts_are_pruned_in_fit():
    """They cannot be refit, however few the tokens are."""
    mixture = tiny_lm("mixtral", hidden_dim=512, intermediate_dim=512)
    found = ki.recommended(mixture, 14_000, target=0.5)
    assert found["tokens_per_parameter"] < 0.006
    assert (found.situation, found.shrink) == ("few", None)
    assert found.prune["method"] == "sensitivity"


def test_a_model_with_nothing_to_prune():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="has no 'neurons' that can be pruned"):
        ki.recommended(model, 100_000)
