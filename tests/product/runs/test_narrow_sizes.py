"""A run whose sizes at the end are what a budget allows."""

import pytest

from keras_idea.errors import ConfigError
from keras_idea.lm.runs.config import parse_config
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.models.outlines import outlines
from keras_idea.lm.runs.plan import plan
from tests.support.tiny_run import CONFIG


def planned(*lines, remove="target_dim = 8", **how):
    text = CONFIG.replace(remove, "\n".join(lines))
    config = parse_config(text)
    return config, plan(config, read_text=False, **how)


def parameters(config, width):
    return outlines(config).make(Sizes(width)).count_params()


@pytest.mark.parametrize(
    "more",
    ["", 'hub = "llama3"\ntokenizer = "bytes"'],
    ids=["decoder", "hub"],
)
def test_parameters(more):
    bare = parse_config(CONFIG.replace("[model]", f"[model]\n{more}"))
    limit = parameters(bare, 11) + 5
    _, made = planned(more, f"target_parameters = {limit}")
    assert made.parameters[1] == parameters(bare, 11)
    assert made.stages[-1].units("neurons") == (11, 11)
    _, made = planned(more, f"target_parameters = {limit}", "round_to = 4")
    assert made.stages[-1].units("neurons") == (8, 8)


def test_bytes():
    bare = parse_config(CONFIG)
    limit = 2 * parameters(bare, 11)
    lines = (f"target_bytes = {limit}", 'target_dtype = "bfloat16"')
    assert planned(*lines)[1].stages[-1].units("neurons") == (11, 11)


def test_flops():
    """Two a weight: of two layers' attention, of the logits, of a neuron's six rows."""
    others = 2 * (2 * 4 * 16 * 16 + 16 * 256)
    for width in (8, 9):
        for more in (0, 191):
            _, made = planned(f"target_flops = {others + width * 2 * 6 * 16 + more}")
            assert made.stages[-1].units("neurons") == (width, width)


def test_the_devices_of_a_mesh_share_the_neurons():
    bare = parse_config(CONFIG)
    lines = (f"target_parameters = {parameters(bare, 11)}",)
    text = CONFIG.replace("target_dim = 8", lines[0])
    spread = parse_config(text + "\n[distribution]\nmesh = { model = 2 }\n")
    assert plan(spread, read_text=False).stages[-1].units("neurons") == (10, 10)


def test_a_fraction_is_rounded():
    assert planned("target_dim = 0.3", "round_to = 4")[1].stages[-1].units(
        "neurons"
    ) == (8, 8)


@pytest.mark.parametrize(
    "lines, match",
    [
        (["target_dim = 8", "target_flops = 9"], "target_dim.*target_flops=9.*both"),
        (["target_flops = 9", "target_bytes = 9"], "one of `target_bytes`|one of"),
        (["target_flops = 0"], "`model.target_flops` must be an integer >= 1"),
        (
            ["target_parameters = 9"],
            r"target_parameters=9 cannot be met.*smallest width, 1,",
        ),
        (["target_parameters = 9_000_000"], "The wide model is within .* already"),
    ],
)
def test_refused(lines, match):
    with pytest.raises(ConfigError, match=match):
        planned(*lines)
