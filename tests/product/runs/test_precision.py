"""A run's dtype, optimizer, accumulation, rematerialization and teacher."""

import functools
import math

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.data import open_text
from keras_idea.errors import ConfigError
from keras_idea.keras_private.optimizer_variables import rate_source
from keras_idea.lm.runs.config import parse_config
from keras_idea.lm.runs.models.build import decoder_models
from keras_idea.lm.runs.models.compiling import (
    compiled,
    make_optimizer,
    rematerialize_blocks,
)
from keras_idea.lm.runs.models.learning_rate import learning_rate
from keras_idea.models import DecoderBlock
from tests.support.hub_models import tiny_lm
from tests.support.tiny_run import ALONE, TEXT, curve


def keys(table, lines):
    """An edit that writes lines below a table's head."""
    return f"[{table}]\n", f"[{table}]\n{lines}\n"


# On tensorflow Keras's own ways with an embedding's gradient are wrong, and refused.
PARTS = "global_clipnorm = 0.5\ngradient_accumulation_steps = 4"


RIGHT = keras.backend.backend() != "tensorflow"


@pytest.mark.skipif(RIGHT, reason="where it is right it is tested below")
@pytest.mark.parametrize("line", PARTS.splitlines())
def test_refused_on_tensorflow(line):
    config = parse_config(ALONE.replace(*keys("optimizer", line)))
    with pytest.raises(ConfigError, match="cannot be used on tensorflow"):
        make_optimizer(config)


