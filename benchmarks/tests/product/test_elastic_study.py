"""Several widths in one run: what the ways cost, and small ones carried out."""

import argparse
import json
import math

import keras
import numpy as np
import pytest

import keras_idea as ki
from benchmarks.paper import elastic as command
from benchmarks.paper.build import cross_entropy, new_model
from benchmarks.paper.elastic_ways import (
    Joint,
    all_name,
    draw_flops,
    each_name,
    joint_steps,
    paid_flops,
    ways,
)
from benchmarks.paper.family_plan import MAP_FAMILY, Family, Steps
from benchmarks.paper.flops import forward_flops, step_flops
from benchmarks.paper.nested_training import NestedFFN
from benchmarks.paper.study import TEXTS, text_of
from keras_idea.models import decoder
from tests.support.paper_micro import MICRO

SMALL = Family(MICRO, 24, (16, 12, 8), Steps(6, 4, 4), peaks=(1.0,))
ALL = ways(MAP_FAMILY)
JOINT = [name for name, way in ALL.items() if isinstance(way, Joint)]


def step(width):
    return step_flops(MAP_FAMILY.scale, width)


def test_what_a_step_costs():
    """The sum of what the models cost that it computes, and a teacher's forward."""
    forward = forward_flops(MAP_FAMILY.scale, 171)
    assert forward == step(171) / 3

    def cost(name, *drawn):
        return draw_flops(ALL[name], MAP_FAMILY, drawn)

    assert cost("turn", "w64") == step(64)
    assert cost("turn, self-teacher", "w114") == step(114) + forward
    assert cost("turn, self-teacher", "full") == step(171)
    every = ("full", "w64", "w114")
    for name in ("sandwich", "sandwich, self-teacher"):
        assert cost(name, *every) == step(171) + step(114) + step(64)


@pytest.mark.parametrize("name", JOINT)
def test_all_ways_cost_the_same(name):
    paid = paid_flops(MAP_FAMILY)
    alone, steps, spent = joint_steps(ALL[name], MAP_FAMILY, seed=0)
    assert 0 <= paid - spent < 3 * step(171)
    assert alone == (round(paid / step(171) / 4) if "sorted" in name else 0)
    assert alone < steps


def test_in_turn_as_many_steps_as_nested_has():
    _, steps, _ = joint_steps(ALL["turn"], MAP_FAMILY, seed=0)
    mean = (step(171) + step(114) + step(64)) / 3
    assert steps == pytest.approx(paid_flops(MAP_FAMILY) / mean, abs=3)


def test_in_turn_the_callback_takes_the_steps_of_nested_md():
    """Its code masks where the callback slices; here it has the callback's order."""
    ids = np.random.default_rng(1).integers(0, 256, (14, 9))
    nested = decoder(
        MICRO.decoder_config(24),
        ffn=lambda hidden_dim, **layer: NestedFFN((24, 8, 12), **layer),
        dtype="float32",
    )
    model, found = new_model(MICRO, 24), []
    for own, other in zip(
        model.trainable_variables, nested.trainable_variables, strict=True
    ):
        own.assign(keras.ops.convert_to_numpy(other))  # jax would share the array
    elastic = ki.ElasticCallback({"small": 8, "medium": 12})
    for each, callbacks in ((nested, []), (model, [elastic])):
        each.compile(keras.optimizers.AdamW(0.01), cross_entropy())
        given = {"batch_size": 2, "shuffle": False, "verbose": 0}
        each.fit(ids[:, :-1], ids[:, 1:], callbacks=callbacks, **given)
        found.append(list(map(keras.ops.convert_to_numpy, each.trainable_variables)))
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_small_ways_are_carried_out_once(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "text.txt").write_bytes(rng.integers(97, 105, 4000).astype("uint8"))
    given = ["--seeds", "2", "--text", str(tmp_path / "text.txt")]
    given += ["--output", str(tmp_path)]
    given += ["--runs", str(tmp_path / "runs"), "--shapes", "annealed", "--ways"]
    own = ["turn", "sandwich, self-teacher", "one run, branches"]
    names = [*own, each_name(8), all_name(16)]
    assert command.main([*given, *names], SMALL) == 0
    cells = json.loads((tmp_path / "cells.json").read_text())
    keys = [f"{n}: {s}, peak 1, annealed" for n in names for s in (100, 0, 1)]
    assert sorted(cells) == sorted(keys)
    for at, cell in cells.items():
        widths = {"16", "12", "8"} if not at.startswith("scratch") else set()
        assert set(cell["members"]) >= widths
        for record in cell["members"].values():
            assert math.isfinite(record["bits"]) and record["flops"] > 0
    page = (tmp_path / "elastic.md").read_text()
    assert "turn minus one run, branches" in page
    before = (tmp_path / "cells.json").stat().st_mtime_ns
    assert command.main([*given, *names], SMALL) == 0  # nothing is missing
    assert (tmp_path / "cells.json").stat().st_mtime_ns == before


def test_the_text_is_the_three_of_the_pages(tmp_path):
    """Further files beside them change neither the text nor what is held out."""
    for name in (*TEXTS[:2], "openwebtext"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(40 * f"of {name}. ")
    (tmp_path / TEXTS[2]).write_text(40 * "of Shakespeare. ")
    (tmp_path / "openwebtext/b.txt").write_text("more")
    corpus = text_of(argparse.Namespace(text=str(tmp_path)))
    read = corpus.train.tobytes() + corpus.validation.tobytes()
    assert b"openwebtext" not in read and b"more" not in read
    assert all(word in read for word in (b"of ptb", b"of wikitext2", b"of Shakes"))
