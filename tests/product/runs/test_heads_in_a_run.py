"""A run that prunes key/value heads beside neurons: its plan, its folder, its words."""

import csv
import json
import re

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.errors import ConfigError
from keras_idea.finding.find import find_groups
from keras_idea.lm.report.run_record import read_run
from keras_idea.lm.runs.config import parse_config
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.models.footprint import footprint
from keras_idea.lm.runs.models.outlines import outlines
from keras_idea.lm.runs.plan import plan
from keras_idea.lm.runs.train.recorder import LossUnits, Recorder
from keras_idea_cli.status import status
from tests.support.tiny_run import ONE_LAYER, run_in, with_hub

HEADS = ONE_LAYER.replace(
    "target_dim = 8", "targets = { neurons = 8, kv_groups = 0.5 }"
).replace("num_heads = 2", "num_heads = 4\nnum_key_value_heads = 2")
MISTRAL = with_hub(HEADS, 'hub = "mistral"')
EITHER = {"own decoder": HEADS, "mistral": MISTRAL}


def planned(text):
    return plan(parse_config(text), read_text=False)


def budgeted(text, *lines):
    targets = "targets = { neurons = 8, kv_groups = 0.5 }"
    return text.replace(targets, "\n".join(lines))


def by_hand(text, neurons, key_value_heads):
    """Parameters of one layer, two query heads of four features to each of a key."""
    attention = 2 * 16 * 4 * (2 * key_value_heads + key_value_heads)
    vocabulary = parse_config(text)
    words = outlines(vocabulary).vocabulary_size
    return 2 * words * 16 + 16 + 2 * 16 + attention + 3 * 16 * neurons


@pytest.mark.parametrize("text", EITHER.values(), ids=EITHER.keys())
def test_the_plan_knows_both_kinds(text):
    made = planned(text)
    assert made.kinds == ["neurons", "kv_groups"]
    assert [stage.units("kv_groups") for stage in made.stages] == [
        (2, 2),
        (2, 1),
        (1, 1),
        (1, 1),
    ]
    assert made.parameters == (by_hand(text, 32, 2), by_hand(text, 8, 1))
    # Two a weight forward, four backward; logits, scores and sums of the attention.
    tokens, vocabulary = 4 * 16, outlines(parse_config(text)).vocabulary_size
    weights = 2 * 16 * 4 * 3 + 3 * 16 * 8 + vocabulary * 16
    last = made.stages[-1]
    assert last.flops == 12 * 6 * tokens * (weights + 2 * 16 * 2 * 4)


@pytest.mark.parametrize("text", EITHER.values(), ids=EITHER.keys())
def test_one_ratio_within_a_budget(text):
    limit = by_hand(text, 16, 1)
    kinds = 'kinds = ["neurons", "kv_groups"]'
    for more, neurons in ((0, 16), (-1, 15), (48, 17)):
        given = budgeted(text, kinds, f"target_parameters = {limit + more}")
        assert planned(given).stages[-1].sizes[1] == Sizes(neurons, 1)


def test_footprint_counts_the_heads_of_the_optimizer():
    """Of each unit the scores of its matrices, a mask and its number, twice over."""
    config = parse_config(HEADS)
    outline = outlines(config)
    narrow = footprint(config, outline, Sizes(8, 1), pruned=True)
    assert narrow.pruning == 4 * (8 * (3 + 2) + 1 * (4 + 2))


@pytest.mark.parametrize("text", EITHER.values(), ids=EITHER.keys())
def test_a_whole_run(tmp_path, text):
    folder, printed = run_in(tmp_path, text)
    assert "FFN width 32 to 8, key/value heads 2 to 1" in printed
    assert "scratch baseline: FFN width 8, key/value heads 1" in printed
    if "hub" in text:
        import keras_hub

        lm = keras_hub.models.CausalLM.from_preset(str(folder / "preset"))
        backbone = lm.backbone
        heads = backbone.num_query_heads, backbone.num_key_value_heads
        assert (*heads, backbone.head_dim) == (2, 1, 4)
    else:
        lm = keras.saving.load_model(folder / "narrow.keras")
    found = {group.kind: group.hidden_dim for group in find_groups(lm)}
    assert found == {"neurons": 8, "kv_groups": 1}
    rows = json.loads((folder / "table.json").read_text())["rows"]
    parameters = {row["name"]: row["parameters"] for row in rows}
    assert parameters["wide before pruning"] == by_hand(text, 32, 2)
    assert parameters["pruned"] == by_hand(text, 8, 1) == lm.count_params()
    assert parameters["narrow from scratch"] == lm.count_params()
    assert all(np.isfinite(row["bits_per_byte"]) for row in rows)
    assert ki.explain(lm).heads
    with open(folder / "metrics.csv", newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["run"] == "pruned"]
    heads = [int(line["kv_groups"]) for line in lines]
    assert heads == sorted(heads, reverse=True) and {heads[0], heads[-1]} == {2, 1}
    record = read_run(folder)
    pruned, scratch = record.curves
    assert pruned.kv_groups.tolist() == heads and scratch.kv_groups is None