@pytest.mark.skipif(not RIGHT, reason="it is refused, see above")
@pytest.mark.parametrize("size", [4, 32])
def test_a_step_in_parts_is_the_same_step(trained, size):
    """Also where less than a batch is held out: 28 sequences, no multiple of 8."""
    rows = ("batch_size = 4", f"batch_size = {size}")
    whole = curve(trained("whole", keys("optimizer", "global_clipnorm = 0.5"), rows))
    parts = curve(trained("parts", keys("optimizer", PARTS), rows))
    assert len(parts["width"]) == 12
    for name, values in whole.items():
        # Bits are written with 5 digits.
        np.testing.assert_allclose(parts[name], values, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(trained, dtype):
    whole = curve(trained("whole"))
    folder = trained("mixed", keys("run", f'dtype = "{dtype}"'))
    mixed = curve(folder)
    # Near, by the 8 bits of bfloat16, and not the same: it did compute in it.
    np.testing.assert_allclose(mixed["bits_per_byte"], whole["bits_per_byte"], 0.02)
    assert (mixed["bits_per_byte"] != whole["bits_per_byte"]).any()
    saved = keras.models.load_model(folder / "narrow.keras")
    assert {variable.dtype for variable in saved.variables} == {"float32"}
    assert {layer.compute_dtype for layer in saved._flatten_layers()} == {"float32"}
    assert mixed["width"][-1] == 8


def models_of(text, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    config = parse_config(text)
    return config, decoder_models(
        config, functools.partial(open_text, paths=tmp_path / "text.txt")
    )


def test_what_is_compiled_computes_as_the_run_says(tmp_path):
    config, models = models_of(ALONE + 'dtype = "mixed_float16"\n', tmp_path)
    model = models.wide()
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    blocks = [layer for layer in model.layers if isinstance(layer, DecoderBlock)]
    assert {block.ffn.compute_dtype for block in blocks} == {"float16"}
    assert {variable.dtype for variable in model.variables} <= {"float32", "int32"}


@pytest.mark.parametrize("name", ["adamw", "lion", "muon", "adafactor"])
def test_optimizers_train_and_prune(trained, name):
    rate = {"lion": 1e-3, "adafactor": 3e-2}.get(name, 1e-2)
    lines = f'name = "{name}"\npeak_learning_rate = {rate}'
    columns = curve(trained(name, keys("optimizer", lines)))
    assert columns["bits_per_byte"][-1] < columns["bits_per_byte"][0] - 0.05
    assert columns["width"][-1] == 8


def test_the_optimizer_is_the_one_of_the_table():
    extra = "global_clipnorm = 0.5\ngradient_accumulation_steps = 2" if RIGHT else ""
    lines = f'name = "muon"\n{extra}'
    config = parse_config(ALONE.replace(*keys("optimizer", lines)))
    optimizer = make_optimizer(config)
    assert type(optimizer) is keras.optimizers.Muon
    assert optimizer.global_clipnorm == (0.5 if RIGHT else None)
    assert optimizer.gradient_accumulation_steps == (2 if RIGHT else None)
    assert optimizer.adam_weight_decay == optimizer.weight_decay == 0.01
    # The rate of an optimizer step, by micro-batch: warm-up, then the cosine.
    rates = [float(rate_source(optimizer)(i)) for i in range(6)]
    cosine, parts = ki.CosineDecay(3e-3, 3e-5, 12, 2), 2 if RIGHT else 1
    assert rates == [float(cosine(i // parts)) for i in range(6)]


def eta(t, peak, total, warmup, end=3e-5):
    """The paper's curve; a step is asked for by those before it."""
    if t <= warmup:
        return peak * t / warmup
    angle = math.pi * (t - warmup) / total
    return (peak - end) / 2 * math.cos(angle) + (peak + end) / 2


def eta_again(t, peak, total, warmup, end=3e-5):
    """The cosine that ends at its end."""
    if t < warmup:
        return peak * t / warmup
    angle = math.pi * (t - warmup) / (total - warmup)
    return (peak - end) / 2 * math.cos(angle) + (peak + end) / 2


def test_a_rewarmed_run(trained):
    """Up again when pruning begins; the narrow model from scratch has one cosine."""
    scratch = ("compare_from_scratch = false", "compare_from_scratch = true")
    folder = trained("rewarmed", keys("optimizer", "rewarm = 0.5"), scratch)
    rates = curve(folder)["learning_rate"]
    one = [eta(t, 3e-3, 12, 2) for t in range(12)]
    again = one[:4] + [eta_again(t, 1.5e-3, 8, 2) for t in range(8)]
    assert len(rates) == 24
    np.testing.assert_allclose(rates[:12], again, rtol=1e-5)
    np.testing.assert_allclose(rates[12:], one, rtol=1e-5)
    assert curve(folder)["width"][11] == 8


def test_the_rate_that_is_rewarmed_is_what_is_trained_with():
    config = parse_config(ALONE.replace(*keys("optimizer", "rewarm = 1.0")))
    model = keras.Sequential([keras.Input((4,)), ki.PrunableGatedFFN(8)])
    source = rate_source(compiled(config, model).optimizer)
    expected = [eta(t, 3e-3, 12, 2) for t in range(4)]
    expected += [eta_again(t, 3e-3, 8, 2) for t in range(8)]
    tensors = [keras.ops.convert_to_tensor(t, dtype="int32") for t in range(12)]
    for steps in (range(12), tensors):
        np.testing.assert_allclose([float(source(t)) for t in steps], expected, 1e-5)
    # However long the warm-up is, what is left is decayed to the end.
    long = parse_config(
        ALONE.replace("warmup_steps = 2", "warmup_steps = 11\nrewarm = 1.0")
    )
    source_of_long = learning_rate(long.optimizer, long.budget)
    last = [float(source_of_long(t)) for t in range(4, 13)]
    np.testing.assert_allclose(last, [eta_again(t, 3e-3, 8, 2) for t in range(9)], 1e-5)
    assert last[-1] == pytest.approx(3e-5, rel=1e-4)
    plain = keras.Sequential([keras.Input((4,)), ki.GatedFFN(8)])
    source = rate_source(compiled(config, plain, pruned=False).optimizer)
    expected = [eta(t, 3e-3, 12, 2) for t in range(12)]
    np.testing.assert_allclose([float(source(t)) for t in range(12)], expected, 1e-5)


def test_rematerialized_blocks_are_computed_again(tmp_path, monkeypatch):
    calls = []
    call = DecoderBlock.call
    monkeypatch.setattr(
        DecoderBlock, "call", lambda self, x: calls.append(self.name) or call(self, x)
    )
    losses = {}
    for remat in ("false", "true"):
        config, models = models_of(ALONE + f"rematerialize = {remat}\n", tmp_path)
        keras.utils.set_random_seed(0)
        model = models.wide()
        x, y = next(iter(models.corpus.batches(batch_size=4, length=16)))
        model.train_on_batch(x, y)
        calls.clear()
        losses[remat] = [float(model.train_on_batch(x, y)) for _ in range(3)]
        if keras.backend.backend() == "torch":  # elsewhere the trace is called
            assert len(calls) == 3 * 2 * (1 + (remat == "true"))
    np.testing.assert_allclose(losses["true"], losses["false"], rtol=1e-6)


def test_dropout_is_not_computed_again(tmp_path):
    config, _ = models_of(ALONE + "rematerialize = true\n", tmp_path)
    model = tiny_lm("gemma", dropout=0.1)
    with pytest.raises(
        ConfigError, match="does not support the dropout of.*dropout=0.1"
    ):
        rematerialize_blocks(model)


@pytest.mark.parametrize(
    "edit, match",
    [
        (keys("optimizer", 'name = "sgd"'), "'adamw', 'lion', 'muon', 'adafactor'"),
        (keys("optimizer", "global_clipnorm = 0.0"), "must be a number above 0"),
        (keys("optimizer", "gradient_accumulation_steps = 3"), "steps` to 2 or 4"),
        (keys("optimizer", "rewarm = 1.5"), "`optimizer.rewarm` must be"),
        (keys("optimizer", "rewarm = 0.001"), "must be 0, or at least"),
        (keys("run", 'dtype = "bfloat16"'), "'float32', 'mixed_bfloat16'"),
        (keys("run", "jit_compile = 1"), "must be true or false"),
        (
            ("[data]", "[distillation]\nweight = 1.0\n[data]"),
            "above 0 and below 1.0",
        ),
    ],
)
def test_refused(edit, match):
    with pytest.raises(ConfigError, match=match):
        parse_config(ALONE.replace(*edit))


def test_rewarmed_after_nothing():
    text = ALONE.replace("enlarge_steps = 4", "enlarge_steps = 0")
    with pytest.raises(ConfigError, match="needs a wide stage"):
        parse_config(text.replace(*keys("optimizer", "rewarm = 1.0")))


def test_accumulation_and_a_method_that_measures():
    text = ALONE.replace(*keys("optimizer", "gradient_accumulation_steps = 2"))
    with pytest.raises(ConfigError, match="which measures one batch per step"):
        parse_config(text + '\n[pruning]\nmethod = "activation"\n')
