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
from benchmarks.paper.checkpoint import load_checkpoint
from benchmarks.paper.plan import plan
from keras_idea.errors import CheckpointError
from tests.support.paper_micro import laboratory

SEED = 3


def assert_same(one, other, tolerance):
    for array, expected in zip(one, other, strict=True):
        np.testing.assert_allclose(array, expected, atol=tolerance, rtol=0)


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
    weights = [v for v in model.variables if "neuron_state" not in v.path]
    return [keras.ops.convert_to_numpy(v.value) for v in weights]


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
    assert steps == [2, 4, 6, 8, 10, 12]

    # Found again, and not run again.
    runs.clear()
    again = reach_end(enlarge, lab, SEED)
    assert not runs
    assert again.facts == middle.facts and list(again.arrays) == list(middle.arrays)
    assert_same(again.arrays.values(), middle.arrays.values(), tolerance=0)
    # Scores and mask come along, and the optimizer's moments.
    others = [name for name in middle.arrays if name not in middle.facts["weights"]]
    states = {p.split("/")[-1]: p for p in others if p.startswith("model/")}
    assert set(states) == {"scores", "mask", "original_index"}
    assert middle.arrays[states["scores"]].min() > 0
    assert sum(p.startswith("optimizer/") for p in others) > 2 * len(middle.weights)

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
    made.save(tmp_path / "one")
    (saved,) = (tmp_path / "one").iterdir()
    assert saved.name.startswith("checkpoint-000001-step-00000001-")
    read = load_checkpoint(tmp_path / "one")
    assert read.facts == made.facts and read.iterations == 1
    assert load_checkpoint(tmp_path / "nowhere") is None

    # A fresh start takes the weights alone: scores and count begin at zero.
    model = new_model(lab.scale, stage.width, stage.scores)
    read.give_weights(model)
    ffn = ki.find_ffns(model)[0]
    assert not np.any(keras.ops.convert_to_numpy(ffn.scores.value))
    model.compile(keras.optimizers.AdamW(stage.rate.schedule()), "mse")
    read.restore(model)
    assert np.any(keras.ops.convert_to_numpy(ffn.scores.value))
    assert int(model.optimizer.iterations) == 1

    narrow = new_model(lab.scale, 12)
    with pytest.raises(ValueError, match=r"shapes .*\(16, 32\).* for weights .*16, 12"):
        read.give_weights(narrow)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    with pytest.raises(ValueError, match="state of the optimizer AdamW, but .* SGD"):
        read.restore(model)


def test_prefixes_of_earlier_versions_are_made_again(tmp_path):
    """They were files; a damaged folder is refused."""
    lab = laboratory(tmp_path)
    stage = dataclasses.replace(plan(Cell(), lab.scale)[0], steps=1)
    reach_end(stage, lab, SEED)
    [folder] = (tmp_path / "prefixes").iterdir()
    (folder / "1.npz").write_bytes(b"of an earlier version")
    assert lab.store.nearest_prefix(stage, SEED).iterations == 1
    [arrays] = folder.rglob("*.safetensors")
    arrays.write_bytes(arrays.read_bytes()[:-1])
    with (
        pytest.warns(UserWarning, match="is damaged and is ignored"),
        pytest.raises(CheckpointError, match="delete that folder to begin again"),
    ):
        lab.store.nearest_prefix(stage, SEED)