def test_a_recorder_tells_the_kinds_apart_also_after_a_kill():
    """What was read is drawn from the checkpoint, whose layers nobody ranks again."""
    config = ki.models.DecoderConfig(16, 16, 2, 4, 12, 5, num_key_value_heads=2)
    model = ki.models.decoder(config)
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy()
    )
    rate = keras.optimizers.schedules.CosineDecay(0.1, 6)
    recorder, resumed = (
        Recorder("pruned", Sizes(12, 2), rate, LossUnits(), range(1, 7))
        for _ in range(2)
    )
    prune = ki.IdeaPruneCallback(None, 1, 4, targets={"neurons": 0.5, "kv_groups": 0.5})
    tokens = np.random.default_rng(0).integers(0, 16, (12, 5))
    fit = {"batch_size": 2, "verbose": 0, "callbacks": [recorder, prune]}
    model.fit(tokens, tokens, **fit)
    groups = find_groups(model)
    assert [group.hidden_dim for group in groups] == [6, 6, 1, 1]
    resumed.set_state(recorder.get_state())
    assert len(recorder.neurons()) == len(groups)
    rows = zip(groups, recorder.neurons(), resumed.neurons(), strict=True)
    for group, lives, again in rows:
        assert (lives.layer, lives.kind) == (group.name, group.kind)
        assert lives.levels.shape == (len(lives.steps), group.full_dim)
        active = (lives.levels > 0).sum(axis=1)
        assert active[0] == group.full_dim and active[-1] == group.hidden_dim
        assert (again.layer, again.kind) == (lives.layer, lives.kind)
        np.testing.assert_array_equal(again.steps, lives.steps)
        np.testing.assert_array_equal(again.levels, lives.levels)


def test_status_tells_of_heads(tmp_path, capsys):
    """The column is empty, or not there, in runs that prune none."""
    (tmp_path / "config.toml").write_text(parse_config(HEADS).to_toml())
    names = "run,step,learning_rate,width,bits_per_byte,validation,kv_groups"
    (tmp_path / "metrics.csv").write_text(f"{names}\npruned,1,0,32,8.0,,2\n")
    assert status(str(tmp_path)) == 0
    assert re.search(r"KV heads: +2 a layer at step 1\n", capsys.readouterr().out)
    (tmp_path / "metrics.csv").write_text(f"{names}\npruned,1,0,32,8.0,,\n")
    assert status(str(tmp_path)) == 0
    assert "KV heads" not in capsys.readouterr().out


REFUSED = {
    "of no kind": ("targets = { heads = 2 }", "must be a table such as .*'heads'"),
    "not a number": ("targets = { kv_groups = '1' }", "`model.targets.kv_groups` must"),
    "no fewer": (
        "targets = { kv_groups = 2 }",
        "`model.targets.kv_groups` must be below model.num_key_value_heads=2.*Lower",
    ),
    "a share of all": (
        "targets = { kv_groups = 0.9 }",
        "Received: targets=.*0.9.*, which keeps 2. Lower",
    ),
    "one head": (
        'hub = "gemma"\ntargets = { kv_groups = 1 }',
        "must be below model.num_key_value_heads=1.*Delete `targets.kv_groups`",
    ),
    "one head, a budget": (
        'hub = "gemma"\nkinds = ["neurons", "kv_groups"]\ntarget_parameters = 9_000',
        "There is one key/value head",
    ),
    "what measures": (
        "targets = { kv_groups = 1 }\n[pruning]\nmethod = 'activation'",
        "`pruning.method` cannot be 'activation' where key/value heads",
    ),
    "no multiple": (
        'kinds = ["neurons", "kv_groups"]\nround_to = 64\ntarget_parameters = 9_000',
        "No multiple of `round_to` is within the FFN width of 32",
    ),
    "met already": (
        'kinds = ["neurons", "kv_groups"]\nround_to = 24\ntarget_flops = 999_999',
        "The wide model is within target_flops=999,999 already",
    ),
    "twice": ("targets = { neurons = 8 }\ntarget_dim = 8", "cannot both be given"),
    "with a budget": (
        "targets = { neurons = 8 }\ntarget_flops = 9",
        "`model.targets` and target_flops=9 cannot both",
    ),
    "kinds alone": ('kinds = ["kv_groups"]', "`model.kinds` says what a budget prunes"),
    "unknown kinds": (
        'kinds = ["heads"]\ntarget_flops = 9',
        "`model.kinds` must list some of 'neurons', 'kv_groups'",
    ),
    "a family that cannot": (
        'hub = "llama3"\ntargets = { kv_groups = 1 }',
        "heads of a Llama3Backbone cannot .* take one of mistral, qwen3, gemma\\.",
    ),
}


@pytest.mark.parametrize("lines, match", REFUSED.values(), ids=REFUSED.keys())
def test_refused(lines, match):
    text = budgeted(HEADS, lines)
    if "[pruning]" in lines:  # a table ends the one before it
        lines, _, table = lines.partition("\n[pruning]\n")
        text = budgeted(HEADS, lines) + f"\n[pruning]\n{table}\n"
    if "gemma" in lines:
        text = text.replace("num_key_value_heads = 2", "")
    with pytest.raises(ConfigError, match=match):
        planned(text)


def test_a_kind_that_stays_is_not_scored():
    """No state of neurons where heads alone are pruned, and no words of them."""
    config = parse_config(budgeted(HEADS, "targets = { kv_groups = 1 }"))
    outline = outlines(config)
    narrow = footprint(config, outline, Sizes(32, 1), pruned=True)
    assert narrow.pruning == 4 * (4 + 2)
    wide = outline.at_start
    assert wide.pruned_to(Sizes(32, 1)) == "key/value heads 2 to 1"
    assert wide.smaller_in(Sizes(32, 1)) == {"kv_groups": 1}


def test_a_description_comes_back_equal():
    config = parse_config(HEADS)
    assert parse_config(config.to_toml()) == config
