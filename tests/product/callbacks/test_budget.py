"""Targets given as what the narrow model may cost."""

import keras
import pytest

import keras_idea as ki
from keras_idea._finding.budget import multiply_adds
from tests.support.helpers import residual_model
from tests.support.tiny_decoder import DecoderConfig, decoder

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}


def pruned(data, model=None, **arguments):
    model = model or residual_model(use_bias=True)
    model.compile("sgd", "mse")
    prune = ki.IdeaPruneCallback(begin_step=1, prune_steps=4, **arguments)
    model.fit(*data, callbacks=[prune], **FIT)
    return model


def parameters(model):
    """Counted by Keras, of the model that is left when nothing of ours is in it."""
    return ki.compact(model).count_params()


def one_more(model):
    """What one neuron more in each FFN would add: three kernels and two biases of 8."""
    return len(ki.find_ffns(model)) * (3 * 8 + 2)


@pytest.mark.parametrize("limit", [501, 526])
def test_parameters(data, limit):
    model = pruned(data, target_parameters=limit)
    assert limit - one_more(model) < parameters(model) <= limit
    assert len({ffn.hidden_dim for ffn in ki.find_ffns(model)}) == 1


def test_flops(data):
    """Two a weight in a matrix: 16 of the head's 8, and 48 of each neuron."""
    model = pruned(data, target_flops=16 + 2 * 48 * 7 + 95)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [7, 7]
    model = pruned(data, target_flops=16 + 2 * 48 * 8)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [8, 8]


def test_weights_of_a_decoder():
    """By hand: attention 4 d d, FFN 3 d h, logits V d; no lookup, no norm."""
    config = DecoderConfig(
        vocabulary_size=50,
        model_dim=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=12,
        sequence_length=6,
    )
    expected = 2 * (4 * 8 * 8 + 3 * 8 * 12) + 50 * 8
    model = decoder(config)
    # Each of two layers: 6 positions by 8 features, with queries and with values.
    assert multiply_adds(model, 6) == expected + 2 * (2 * 6 * 8)
    assert multiply_adds(model, 0) == expected


def test_what_is_said_before_the_run(data, capsys):
    model = residual_model(use_bias=True)
    model.compile("sgd", "mse")
    prune = ki.IdeaPruneCallback(begin_step=1, prune_steps=4, target_parameters=520)
    model.fit(*data, callbacks=[prune], batch_size=8, verbose=2)
    said = capsys.readouterr().out
    assert "target_parameters=520: at most 9 neurons stay" in said
    assert f"{parameters(model):,} parameters" in said


@pytest.mark.parametrize("unit", ["parameters", "flops"])
def test_a_distillers_budget_is_its_students(unit, data):
    """The same width as the student gets alone: a teacher costs the narrow nothing."""
    limit = {"parameters": 520, "flops": 700}[unit]
    widths = []
    for distilled in (False, True):
        student = model = residual_model(use_bias=True)
        if distilled:
            loss = keras.distillation.LogitsDistillation()
            teacher = residual_model((32, 32), use_bias=True)
            model = keras.distillation.Distiller(teacher, student, loss)
        pruned(data, model, **{f"target_{unit}": limit})
        widths.append([ffn.hidden_dim for ffn in ki.find_ffns(student)])
    assert widths[0] == widths[1] and 1 < widths[0][0] < 12


@pytest.mark.parametrize(
    "limit, told",
    [
        (
            {"target_parameters": 60},
            "target_parameters=60 cannot be met.*smallest model still has 76 param",
        ),
        ({"target_flops": 40}, r", 112 FLOPs per token\."),
        (
            {"target_parameters": 60, "round_to": 4},
            "the smallest model still has 232 parameters.*lower `round_to`",
        ),
        (
            {"target_parameters": 600, "round_to": 64},
            "No multiple of `round_to` is within .* 16. Received: round_to=64",
        ),
    ],
)
def test_what_cannot_be_met_is_told_in_the_unit_that_was_given(limit, told, data):
    with pytest.raises(ValueError, match=told):
        pruned(data, **limit)
