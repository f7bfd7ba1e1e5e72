"""Targets given as what the narrow model may cost."""

import keras
import pytest

import keras_idea as ki
from keras_idea.finding.budget import Budget, Costs
from tests.support.helpers import residual_model

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


@pytest.mark.parametrize("limit", [500, 501, 526, 600])
def test_parameters(data, limit):
    model = pruned(data, target_parameters=limit)
    assert limit - one_more(model) < parameters(model) <= limit
    assert len({ffn.hidden_dim for ffn in ki.find_ffns(model)}) == 1


@pytest.mark.parametrize("dtype, size", [("float32", 4), ("float16", 2), ("int8", 1)])
def test_bytes(data, dtype, size):
    model = pruned(data, target_bytes=520 * size, target_dtype=dtype)
    assert parameters(model) == parameters(pruned(data, target_parameters=520))


def test_flops(data):
    """Two a weight in a matrix: 16 of the head's 8, and 48 of each neuron."""
    model = pruned(data, target_flops=16 + 2 * 48 * 7 + 95)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [7, 7]
    model = pruned(data, target_flops=16 + 2 * 48 * 8)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [8, 8]


def test_a_multiple(data):
    model = pruned(data, target_parameters=600, round_to=4)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [8, 8]


def test_an_ffn_that_is_narrower_stays(data):
    """16 and 6 neurons: the narrow one fits, what is left is the wide one's."""
    model = residual_model((16, 6), use_bias=True)
    limit = parameters(model) - 3 * (3 * 8 + 2)
    pruned(data, model, target_parameters=limit)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [13, 6]
    assert parameters(model) == limit


def test_the_next_fit_has_the_same_target(data):
    model = pruned(data, target_parameters=520)
    widths = [ffn.hidden_dim for ffn in ki.find_ffns(model)]
    assert widths == [
        ffn.hidden_dim
        for ffn in ki.find_ffns(pruned(data, model, target_parameters=520))
    ]


def test_what_is_said_before_the_run(data, capsys):
    model = residual_model(use_bias=True)
    model.compile("sgd", "mse")
    prune = ki.IdeaPruneCallback(
        begin_step=1, prune_steps=4, target_bytes=1040, target_dtype="float16"
    )
    model.fit(*data, callbacks=[prune], batch_size=8, verbose=2)
    said = capsys.readouterr().out
    assert "target_bytes=1,040 (float16): at most 9 neurons stay" in said
    assert f"{parameters(model):,} parameters" in said


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "`target_dim` must be .* or give target_parameters.*None"),
        ({"target_parameters": 0}, "`target_parameters` must be an integer >= 1.*=0"),
        ({"target_bytes": 1.5}, "`target_bytes` must be an integer"),
        (
            {"target_dim": 4, "target_flops": 9},
            "one of `target_dim` and target_flops=9",
        ),
        (
            {"target_parameters": 9, "target_bytes": 9},
            "one of `target_parameters` and `target_bytes`",
        ),
        ({"target_bytes": 9, "target_dtype": "q4"}, "`target_dtype` must be one of"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ki.IdeaPruneCallback(begin_step=1, prune_steps=4, **arguments)


def test_the_widest_is_found_by_the_costs_alone():
    def costs(width):
        return Costs(parameters=width * width, flops=0)

    assert Budget(parameters=50).widest(costs, 100) == 7
    assert Budget(parameters=49).widest(costs, 100, round_to=2) == 6
    assert Budget(parameters=10**9).widest(costs, 100, round_to=8) == 96


def test_copies_have_the_budget():
    import copy

    prune = ki.IdeaPruneCallback(
        begin_step=1, prune_steps=4, target_bytes=9, target_dtype="int8"
    )
    assert copy.deepcopy(prune).budget == Budget(bytes=9, dtype="int8")


@pytest.mark.parametrize("unit", ["parameters", "bytes", "flops"])
def test_a_distillers_budget_is_its_students(unit, data):
    """The same width as the student gets alone: a teacher costs the narrow nothing."""
    limit = {"parameters": 520, "bytes": 4 * 520, "flops": 700}[unit]
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
            "target_parameters=60 cannot be met.*smallest width, 1, the .*has 76 param",
        ),
        ({"target_bytes": 200}, r"still has 304 bytes in float32\."),
        ({"target_bytes": 100, "target_dtype": "float16"}, "152 bytes in float16"),
        ({"target_flops": 60}, "still has 112 FLOPs per token"),
        (
            {"target_parameters": 60, "round_to": 4},
            r"width, 4 \(round_to=4\), the model still has 232 parameters",
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
