"""Keras's FeatureDistillation recovers a model by the wide blocks' outputs.

The recipes of `docs/faq.md`: after `shrink` without labels, and in `fit` with them.
"""

import keras
import keras_hub
import numpy as np
import pytest

import keras_idea as ki
from tests.support import ROOT
from tests.support.block_chains import chain
from tests.support.helpers import set_random_weights, to_numpy
from tests.support.hub_models import tiny_lm

RATE = 0.01
FIT = {"batch_size": 16, "shuffle": False, "verbose": 0}
# All else is Keras's; this package has its callback and `shrink` in it.


def inside(model):
    """What has the blocks as layers of its own, and the blocks' names."""
    model = getattr(model, "backbone", model)
    named = ("transformer_layer", "decoder_block", "block_")
    return model, [b.name for b in model.layers if b.name.startswith(named)]


def outputs(model, x):
    """What each block returns, in float64."""
    model, names = inside(model)
    some = keras.Model(model.inputs, [model.get_layer(n).output for n in names])
    return [to_numpy(out).astype("float64") for out in some.predict(x, verbose=0)]


def recipe(question, after=False):
    """The FAQ's code, without `shrink` and `fit`: up to it, or what comes after it."""
    page = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    section = page.split(f"### {question}?")[1].split("\n### ")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    code = "\n".join(line for line in lines if not line.startswith("small ="))
    before, fit, rest = code.partition("distiller.fit")
    return rest.partition("\n")[2] if after else before


def follow(wide, narrow):
    """A compiled Distiller, as the FAQ makes it."""
    code = recipe("Can I recover a shrunk model without labels")
    if not hasattr(wide, "backbone"):
        code = code.replace(".backbone", "").replace("transformer_layer", "block_")
    names = {"keras": keras, "wide": wide, "small": narrow}
    exec(code, names)
    names["distiller"].optimizer.learning_rate = RATE
    return names["distiller"]


def made(kind, family="mistral"):
    """A wide model and inputs of it."""
    rng = np.random.default_rng(0)
    if kind == "a KerasHub task":
        ids = rng.integers(0, 32, (16, 8))
        inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
        return tiny_lm(family), inputs
    x = rng.standard_normal((16, 6, 12)).astype("float32")
    # A clone: the layers of `chain` have been called by another model, too.
    model = keras.models.clone_model(chain(2, sequential=kind == "sequential"))
    set_random_weights(model)
    return model, x


@pytest.mark.parametrize("kind", ["a KerasHub task", "functional", "sequential"])
def test_it_is_the_blocks_mean_squared_error_and_falls(kind):
    wide, x = made(kind)
    narrow = ki.shrink(wide, {"neurons": 0.5}, x)
    targets, before = outputs(wide, x), outputs(narrow, x)
    expected = sum(
        np.square(a - b).mean() for a, b in zip(targets, before, strict=True)
    )
    pair = follow(wide, narrow)
    weights = [to_numpy(v) for v in wide.variables]
    losses = pair.fit(x, epochs=8, **FIT).history["distillation_loss"]
    np.testing.assert_allclose(losses[0], expected, rtol=1e-4)

    after = outputs(narrow, x)
    left = sum(np.square(a - b).mean() for a, b in zip(targets, after, strict=True))
    assert left < 0.9 * expected
    for old, variable in zip(weights, wide.variables, strict=True):
        np.testing.assert_array_equal(old, to_numpy(variable))
    (width,) = {ffn.hidden_dim for ffn in ki.find_ffns(narrow)}
    assert 2 * width == ki.find_ffns(wide)[0].hidden_dim


