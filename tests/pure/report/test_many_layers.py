"""The plots of models of few and many layers, of several kinds: can they be read?"""

import itertools

import matplotlib.figure
import matplotlib.text
import numpy as np
import pytest

from keras_idea.callbacks.monitor.bands import bands
from keras_idea.callbacks.monitor.neuron_image import neuron_image
from keras_idea.callbacks.monitor.neuron_lives import rank_levels
from keras_idea.lm.report.picture import draw_run
from keras_idea.report import NeuronLives, TrainingCurve

STEPS = 200
STAGES = [("wide", 0, 100), ("pruning", 100, 150), ("recovery", 150, STEPS)]
READINGS = np.arange(5, 151, 5)


def curve(name, wide, narrow, kv_groups=None):
    steps = np.arange(1, STEPS + 1)
    return TrainingCurve(
        name,
        steps,
        loss=2.0 + 4.0 * np.exp(-steps / 20),
        learning_rate=np.linspace(5e-4, 0.0, STEPS),
        width=np.where(steps < 120, wide, narrow),
        validation={step: 2.0 + 1 / step for step in (60, 120, 150, 180, 200)},
        kv_groups=kv_groups and np.where(steps < 120, *kv_groups),
    )


def lives(layer, units, kept, kind="neurons", steps=READINGS):
    """Units that are pruned one after another, the lowest index first."""
    importance = np.tile(np.arange(units, dtype="float32"), (len(steps), 1))
    pruned = np.linspace(0, units - kept, len(steps)).round()[:, None]
    importance[np.arange(units) < pruned] = np.nan
    return NeuronLives(layer, steps, rank_levels(importance), kind)


def model(blocks, heads=False, experts=False):
    """What was read of a model, with the names that KerasHub gives."""
    layers, kv_groups = [], []
    for i in range(blocks):
        block = f"transformer_layer_{i}"
        if experts:
            mixture = f"{block}/qwen_sparse_moe_block_{i}"
            layers.append(lives(f"{mixture}/experts", 8 * 352, 8 * 128))
            block = f"{mixture}/shared_expert_dense"
        layers.append(lives(block, 1536, 1024))
        if heads:
            name = f"transformer_layer_{i}/self_attention"
            kv_groups.append(lives(name, 8, 4, "kv_groups"))
    return layers + kv_groups


