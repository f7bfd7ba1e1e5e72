"""What holds for every description of a run, not for some: drawn by hypothesis."""

import dataclasses
import re

import hypothesis.strategies as st
import pytest
import tomli_w
from hypothesis import given, settings

from keras_idea.errors import ConfigError
from keras_idea.functional.milestones import COMPACT
from keras_idea.hub.families import HUB_FAMILIES
from keras_idea.lm.runs.config import RunConfig, load_config, parse_config
from keras_idea.methods import METHODS

TABLES = {
    table.name: [field.name for field in dataclasses.fields(table.type)]
    for table in dataclasses.fields(RunConfig)
}
# A machine that others share is slow at times.
unhurried = settings(deadline=None)
counts = st.integers(1, 50)
#: Whatever TOML can spell of text: no lone surrogates.
characters = st.characters(codec="utf-8", exclude_characters="\0")
texts = st.text(characters, min_size=1).filter(str.strip)


@st.composite
def models(draw):
    """A valid table [model]."""
    if draw(st.booleans()):
        return {"preset": f"presets/{draw(counts)}", "target_dim": draw(counts)}
    heads, hidden_dim = draw(counts), draw(st.integers(2, 5000))
    fraction = st.floats(0.0, 0.9, exclude_min=True)
    target = st.integers(1, hidden_dim - 1) | fraction.filter(
        lambda kept: max(1, round(kept * hidden_dim)) < hidden_dim
    )
    table = {
        "num_heads": heads,
        "model_dim": 2 * heads * draw(counts),
        "hidden_dim": hidden_dim,
        "target_dim": draw(target),
        "sequence_length": draw(st.integers(2, 5000)),
    }
    if draw(st.booleans()):
        table["hub"] = draw(st.sampled_from(sorted(HUB_FAMILIES)))
    return table


@st.composite
def corpora(draw):
    """A valid table [corpus] that names documents."""
    table = {"field": draw(texts), "cache": draw(texts)}
    if draw(st.booleans()):
        return {**table, "dataset": draw(texts), "dataset_split": draw(texts)}
    paths = st.lists(texts, min_size=1).map(tuple)
    table |= {"paths": draw(paths), "pattern": draw(texts)}
    return {**table, "validation_paths": draw(paths)} if draw(st.booleans()) else table


@st.composite
def valid(draw):
    """The tables of a valid description."""
    every, peak = draw(counts), draw(st.floats(0.0, 1e3))
    enlarge, rest = draw(counts) * every, draw(st.integers(2, 50)) * every
    prune = draw(st.integers(1, rest))
    read = {"corpus": draw(corpora()), "data": {}}
    if draw(st.booleans()):
        read = {"data": {"text": draw(texts)}}
    read["data"]["validation_fraction"] = draw(st.floats(0.001, 0.5))
    return {
        "model": draw(models()),
        **read,
        "budget": {
            "enlarge_steps": enlarge,
            "prune_steps": prune,
            "recover_steps": rest - prune,
        },
        "optimizer": {
            "peak_learning_rate": peak,
            "end_learning_rate": draw(st.floats(0.0, peak)),
            "warmup_steps": draw(st.integers(0, enlarge)),
        },
        "pruning": {
            "method": draw(st.sampled_from(sorted(METHODS))),
            "ema_decay": draw(st.floats(0.0, 1.0, exclude_max=True)),
            "compact": draw(st.sampled_from(COMPACT)),
        },
        "sample": {"prompt": draw(texts), "temperature": draw(st.floats(0.0, 10.0))},
        "run": {
            "output": f"runs/{draw(counts)}",
            "validate_every": every,
            "checkpoint_every": every * draw(counts),
        },
    }


@unhurried
@given(valid())
def test_what_is_valid_comes_back_equal(tables):
    config = parse_config(tomli_w.dumps(tables))
    assert parse_config(config.to_toml()) == config
    assert config.changes_from(config) == ""
    for table, values in tables.items():
        for key, value in values.items():
            assert getattr(getattr(config, table), key) == value


values = st.recursive(
    st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(codec="utf-8"))
    | st.dates()
    | st.datetimes()
    | st.times(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(characters), inner),
    max_leaves=5,
)


def named(table):
    """Some of a table's own keys, sometimes another, whatever their values."""
    return st.dictionaries(st.sampled_from(TABLES[table]) | st.text(characters), values)


nested = st.fixed_dictionaries(
    {}, optional={table: named(table) | values for table in TABLES}
) | st.dictionaries(st.sampled_from(sorted(TABLES)) | st.text(characters), values)


def assert_parses_or_is_refused(text):
    try:
        config = parse_config(text)
    except ConfigError as error:
        assert str(error)
    else:
        assert parse_config(config.to_toml()) == config


@unhurried
@given(nested)
def test_any_tables_parse_or_are_refused(tables):
    assert_parses_or_is_refused(tomli_w.dumps(tables))


@unhurried
@given(st.data())
def test_any_value_of_any_key_parses_or_is_refused(data):
    table = data.draw(st.sampled_from(sorted(TABLES)))
    key = data.draw(st.sampled_from(TABLES[table]))
    assert_parses_or_is_refused(tomli_w.dumps({table: {key: data.draw(values)}}))


@unhurried
@given(st.text() | st.text("[]{}=\"'.,#\n\\ 0123456789abe-+_:TZ"))
def test_any_text_parses_or_is_refused(text):
    assert_parses_or_is_refused(text)


@unhurried
@given(content=st.binary())
def test_any_file_parses_or_is_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("config") / "any.toml"
    path.write_bytes(content)
    try:
        load_config(path)
    except ConfigError as error:
        assert "any.toml" in str(error)


@unhurried
@given(
    enlarge=st.integers(1, 10**6),
    rest=st.integers(1, 10**6),
    every=st.integers(1, 10**6),
)
def test_invalid_validate_every_suggests_a_divisor(enlarge, rest, every):
    steps = {"enlarge_steps": enlarge, "prune_steps": rest, "recover_steps": 0}
    if enlarge % every == 0 and rest % every == 0:
        return
    with pytest.raises(ConfigError, match="must divide") as refused:
        parse_config(_beat(steps, every))
    advice = str(refused.value).rpartition("Set ")[2]
    for found in re.findall(r"\d+", advice) if "validate" in advice else ():
        parse_config(_beat(steps, found))
        # Not at every step, unless that was asked for or the run is very short.
        assert int(found) >= every / 2 or (enlarge + rest) / int(found) <= 51
    for key, found in re.findall(r"`budget.(\w+)` to (\d+)", advice):
        steps[key] = int(found)
    if "budget" in advice:
        parse_config(_beat(steps, every))


def _beat(steps, every):
    lines = "\n".join(f"{key} = {value}" for key, value in steps.items())
    return (
        f"[budget]\n{lines}\n[optimizer]\nwarmup_steps = 0\n"
        f"[run]\nvalidate_every = {every}\n"
    )