def test_neurons_go_while_it_follows():
    wide, x = made("a KerasHub task")
    gradual, _ = made("a KerasHub task")
    pair = follow(wide, gradual)
    width = ki.find_ffns(wide)[0].hidden_dim
    # By activations: as long as both models are equal, the loss has no gradient.
    prune = ki.IdeaPruneCallback(0.5, 2, 4, method="activation")
    pair.fit(x, epochs=8, callbacks=[prune], **FIT)
    for ffn in ki.find_ffns(gradual):
        assert 2 * ffn.hidden_dim == width
    assert [ffn.hidden_dim for ffn in ki.find_ffns(wide)] == [width] * 2
    # One forward pass of the narrow arrays, through the extractor and without it.
    found = outputs(gradual, x)[-1]
    extractor = pair._student_feature_extractor
    seen = extractor.predict(x, verbose=0)[inside(gradual)[1][-1]]
    np.testing.assert_allclose(to_numpy(seen), found, atol=1e-5)


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.mark.parametrize("family", ["mistral", "gemma2"])
def test_all_three_losses_while_neurons_go(family, tmp_path, monkeypatch):
    """Text, the teacher's logits, and its blocks divided by their mean squares."""
    wide, x = made("a KerasHub task", family)
    model, _ = made("a KerasHub task", family)
    rng = np.random.default_rng(1)
    for variable in model.trainable_variables:
        noise = 0.1 * rng.standard_normal(variable.shape)
        variable.assign_add(noise.astype("float32"))
    y = np.roll(x["token_ids"], -1, axis=1)
    names = {"keras": keras, "ki": ki, "np": np, "wide": wide, "model": model, "x": x}
    code = recipe("What recovers a pruned checkpoint best")
    if family == "gemma2":  # whose logits are capped, and whose blocks have other names
        assert wide.backbone.final_logit_soft_cap
        code = code.replace("transformer_layer", "decoder_block")
    exec(code, names)
    distiller, flat = names["distiller"], names["flat"]
    theirs, ours = (
        to_numpy(m.predict(x, verbose=0)).astype("float64") for m in (wide, model)
    )
    np.testing.assert_allclose(flat(wide).predict(x, verbose=0), theirs, atol=1e-5)
    theirs, ours = map(log_softmax, (theirs, ours))
    text = -np.take_along_axis(ours, y[..., None], -1).mean()
    divergence = (np.exp(theirs) * (theirs - ours)).sum(-1).mean()
    blocks = sum(
        np.square(a - b).mean() / np.square(a).mean()
        for a, b in zip(outputs(wide, x), outputs(model, x), strict=True)
    )

    width = ki.find_ffns(wide)[0].hidden_dim
    prune = ki.IdeaPruneCallback(0.5, 0, 4)
    history = distiller.fit(x, y, epochs=6, callbacks=[prune], **FIT).history
    np.testing.assert_allclose(history["student_loss"][0], text, rtol=1e-4)
    followed = history["distillation_loss"][0]
    np.testing.assert_allclose(followed, divergence + blocks, rtol=1e-4)
    total = 0.5 * (text + divergence + blocks)
    np.testing.assert_allclose(history["loss"][0], total, rtol=1e-4)
    assert [2 * ffn.hidden_dim for ffn in ki.find_ffns(model)] == [width] * 2
    monkeypatch.chdir(tmp_path)
    exec(recipe("What recovers a pruned checkpoint best", after=True), names)
    own = model.predict(x, verbose=0)
    np.testing.assert_allclose(flat(model).predict(x, verbose=0), own, atol=1e-5)
    loaded = keras_hub.models.CausalLM.from_preset("narrow", preprocessor=None)
    told = [each.backbone.intermediate_dim for each in (loaded, wide)]
    assert 2 * told[0] == told[1]
    np.testing.assert_allclose(loaded.predict(x, verbose=0), own, atol=1e-6)


def test_a_task_itself_has_its_blocks_inside_a_layer():
    """Why the recipe takes backbones."""
    wide, x = made("a KerasHub task")
    narrow = ki.shrink(wide, {"neurons": 0.5}, x)
    _, names = inside(narrow)
    loss = keras.distillation.FeatureDistillation("mse", names[0], names[0])
    with pytest.raises(ValueError, match="No such layer"):
        keras.distillation.Distiller(wide, narrow, loss)