MODELS = {
    "2 blocks": model(2),
    "2 blocks, heads": model(2, heads=True),
    "2 blocks of experts": model(2, heads=True, experts=True),
    "12 blocks": model(12),
    "30 blocks": model(30),
    "30 blocks of experts": model(30, heads=True, experts=True),
    "80 blocks": model(80),
    "80 blocks, heads": model(80, heads=True),
    "a long name": [lives("a_layer" * 60, 64, 32), lives("$x_", 1, 1)],
}


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draws a run; gives what was saved and the boxes of all text that is in it."""
    figures, texts = [], []
    save, draw_text = matplotlib.figure.Figure.savefig, matplotlib.text.Text.draw

    def keep(figure, *args, **kwargs):
        figures.append(figure)
        save(figure, *args, **kwargs)

    def note(text, renderer):
        if text.get_visible() and text.get_text().strip():
            texts.append((text.get_text(), text.get_window_extent(renderer)))
        draw_text(text, renderer)

    def draw(neurons, widths=(1536, 1024), kv_groups=None, stages=STAGES):
        path = tmp_path / "run.png"
        curves = [curve("pruned", *widths, kv_groups), curve("from scratch", *widths)]
        monkeypatch.setattr(matplotlib.figure.Figure, "savefig", keep)
        draw_run(path, curves, neurons, stages, (150,), "Wide to narrow, in one fit")
        monkeypatch.setattr(matplotlib.text.Text, "draw", note)
        figures[-1].canvas.draw()
        return figures[-1], texts, path.stat().st_size

    return draw


def overlaps(texts):
    """Pairs of texts that share more than a pixel, and texts that are cut off."""
    pairs = itertools.combinations(texts, 2)
    return [
        (first, second)
        for (first, a), (second, b) in pairs
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1
        and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]


def cut_off(texts, figure):
    box = figure.bbox
    return [
        text
        for text, a in texts
        if a.x0 < 0 or a.y0 < 0 or a.x1 > box.x1 or a.y1 > box.y1
    ]


@pytest.mark.parametrize("name", MODELS)
def test_text_never_overlaps_and_curves_keep_their_size(drawn, name):
    neurons = MODELS[name]
    heads = (8, 4) if any(layer.kind == "kv_groups" for layer in neurons) else None
    figure, texts, size = drawn(neurons, kv_groups=heads)
    assert overlaps(texts) == [] and cut_off(texts, figure) == []
    rate, width, loss, close_up, first_map, *_ = figure.axes
    heights = [axis.get_window_extent().height for axis in (rate, width, close_up)]
    assert min(heights) > 165 and loss.get_window_extent().height > 360
    # No heat map is a thread, and all of them do not make the plot a tower.
    assert first_map.get_window_extent().height > 32
    assert 1600 <= figure.bbox.height < 2000 and size < 500_000


@pytest.mark.parametrize(
    ("widths", "heads"),
    [((1536, 1472), None), ((8192, 128), (40, 38)), ((64, 64), (8, 8)), ((2, 1), None)],
)
def test_ticks_of_near_widths_do_not_overlap(drawn, widths, heads):
    _, texts, _ = drawn(model(2), widths, heads)
    assert overlaps(texts) == []
    shown = [text for text, _ in texts]
    assert all(str(units) in shown for units in (*widths, *(heads or ())))


@pytest.mark.parametrize(("begin", "end"), [(0, 20), (4, 24), (24, 40), (90, 100)])
def test_names_of_short_stages_do_not_overlap(drawn, begin, end):
    stages = [("wide", 0, begin), ("pruning", begin, end), ("recovery", end, STEPS)]
    _, texts, _ = drawn(model(2), stages=stages)
    assert overlaps(texts) == []
    assert f"recovery: {STEPS - end} steps" in [text for text, _ in texts]


class TestBands:
    def test_of_few_layers_each_has_its_own(self):
        layers = model(6, heads=True)
        found = bands(layers)
        assert [band.lives for band in found] == layers
        assert found[6].title == "transformer_layer_0/self_attention: 8 key/value heads"
        assert found[0].height > found[6].height

    def test_of_many_layers_each_kind_has_one(self):
        neurons, heads = bands(model(30, heads=True, experts=True))
        assert neurons.title == (
            f"60 FFNs together: {30 * (1536 + 8 * 352):,} neurons, "
            "sorted by pruning step"
        )
        assert heads.title == "30 attention layers together: 240 key/value heads"
        pruned = (neurons.lives.levels == 0).mean(axis=1)
        # Each layer counts alike, however many neurons it has.
        expected = [
            np.mean([1 - 1024 / 1536, 1 - 128 / 352]) * i / (len(READINGS) - 1)
            for i in range(len(READINGS))
        ]
        np.testing.assert_allclose(pruned, expected, atol=0.004)
        np.testing.assert_array_equal((heads.lives.levels > 0).sum(axis=1)[-1], 30 * 4)

    def test_one_layer_of_a_kind_among_many_of_another(self):
        *_, alone = bands([*model(30), lives("attention", 8, 4, "kv_groups")])
        assert alone.title == "1 attention layer together: 8 key/value heads"

    def test_layers_read_at_other_steps(self):
        """A reading reaches back to the one before; the last one is the state since."""
        early = [lives(f"early_{i}", 8, 4, steps=np.array([5, 10])) for i in range(7)]
        late = [lives(f"late_{i}", 8, 2, steps=np.array([5, 15])) for i in range(7)]
        (band,) = bands(early + late)
        assert band.lives.steps.tolist() == [5, 10, 15]
        pruned = (band.lives.levels == 0).sum(axis=1)
        assert pruned.tolist() == [0, 7 * (4 + 6), 7 * (4 + 6)]

    def test_many_neurons_are_a_sample(self):
        (band,) = bands([lives(f"ffn_{i}", 8192, 4096) for i in range(80)])
        assert band.lives.levels.shape == (len(READINGS), 80 * 512)


@pytest.mark.parametrize("name", MODELS)
def test_images_for_tensorboard_stay_small(name):
    pixels = neuron_image(MODELS[name])
    assert pixels.shape[1] == 640 and pixels.shape[0] <= 480 + 12 * 20
    # Dark text on white: a title above each heat map.
    titles = (pixels[:, -1] == 255).all(axis=-1)
    assert titles.sum() == 20 * len(bands(MODELS[name]))
    assert (pixels[:20] < 64).all(axis=-1).sum() > 50
