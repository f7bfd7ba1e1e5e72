"""Shared prefixes: a run that begins with a checkpoint is the uninterrupted run."""

import dataclasses

import keras
import numpy as np
import pytest

import keras_idea as ki
from benchmarks.paper import carry_out as module
from benchmarks.paper.build import new_model
from benchmarks.paper.carry_out import reach_end
from benchmarks.paper.cell import Cell
from benchmarks.paper.checkpoint import (
    load_checkpoint,
    restore_optimizer,
    restore_weights,
    save_checkpoint,
)
from benchmarks.paper.plan import plan
from tests.paper.paper_micro import laboratory

SEED = 3


def kernels(weights):
    """The trained weights alone, sorted by path."""
    return {k: v for k, v in sorted(weights.items()) if "neuron_state" not in k}


def assert_same(one, other, tolerance):
    one, other = kernels(one), kernels(other)
    assert list(one) == list(other)
    for path in one:
        np.testing.assert_allclose(
            one[path], other[path], atol=tolerance, rtol=0, err_msg=path
        )


def uninterrupted(lab, cell):
    """One model, one `fit`, one callback: no stage, no checkpoint."""
    scale = lab.scale
    keras.utils.set_random_seed(SEED)
    model = new_model(scale, scale.width(cell.hidden), (0.4, "mean", "max"))
    rate = ki.CosineDecay(3e-3, 3e-5, 12, warmup_steps=2, start_step=1)
    model.compile(
        optimizer=keras.optimizers.AdamW(rate, weight_decay=0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    batches = lab.corpus.batches(seed=SEED, batch_size=2, length=8)
    prune = ki.IdeaPruneCallback(12, begin_step=6, prune_steps=3)
    model.fit(batches, steps_per_epoch=12, callbacks=[prune], verbose=0, shuffle=False)
    return {v.path: keras.ops.convert_to_numpy(v.value) for v in model.variables}


def test_a_shared_prefix_equals_one_uninterrupted_fit(tmp_path, monkeypatch):
    lab = laboratory(tmp_path)
    expected = uninterrupted(lab, Cell())
    enlarge, prune = plan(Cell(), lab.scale)

    # In two pieces: up to step 2, as a cell with a shorter stage leaves it.
    shorter = dataclasses.replace(enlarge, steps=2)
    reach_end(shorter, lab, SEED)
    runs = []
    run = module.run_stage
    monkeypatch.setattr(
        module, "run_stage", lambda stage, *a: runs.append(stage) or run(stage, *a)
    )
    middle = reach_end(enlarge, lab, SEED)
    assert [(stage.steps, stage.first_batch) for stage in runs] == [(4, 2)]
    assert middle.iterations == 6 and middle.width == 32
    end = reach_end(prune, lab, SEED, middle)
    assert end.iterations == 12 and end.width == 12
    assert_same(end.weights, expected, tolerance=2e-6)
    steps = end.record["curve"]["step"]
    assert steps == [2, 4, 6, 8, 10, 12] and end.record["steps"] == 12

    # Found again, and not run again.
    runs.clear()
    again = reach_end(enlarge, lab, SEED)
    assert not runs
    assert_same(again.weights, middle.weights, tolerance=0)
    for one, other in zip(again.slots, middle.slots, strict=True):
        np.testing.assert_array_equal(one, other)
    # Scores and mask come along.
    states = {p.split("/")[-1]: p for p in middle.weights if "neuron_state" in p}
    assert set(states) == {"scores", "mask", "original_index"}
    assert middle.weights[states["scores"]].min() > 0

    # Another seed, another schedule, other scores: other prefixes.
    decayed = plan(Cell(pipeline="naive"), lab.scale)[0]
    other = plan(Cell(ema_decay=0.8), lab.scale)[0]
    assert lab.store.nearest_prefix(enlarge, SEED) is not None
    assert lab.store.nearest_prefix(enlarge, SEED + 1) is None
    assert lab.store.nearest_prefix(decayed, SEED) is None
    assert lab.store.nearest_prefix(other, SEED) is None
    matrix = plan(Cell(matrix_reduce="mean"), lab.scale)[0]
    assert lab.store.nearest_prefix(matrix, SEED) is not None  # no state of its own


def test_checkpoints_are_files(tmp_path):
    lab = laboratory(tmp_path)
    stage = dataclasses.replace(plan(Cell(), lab.scale)[0], steps=1)
    made = reach_end(stage, lab, SEED)
    path = tmp_path / "one" / "1.npz"
    save_checkpoint(path, made)
    assert [entry.name for entry in path.parent.iterdir()] == ["1.npz"]
    read = load_checkpoint(path)
    assert read.record == made.record and read.iterations == 1

    # A fresh start takes the weights alone: scores and count begin at zero.
    model = new_model(lab.scale, stage.width, stage.scores)
    restore_weights(model, read, scores=False)
    ffn = ki.find_ffns(model)[0]
    assert not np.any(keras.ops.convert_to_numpy(ffn.scores.value))
    restore_weights(model, read)
    assert np.any(keras.ops.convert_to_numpy(ffn.scores.value))

    narrow = new_model(lab.scale, 12)
    with pytest.raises(ValueError, match="an array .16, 32. for the variable .*up_k"):
        restore_weights(narrow, read)
    with pytest.raises(ValueError, match="variables of the optimizer, but SGD has"):
        restore_optimizer(keras.optimizers.SGD(0.1), model, read)
