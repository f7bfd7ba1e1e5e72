"""Cells as data, their stages, and the learning rate at every step of all of them."""

import collections
import dataclasses
import math

import keras
import numpy as np
import pytest

from benchmarks.paper.cell import Cell
from benchmarks.paper.methods import METHODS
from benchmarks.paper.plan import plan
from benchmarks.paper.rate import Rate
from benchmarks.paper.scale import SCALES
from benchmarks.paper.tables import TABLES
from tests.support.paper_micro import MICRO

TINY = SCALES["tiny"]
ALL_CELLS = {row.cell for table in TABLES.values() for row in table.rows}
PEAK, END, WARMUP = 3e-3, 3e-5, 50


def eta(t, total, warmup=WARMUP):
    """The paper's formula, as PAPER.md prints it."""
    if t <= warmup:
        return t / warmup * PEAK
    c1, c2 = (PEAK - END) / 2, (PEAK + END) / 2
    return c1 * math.cos((t - warmup) / total * math.pi) + c2


def stable(t, total, warmup=WARMUP):
    """Warm-up, stable, and a linear decay over the last fifth."""
    if t <= warmup:
        return t / warmup * PEAK
    decay = total // 5
    return PEAK + (END - PEAK) * max(0, t - (total - decay)) / decay


def curve(*stretches, formula=eta):
    """The rate of every step from (first t, last t, T) of each stretch."""
    return [
        formula(t, total, min(WARMUP, total // 4))
        for first, last, total in stretches
        for t in range(first, last + 1)
    ]


# Name, cell, the rate of every step of the run: alpha, beta and eta of the paper.
CURVES = [
    ("scratch", Cell(pipeline="scratch"), curve((1, 1500, 1500))),
    ("half", Cell(pipeline="scratch", budget=0.5), curve((1, 750, 750))),
    ("stopped", Cell(pipeline="scratch", stop=0.5), curve((1, 750, 1500))),
    ("integrated", Cell(), curve((1, 1500, 1500))),
    ("integrated one shot", Cell(method="random"), curve((1, 1500, 1500))),
    ("integrated mask", Cell(method="learned_mask"), curve((1, 1500, 1500))),
    (
        "naive",
        Cell(pipeline="naive"),
        curve((1, 750, 750), (1, 375, 375), (1, 375, 375)),
    ),
    (
        "naive mask",
        Cell(pipeline="naive", method="learned_mask", prune_share=0.2),
        curve((1, 750, 750), (1, 150, 150), (1, 600, 600)),
    ),
    (
        "naive one shot",
        Cell(pipeline="naive", method="activation"),
        curve((1, 750, 750), (1, 750, 750)),
    ),
    (
        "intermediate restarted",
        Cell(learning_rate="restarted"),
        curve((1, 750, 1500), (1, 750, 750)),
    ),
    (
        "decayed resumed",
        Cell(initialisation="decayed"),
        curve((1, 750, 750), (751, 1500, 1500)),
    ),
    (
        "decayed restarted",
        Cell(initialisation="decayed", learning_rate="restarted"),
        curve((1, 750, 750), (1, 750, 750)),
    ),
    ("other split", Cell(enlarge_share=0.1), curve((1, 1500, 1500))),
    ("stable", Cell(schedule="stable"), curve((1, 1500, 1500), formula=stable)),
    (
        "naive stable",
        Cell(pipeline="naive", schedule="stable", enlarge_share=0.2),
        curve((1, 300, 300), (1, 600, 600), (1, 600, 600), formula=stable),
    ),
]


@pytest.mark.parametrize(("cell", "expected"), [c[1:] for c in CURVES],
                         ids=[c[0] for c in CURVES])  # fmt: skip
def test_the_rate_of_every_step_is_the_papers(cell, expected):
    """As the optimizer asks for it: by its iterations, carried on or anew."""
    rates, iterations = [], 0
    for stage in plan(cell, TINY):
        iterations = 0 if stage.fresh else iterations
        schedule = stage.rate.schedule(iterations)
        rates += [schedule(iterations + i) for i in range(stage.steps)]
        iterations += stage.steps
        anew = stage.rate.schedule()  # as the curve of the stage asks for it
        assert [anew(i) for i in range(stage.steps)] == rates[-stage.steps :]
    np.testing.assert_allclose(rates, expected, rtol=1e-9)


def test_the_schedule_is_the_same_for_a_tensor():
    rate = Rate("cosine", PEAK, END, 1500, WARMUP, first=751)
    for iterations in (0, 750):
        schedule = rate.schedule(iterations)
        for step in (0, 1, 749):
            tensor = keras.ops.convert_to_tensor(iterations + step, dtype="int32")
            assert float(schedule(tensor)) == pytest.approx(
                eta(751 + step, 1500), rel=1e-6
            )
        copy = type(schedule).from_config(schedule.get_config())
        assert copy(iterations) == schedule(iterations)


@pytest.mark.parametrize("scale", [TINY, MICRO, SCALES["gpu"]], ids=lambda s: s.name)
def test_every_plan_reads_all_batches_in_order(scale):
    for cell in ALL_CELLS:
        stages = plan(cell, scale)
        assert [stage.first_batch for stage in stages] == [
            sum(before.steps for before in stages[:i]) for i in range(len(stages))
        ]
        assert stages[0].fresh and all(stage.steps >= 1 for stage in stages)
        if isinstance(cell.budget, float) and cell.stop == 1.0:
            total = sum(stage.steps for stage in stages)
            assert total == round(cell.budget * scale.total_steps)


def test_every_pruning_ends_at_the_target_within_its_stage():
    for cell in ALL_CELLS:
        stages = plan(cell, TINY)
        pruning = [stage for stage in stages if stage.pruning]
        assert len(pruning) == (cell.pipeline != "scratch")
        for stage in pruning:
            assert stage.pruning.end <= stage.steps
            assert stage.pruning.target == TINY.width(cell.target) < stage.width


def test_stages_of_the_pipelines():
    stages = {
        name: plan(Cell(pipeline=pipeline, method=method), TINY)
        for name, pipeline, method in (
            ("three", "naive", "sensitivity"),
            ("two", "naive", "random"),
            ("one fit", "integrated", "sensitivity"),
        )
    }
    names = {name: [stage.name for stage in of] for name, of in stages.items()}
    assert names == {
        "three": ["enlarge", "prune", "recover"],
        "two": ["enlarge", "prune and recover"],
        "one fit": ["enlarge", "prune and recover"],
    }
    assert all(stage.fresh for stage in (*stages["three"], *stages["two"]))
    assert not stages["one fit"][1].fresh
    # T_w: the naive pipeline prunes after the warm-up, and is done with the stage.
    prune = stages["three"][1].pruning
    assert (prune.begin, prune.end) == (50, 375)
    assert stages["one fit"][1].pruning.begin == 0
    assert stages["three"][2].width == 192 and stages["three"][2].scores is None


def test_shared_prefixes_are_few():
    """One enlarged run serves every cell that starts from its checkpoint."""
    for number, expected in ((1, 2), (2, 2), (3, 2), (7, 1), (5, 5)):
        first = [plan(row.cell, TINY)[0] for row in TABLES[number].rows]
        runs = {
            (stage.width, stage.rate, stage.optimizer) for stage in first
            if stage.shared
        }  # fmt: skip
        assert len(runs) == expected


def test_distillation_has_the_fully_trained_teacher():
    student = plan(Cell(distillation=True), TINY)
    assert student[0].teacher is None
    teacher = student[1].teacher
    assert (teacher.steps, teacher.width, teacher.shared) == (1500, 512, True)
    # The same run as the student's own beginning, carried on to its end.
    assert teacher.rate == student[0].rate


@pytest.mark.parametrize("number", TABLES)
def test_tables_are_whole(number):
    rows = TABLES[number].rows
    names = collections.Counter(row.name for row in rows)
    assert max(names.values()) == 1
    for row in rows:
        assert row.reference is None or (row.reference in names)
        assert row.reference != row.name


def test_every_method_is_in_the_tables():
    assert {cell.method for cell in ALL_CELLS} == set(METHODS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pipeline": "other"}, "`pipeline` must be one of 'scratch', 'naive'"),
        ({"method": "magnitude"}, "`method` must be one of 'sensitivity', 'random'"),
        ({"pipeline": "naive", "learning_rate": "resumed"}, "is decayed and restarted"),
        ({"target": 3.0}, "`target` must be a number in"),
        ({"enlarge_share": 0}, "`enlarge_share` must be a number in"),
        ({"budget": -1.0}, "`budget` must be a number in"),
        ({"schedule": "linear"}, "`schedule` must be one of 'cosine', 'stable'"),
    ],
)
def test_cells_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        Cell(**changes)


def test_a_cell_is_frozen_and_hashable():
    assert Cell() == dataclasses.replace(Cell(), method="sensitivity")
    with pytest.raises(dataclasses.FrozenInstanceError):
        Cell().method = "random"


def test_every_optimizer_has_rates_of_its_own():
    """Lion takes a tenth of AdamW's, Adafactor ten times as much."""
    for cell in (Cell(), Cell(pipeline="scratch")):
        for name, factor in {"lion": 0.1, "muon": 1.0, "adafactor": 10.0}.items():
            other = dataclasses.replace(cell, optimizer=name)
            for stage, plain in zip(plan(other, TINY), plan(cell, TINY), strict=True):
                assert stage.rate.peak == pytest.approx(factor * plain.rate.peak)
                assert stage.rate.end == pytest.approx(factor * plain.rate.end)
