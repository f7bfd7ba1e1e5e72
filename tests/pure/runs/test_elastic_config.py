"""Run files with `[elastic]`: what they say, and what cannot stand beside it."""

import pytest

from keras_idea.errors import ConfigError
from keras_idea.lm.runs.config import parse_config
from keras_idea_cli.run_files import read_run_config, read_trainings

ELASTIC = """
[model]
hidden_dim = 256

[budget]
steps = 600

[elastic]
widths = { small = 0.25, medium = 32 }
"""


def test_what_it_is():
    config = parse_config(ELASTIC)
    assert config.elastic.neurons(64) == {"full": 64, "small": 16, "medium": 32}
    assert config.budget.total_steps == 600 and not config.run.compare_from_scratch
    assert config.model.sizes_at_end(config.model.sizes_at_start).neurons == 256
    longer = config.with_extension(100)
    assert longer.budget.total_steps == 700 and not longer.changes_from(config)


def test_a_budget_by_default():
    assert parse_config(ELASTIC.replace("steps = 600", "")).budget.steps == 1000


def test_its_own_description_is_read_again(tmp_path):
    more = "begin_step = 100\nsample = { small = 0.25, medium = 0.25, full = 0.5 }\n"
    config = parse_config(f"{ELASTIC}{more}seed = 3\n", name="run")
    assert parse_config(config.to_toml()) == config
    assert "[pruning]" not in config.to_toml()
    assert "widths" not in parse_config("").to_toml()
    (tmp_path / "config.toml").write_text(config.to_toml())
    read = read_run_config(tmp_path / "config.toml")
    (training,) = read_trainings(tmp_path, read)
    assert training.ends == {"wide": 100, "all widths": 600} and training.total == 600


# What is wrong: what is added or replaced, and what the message must say.
REFUSED = {
    "pruning": (
        "[pruning]\nmethod = 'random'",
        "`pruning.method` and .elastic. cannot both be given: .* prunes nothing.*"
        "Received: method='random'. Delete the table",
    ),
    "a pruned width": (
        ("hidden_dim = 256", "hidden_dim = 256\ntarget_dim = 16"),
        "`model.target_dim` and .elastic. cannot .*Received: target_dim=16. Delete",
    ),
    "stages": (
        ("steps = 600", "steps = 600\nprune_steps = 100"),
        "`budget.prune_steps` and .elastic. cannot .*Set `budget.steps`, all steps",
    ),
    "steps without widths": (
        ("widths = { small = 0.25, medium = 32 }", ""),
        "`budget.steps` is for a run with .elastic.",
    ),
    "keys without widths": (
        ("widths = { small = 0.25, medium = 32 }", "seed = 1"),
        r"\[elastic\] needs `widths`.*Received: seed=1. Set `elastic.widths`",
    ),
    "a width by layers": (
        ("0.25", "{ ffn_0 = 4 }"),
        "`elastic.widths.small` must be one number for all FFNs.*ElasticCallback",
    ),
    "a share above 1": (("0.25", "1.5"), r"\[elastic\] `widths\['small'\]` must be"),
    "no name": (("small", "full"), r"\[elastic\] Names of `widths` must be words"),
    "no width": (("{ small = 0.25, medium = 32 }", "{}"), "must be a dict of names"),
    "unknown key": ("width = 3", "Unknown key in .elastic.: 'width'. Did you mean"),
    "unknown sample": ("sample = 'trun'", "`elastic.sample` must be .*mean 'turn'"),
    "odds of another": (
        "sample = { large = 1.0 }",
        r"\[elastic\] `sample` names a width that is not in `widths`. .*'large'",
    ),
    "odds": ("sample = { small = 0.5, medium = 0.6 }", "whose sum is 1"),
    "another teacher": ("teacher = 'runs/wide'", "`elastic.teacher` must be .*'self'"),
    "two teachers": (
        "teacher = 'self'\n[distillation]\nteacher = 'runs/wide'",
        "`distillation.teacher` and elastic.teacher='self' cannot both be given",
    ),
    "a begin that never comes": (
        "begin_step = 600",
        "`elastic.begin_step` must be below budget.steps=600.*Set `begin_step` to 150",
    ),
    "a validation between": (
        "[run]\nvalidate_every = 70",
        "`run.validate_every` must divide budget.steps, 600 steps.*to 560 or 630",
    ),
    "a rival": (
        "[run]\ncompare_from_scratch = true",
        "`run.compare_from_scratch` compares with one narrow model",
    ),
    "a rival without the teacher": (
        "[distillation]\nteacher = 'runs/wide'\ncompare_without = true",
        "`distillation.compare_without` compares with one narrow model",
    ),
    "a second warm-up": ("[optimizer]\nrewarm = 0.5", "`optimizer.rewarm` is for a"),
    "a mesh": (
        "[distribution]\nmesh = { data = 2 }",
        "`distribution.mesh` and .elastic. cannot both be given: .*not compared",
    ),
    "computed again, in a sandwich": (
        "sample = 'sandwich'\n[run]\nrematerialize = true",
        "`run.rematerialize` cannot be true with elastic.sample='sandwich'",
    ),
    "computed again, with itself": (
        "teacher = 'self'\n[run]\nrematerialize = true",
        "`run.rematerialize` cannot be true with elastic.teacher='self'",
    ),
}


@pytest.mark.parametrize("edit, match", REFUSED.values(), ids=REFUSED.keys())
def test_refused_at_once(edit, match):
    text = ELASTIC + edit if isinstance(edit, str) else ELASTIC.replace(*edit)
    with pytest.raises(ConfigError, match=match):
        parse_config(text)


@pytest.mark.parametrize("full, said", [(32, "more|the same as 'full'"), (16, "which")])
def test_widths_that_the_model_does_not_have(full, said):
    with pytest.raises(ConfigError, match=rf"`elastic.widths` must be .*({said})"):
        parse_config(ELASTIC).elastic.neurons(full)


def test_two_widths_that_are_one():
    config = parse_config(ELASTIC.replace("32", "0.26"))
    with pytest.raises(ConfigError, match="medium=0.26, which are 4, the same as 'sm"):
        config.elastic.neurons(16)
