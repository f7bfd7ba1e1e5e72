"""Criteria of one shot against NumPy in float64, and their page against its cells."""

import itertools
import json
import math

import numpy as np
import pytest

from benchmarks.checkpoints import criteria
from benchmarks.checkpoints.texts import HELD_OUT
from benchmarks.record import REPOSITORY
from tests.support.helpers import to_numpy

RESULTS = REPOSITORY / "benchmarks" / "results"
rng = np.random.default_rng(0)
SAMPLES, TOKENS, NEURONS = 5, 12, 7
HIDDEN = rng.standard_normal((SAMPLES, TOKENS, NEURONS)) + rng.standard_normal(NEURONS)
HIDDEN[..., 5] = HIDDEN[..., 1] + 0.1 * HIDDEN[..., 5]
KERNEL = rng.standard_normal((NEURONS, 3))
UP = rng.standard_normal((NEURONS, 4))
ROWS = HIDDEN.reshape(-1, NEURONS)


def found():
    sums, samples = criteria._sums(HIDDEN.astype("float32"), None)
    return criteria._of_sums(to_numpy(sums).astype("float64"), float(samples))


@pytest.mark.parametrize(
    "name, expected",
    [
        ("activation", np.sqrt(np.square(HIDDEN).sum(axis=1)).mean(axis=0)),
        (
            "Wanda-sp",
            np.sqrt(np.square(ROWS).mean(0) * np.square(KERNEL).sum(axis=1)),
        ),
        ("FLAP", ROWS.var(axis=0) * np.square(KERNEL).sum(axis=1)),
        (
            "optipfair",
            np.sqrt(np.square(ROWS).mean(0))
            * (
                (UP.max(1) - UP.min(1)) / (UP.max(1) - UP.min(1)).max()
                + (KERNEL.max(1) + abs(KERNEL.min(1)))
                / (KERNEL.max(1) + abs(KERNEL.min(1))).max()
            ),
        ),
    ],
)
def test_a_score(name, expected):
    scores = criteria.CRITERIA[name](found(), [UP, KERNEL])
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_obs_takes_out_what_least_squares_misses_least():
    """The neuron without which `lstsq` of all others has the smallest error."""
    damping = criteria.DAMPING * np.square(ROWS).mean()
    known = np.r_[ROWS / np.sqrt(len(ROWS)), np.sqrt(damping) * np.eye(NEURONS)]
    left, kernel, order = list(range(NEURONS)), KERNEL, []

    def fit(kept):
        target = known[:, left] @ kernel
        new = np.linalg.lstsq(known[:, kept], target, rcond=None)[0]
        return new, np.square(target - known[:, kept] @ new).sum()

    while left:
        fits = {i: fit([k for k in left if k != i]) for i in left}
        gone = min(fits, key=lambda i: fits[i][1])
        kernel = fits[gone][0]
        order.append(gone)
        left = [k for k in left if k != gone]
    scores = criteria.obs(found(), [KERNEL], at_once=1)
    assert np.argsort(scores).tolist() == order
    # Two at once: the second of a pair is judged beside the first.
    assert sorted(criteria.obs(found(), [KERNEL], at_once=2)) == list(range(NEURONS))


def test_the_page(tmp_path):
    criteria.write(RESULTS / "checkpoints" / "criteria", tmp_path)
    written = (tmp_path / "criteria.md").read_text("utf-8")
    assert written == (RESULTS / "criteria.md").read_text("utf-8")


def test_each_cell_is_of_the_plan():
    paths = (RESULTS / "checkpoints" / "criteria").glob("*/*.json")
    names = {cell.name: cell for cell in criteria.CELLS}
    for path in paths:
        recorded = json.loads(path.read_text())
        cell = names[path.stem]
        assert {key: recorded[key] for key in vars(cell)} == vars(cell)


def test_what_the_settings_say():
    """Of the four without a refit, calibrated on OpenWebText, at two thirds."""
    folder = RESULTS / "checkpoints" / "criteria" / "smollm2"
    activation = json.loads(
        (folder.parents[1] / "smollm2" / "0.67-activation.json").read_text()
    )
    wanda, flap, obs = (
        json.loads((folder / f"0.67-{name}-openwebtext.json").read_text())
        for name in ("Wanda-sp", "FLAP", "OBS")
    )
    for text in HELD_OUT:
        assert activation[text] < min(flap[text], obs[text])
    assert wanda["openwebtext"] < activation["openwebtext"]
    assert wanda["wikitext2"] > activation["wikitext2"]


def test_what_weighing_gives():
    """Nats per token less than by activations alone: at least, and at most."""
    folder = RESULTS / "checkpoints"
    gains = {"": [], "+refit": []}
    for share, refit, text in itertools.product((0.8, 0.67, 0.5), gains, HELD_OUT):
        alone = folder / "smollm2" / f"{share}-activation{refit}.json"
        weighed = folder / f"criteria/smollm2/{share}-optipfair-openwebtext{refit}.json"
        one, other = (json.loads(p.read_text())[text] for p in (alone, weighed))
        gains[refit].append(one - other)
    said = {name: (min(found), max(found)) for name, found in gains.items()}
    assert said[""] == pytest.approx((0.019, 0.101), abs=5e-4)
    assert said["+refit"] == pytest.approx((0.029, 0.120), abs=5e-4)
    for refit, expected in (("", [0.083, 0.089]), ("+refit", [0.066, 0.078])):
        alone = folder / f"gemma3/0.67-activation{refit}.json"
        weighed = folder / f"criteria/gemma3/0.67-optipfair-openwebtext{refit}.json"
        one, other = (json.loads(path.read_text()) for path in (alone, weighed))
        left = [one[text] - other[text] for text in HELD_OUT]
        assert left == pytest.approx(expected, abs=5e-4)
    left = []
    for refit, text in itertools.product(gains, HELD_OUT):
        cells = (
            folder / f"criteria/smollm2/0.67-{how}-wikitext2{refit}.json"
            for how in ("activation", "optipfair")
        )
        one, other = (json.loads(path.read_text())[text] for path in cells)
        left.append(one - other)
    assert (min(left), max(left)) == pytest.approx((0.027, 0.083), abs=5e-4)
    recovered = (
        json.loads((folder / "smollm2" / f"0.67-{how}-65536-0.0003-0.json").read_text())
        for how in ("refit+logits", "refit_by_weights+logits")
    )
    one, other = recovered
    left = [one[text] - other[text] for text in HELD_OUT]
    assert left == pytest.approx([0.019, 0.024], abs=5e-4)


def test_what_the_text_of_the_calibration_does():
    """Perplexities of the page, on each text: where the ranking is by one, or other."""
    page = (REPOSITORY / "docs" / "recommended_settings.md").read_text("utf-8")
    folder = RESULTS / "checkpoints" / "criteria" / "smollm2"
    for text in HELD_OUT:
        cell = json.loads((folder / f"0.67-optipfair-{text}+refit.json").read_text())
        found = " / ".join(f"{math.exp(cell[name]):.1f}" for name in HELD_OUT)
        assert found in page
