"""What a plan counts of a preset is what the run will load: ties, shared layers."""

import inspect

import keras_hub
import pytest

import keras_idea as ki
from keras_idea.hub.families import HUB_FAMILIES, PRESET_FAMILIES
from keras_idea.lm.runs.config import parse_config
from keras_idea.lm.runs.models.footprint import footprint
from keras_idea.lm.runs.models.hub_source import source_of_preset
from keras_idea.lm.runs.models.outlines import outlines
from tests.support.hub_models import MIXTURES, MODELS, tiny_lm
from tests.support.released_models import release
from tests.support.released_rows import ALL

ROWS = {
    name: row
    for name, row in MODELS.items()
    if row.task.endswith("CausalLM") and name not in MIXTURES
}
TIED = "tie_word_embeddings"


def variants():
    """Each row; where its class can be tied, tied and not."""
    for name, row in ROWS.items():
        cls = getattr(keras_hub.models, row.backbone)
        if TIED in inspect.signature(cls).parameters:
            for tie in (False, True):
                yield pytest.param(name, {TIED: tie}, id=f"{name} {tie}")
        else:
            yield pytest.param(name, {}, id=name)


def planned(preset):
    """The parameters of the wide model, of a plan and of its source."""
    table = f"[model]\npreset = {str(preset)!r}\ntarget_dim = 0.5\nsequence_length = 8"
    config = parse_config(table)
    source = source_of_preset(config.model, "float32")
    made = outlines(config)
    return (
        source.outline(source.at_start).count_params(),
        footprint(config, made, made.at_start).parameters,
    )


def test_every_family_of_a_run_is_here():
    families = {row.prefix for row in HUB_FAMILIES.values()} | set(PRESET_FAMILIES)
    # Gemma 2 is a Gemma.
    assert {row.backbone.removesuffix("Backbone") for row in ROWS.values()} >= families


@pytest.mark.parametrize("name, told", list(variants()))
def test_a_plan_counts_what_is_loaded(name, told, tmp_path):
    lm = tiny_lm(name, **told)
    lm.save_to_preset(str(tmp_path))
    loaded = ki.hub.load(tmp_path).count_params()
    assert planned(tmp_path) == (loaded, loaded) == (lm.count_params(),) * 2


def test_a_tied_preset_whose_config_does_not_say_so(tmp_path, monkeypatch):
    cls = keras_hub.models.LlamaBackbone
    monkeypatch.setattr(cls, "get_config", inspect.unwrap(vars(cls)["get_config"]))
    lm = tiny_lm("llama tied")
    lm.save_to_preset(str(tmp_path))
    assert planned(tmp_path) == (lm.count_params(),) * 2


@pytest.mark.parametrize("name", ["llama", "llama tied", "gemma", "qwen3 tied", "gpt2"])
def test_a_plan_of_a_hugging_face_folder(name, tmp_path):
    model = release(tmp_path, ALL[name])
    assert planned(tmp_path) == (model.num_parameters(),) * 2
    assert ki.hub.load(tmp_path).count_params() == model.num_parameters()
