"""One contract over every family of KerasHub that can be pruned.

A row trains once: what is checked of it hangs on one `Run`, whose stages are made
when a test first asks for them.
"""

import functools
import subprocess
import sys
import types

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests import ENDURANCE, reference
from tests.helpers import LossRecorder, to_numpy
from tests.hub_models import FULL, MODELS, batch, randomize, tiny_backbone, tiny_lm

BEGIN, STEPS, TARGET, TOTAL, SIZE = 1, 8, 10, 12, 4
HALFWAY = 5
# Families that are trained with AdamW and whose every stage is run; of the others only
# what a family can change, with SGD, on torch: compiling them is most of the time.
CORE = ("llama3", "gemma2", "qwen3", "phi3")
SOME = {"jax": CORE, "tensorflow": CORE[:2], "torch": tuple(MODELS)}
MIXTURES = ("mixtral", "qwen moe", "qwen3 moe", "qwen3.5 moe", "gpt oss")
UNGATED = ("gpt2", "opt", "gpt neox", "bloom", "falcon", "bart", "t5 plain")
TRAINED = tuple(MODELS) if ENDURANCE else SOME[keras.backend.backend()]
FIT = {"batch_size": SIZE, "shuffle": False, "verbose": 0}


def logits(model, x):
    """All outputs of a model in one array."""
    outputs = keras.tree.flatten(model(x, training=False))
    return np.concatenate([np.ravel(to_numpy(o)) for o in outputs])


def compiled(model, optimizer):
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=None,
        sampler="greedy",
    )
    return model


def adamw():
    # Epsilon is large, so that Adam does not blow float32 noise in the tiniest
    # gradients up.
    return keras.optimizers.AdamW(0.002, epsilon=1e-4)


def sgd():
    return keras.optimizers.SGD(0.02, momentum=0.9)


def step(model, data):
    """One train step, by `fit`: on jax `train_on_batch` is another program."""
    if keras.backend.backend() == "torch":
        # KerasHub's SmolLM3 and T5 give two variables one path, and Keras on torch,
        # which goes by paths, then never sets the gradients of one of them back.
        for variable in model.variables:
            variable.value.grad = None
    return model.fit(*data, **FIT).history["loss"]


def foreign(model):
    """What of this package can be reached from a model, and by which way."""
    found, seen, left = [], {}, [("model", model)]
    while left:
        way, item = left.pop()
        if id(item) in seen or isinstance(item, (type, types.ModuleType)):
            continue
        seen[id(item)] = item
        if "keras_idea" in map(_root, [item, *type(item).__mro__]):
            found.append(way)
        left += [(f"{way}.{name}", part) for name, part in _parts(item)]
    return found


def _parts(item):
    """List of (name, what an object holds)."""
    parts = []
    if isinstance(item, dict):
        parts += [("key", key) for key in item]
        parts += [(repr(key), value) for key, value in item.items()]
    elif isinstance(item, (list, tuple, set, frozenset)):
        parts += [(str(i), part) for i, part in enumerate(item)]
    elif isinstance(item, functools.partial):
        parts += [("func", item.func), ("args", item.args), ("kw", item.keywords)]
    elif isinstance(item, types.MethodType):
        parts += [("self", item.__self__), ("func", item.__func__)]
    elif isinstance(item, types.FunctionType):
        parts += [("cell", c.cell_contents) for c in item.__closure__ or ()]
    if _root(type(item)) in ("keras", "keras_hub", "keras_idea"):
        parts += list(getattr(item, "__dict__", {}).items())
    return parts


def _root(item):
    return str(getattr(item, "__module__", "")).split(".")[0]


class Recorder(LossRecorder):
    """Losses, scores and masks of every step; a save in the middle of pruning."""

    def __init__(self, x, folder):
        super().__init__()
        self.x, self.folder, self.scores, self.masks = x, folder, [], []

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        model = self.model  # on jax this syncs the variables
        self.scores.append([to_numpy(f.scores) for f in ki.find_ffns(model)])
        self.masks.append([to_numpy(f.mask) for f in ki.find_ffns(model)])
        if len(self.masks) == HALFWAY:
            self.halfway_logits = logits(model, self.x)
            self.halfway_hidden = logits(model.backbone, self.x)
            model.save_weights(self.folder / "halfway.weights.h5")
            model.backbone.save_to_preset(self.folder / "halfway")


class Run:
    """What becomes of one row of `MODELS`; each stage is made when asked for."""

    def __init__(self, name, folder):
        self.name, self.row, self.folder = name, MODELS[name], folder
        self.optimizer = adamw if name in CORE else sgd
        self.stock = tiny_lm(name)
        # KerasHub's Llama forgets one of its arguments (`tie_word_embeddings`).
        self.config = {**self.stock.backbone.get_config(), **self.row.arguments}
        self.x, self.y = batch(self.stock, np.random.default_rng(0), SIZE)
        self.data = batch(self.stock, np.random.default_rng(1), TOTAL * SIZE)
        self.width = {k: TARGET * n for k, n in self.row.widths.items()}

    @functools.cached_property
    def converted(self):
        """(outputs before, outputs after), eager and by `predict`; the model."""
        model = tiny_lm(self.name)
        pairs = [(logits(model, self.x), model.predict(self.x, verbose=0))]
        assert ki.make_prunable(model) is model
        pairs += [(logits(model, self.x), model.predict(self.x, verbose=0))]
        return list(zip(*pairs, strict=True)), model

    @functools.cached_property
    def masked(self):
        """The model after training with compact="off", and what was recorded."""
        _, model = self.converted
        record = Recorder(self.x, self.folder)
        prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact="off")
        compiled(model, self.optimizer()).fit(
            *self.data, callbacks=[prune, record], **FIT
        )
        record.logits = logits(model, self.x)
        return model, record

    @functools.cached_property
    def narrow(self):
        """`compact` of the masked model, its logits, and `compact` of it."""
        narrow = ki.compact(self.masked[0])
        return narrow, logits(narrow, self.x), ki.compact(narrow)

    @functools.cached_property
    def generated(self):
        """Token ids that the masked and the narrow model generate."""
        prompt = {k: np.array(v) for k, v in self.x.items()}
        prompt["padding_mask"][:, 3:] = 0
        models = (self.masked[0], self.narrow[0])
        return [m.generate(dict(prompt), stop_token_ids=None) for m in models]

    @functools.cached_property
    def stepped(self):
        """Pairs of variables of the masked and narrow model, after one more step."""
        masked, narrow = self.masked[0], self.narrow[0]
        if self.name in CORE:
            assert self.generated  # needs the models as they are
        data = (self.x, self.y)
        return compare_after_a_step(masked, narrow, data, self.row.packing)

    @functools.cached_property
    def stripped(self):
        """The model without its pruning, and what it was just before."""
        assert self.stepped
        model = self.masked[0]
        before = types.SimpleNamespace(
            logits=logits(model, self.x),
            ours=foreign(model),
            ffns=[(f.kernels, to_numpy(f.mask)) for f in ki.find_ffns(model)],
        )
        assert ki.strip(model) is model
        return model, before

    @functools.cached_property
    def in_fit(self):
        """The model that became narrow in the middle of the same training."""
        model, record = ki.make_prunable(tiny_lm(self.name)), LossRecorder()
        compiled(model, self.optimizer())
        prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact="end")
        model.fit(*self.data, callbacks=[prune, record], **FIT)
        return model, record


def sliced(value, kept, axis, packing):
    """A variable of the neurons `kept`; of a mixture of those of each expert."""
    if kept.ndim == 1:
        return np.take(value, kept, axis)
    places = kept
    if value.shape[axis] > FULL:  # two matrices
        places = {
            "halves": np.concatenate([kept, kept + FULL], axis=1),
            "pairs": np.sort(np.concatenate([2 * kept, 2 * kept + 1], axis=1)),
        }[packing]
    pairs = zip(value, places, strict=True)
    return np.stack([np.take(own, at, axis - 1) for own, at in pairs])


def _held(ffn):
    """The variables of an FFN's layer, without those of FFNs in it."""
    return [cut.variable for cut in ffn.cuts()]


def compare_after_a_step(masked, narrow, data, packing=""):
    """Pairs (sliced variable of the masked model, variable of the narrow one)."""
    losses = [step(model, data) for model in (masked, narrow)]
    np.testing.assert_allclose(*losses, rtol=1e-6)
    ffns = ki.find_ffns(masked)
    kept = {id(v): f.kept_neurons() for f in ffns for v in _held(f)}
    states = {id(v) for f in ffns for v in f.state.variables}
    wide = [v for v in masked.variables if id(v) not in states]
    pairs = []
    for old, new in zip(wide, narrow.variables, strict=True):
        value = to_numpy(old)
        for axis, (a, b) in enumerate(zip(old.shape, new.shape, strict=True)):
            if a != b:
                value = sliced(value, kept[id(old)], axis, packing)
        pairs.append((value, to_numpy(new)))
    return pairs


@pytest.fixture(scope="module", params=TRAINED)
def run(request, tmp_path_factory):
    keras.utils.clear_session(free_memory=False)  # names, whatever ran before
    return Run(request.param, tmp_path_factory.mktemp("run"))


def test_the_converted_model_computes_the_same_bits(run):
    pairs, model = run.converted
    for before, after in pairs:
        np.testing.assert_array_equal(before, after)
    assert np.std(pairs[0][0]) > 0.3  # something to tell apart
    ffns = ki.find_ffns(model)
    assert len(ffns) == run.row.ffns == len({ffn.name for ffn in ffns})


def test_every_ffn_is_pruned_as_its_scores_say(run):
    model, record = run.masked
    assert [f.width for f in ki.find_ffns(model)] == [TARGET] * run.row.ffns
    alive = [np.ones_like(mask) for mask in record.masks[0]]
    for t, (scores, masks) in enumerate(
        zip(record.scores, record.masks, strict=True), start=1
    ):
        for i, (score, mask) in enumerate(zip(scores, masks, strict=True)):
            full = mask.shape[-1]
            keep = reference.kept(t, full, TARGET, BEGIN, STEPS)
            importance = score.astype("float64").max(axis=0)
            # One row, or one an expert: neurons are ranked within it.
            alive[i] = np.atleast_2d(alive[i])
            rows = zip(np.atleast_2d(importance), np.atleast_2d(mask), strict=True)
            for row, (own, seen) in enumerate(rows):
                living = alive[i][row]
                best = [k for k in np.argsort(-own, kind="stable") if living[k]]
                alive[i][row] = np.isin(np.arange(full), best[:keep])
                np.testing.assert_array_equal(seen, alive[i][row])
                assert seen.sum() == keep
                # OPT's ReLU leaves some neurons without a gradient.
                assert own[best].min() > 0 or run.name == "opt"
    # Not the first ones, and not the same ones everywhere.
    rows = [tuple(row) for mask in record.masks[-1] for row in np.atleast_2d(mask)]
    assert len(set(rows)) == len(rows) >= run.row.ffns


def test_compact_keeps_the_logits(run):
    (_, received, _), (_, record) = run.narrow, run.masked
    np.testing.assert_allclose(received, record.logits, rtol=0, atol=1e-5)


def test_compact_gives_a_stock_model(run):
    narrow, _, _ = run.narrow
    assert type(narrow) is type(run.stock)
    assert type(narrow.backbone) is type(run.stock.backbone)
    assert foreign(narrow) == []
    kinds = [
        [type(layer) for layer in m._flatten_layers()] for m in (narrow, run.stock)
    ]
    assert kinds[0] == kinds[1]
    assert narrow.backbone.get_config() == {**run.config, **run.width}
    wide, slim = (m.backbone.count_params() for m in (run.stock, narrow))
    assert slim < wide


def test_compact_twice_is_compact_once(run):
    _, once, again = run.narrow
    assert type(again) is type(run.stock)
    np.testing.assert_array_equal(logits(again, run.x), once)
    assert again.backbone.get_config() == {**run.config, **run.width}


def test_the_next_train_step_is_the_same(run):
    for masked, narrow in run.stepped:
        scale = max(1.0, np.abs(masked).max())
        np.testing.assert_allclose(narrow, masked, rtol=0, atol=1e-6 * scale)


def test_compaction_in_fit_keeps_the_losses(run):
    (model, record), (_, masked_record) = run.in_fit, run.masked
    np.testing.assert_allclose(record.losses, masked_record.losses, rtol=0, atol=1e-5)
    assert {(f.hidden_dim, f.width) for f in ki.find_ffns(model)} == {(TARGET, TARGET)}


def test_compaction_in_fit_leaves_presets_of_the_stock_class(run):
    backbone = run.in_fit[0].backbone
    assert type(backbone) is type(run.stock.backbone)
    assert backbone.get_config() == {**run.config, **run.width}
    backbone.save_to_preset(run.folder / "narrow")
    loaded = type(backbone).from_preset(str(run.folder / "narrow"))
    assert loaded.get_config() == {**run.config, **run.width}
    assert foreign(loaded) == []
    expected = logits(backbone, run.x)
    np.testing.assert_allclose(logits(loaded, run.x), expected, rtol=0, atol=1e-6)
    by_config = type(backbone).from_config(backbone.get_config())
    backbone.save_weights(run.folder / "narrow.weights.h5")
    by_config.load_weights(run.folder / "narrow.weights.h5")
    np.testing.assert_allclose(logits(by_config, run.x), expected, rtol=0, atol=1e-6)


def test_what_is_saved_in_mid_pruning_loads_into_a_stock_model(run):
    _, record = run.masked
    assert TARGET < record.masks[HALFWAY - 1][0].sum(-1).max() < FULL
    stock = tiny_lm(run.name)
    stock.load_weights(run.folder / "halfway.weights.h5")
    np.testing.assert_allclose(
        logits(stock, run.x), record.halfway_logits, rtol=0, atol=1e-6
    )
    loaded = type(stock.backbone).from_preset(str(run.folder / "halfway"))
    assert loaded.get_config() == run.config and foreign(loaded) == []
    np.testing.assert_allclose(
        logits(loaded, run.x), record.halfway_hidden, rtol=0, atol=1e-6
    )


def test_strip_leaves_the_stock_wide_model(run):
    model, before = run.stripped
    assert before.ours and not foreign(model)
    kinds = [[type(layer) for layer in m._flatten_layers()] for m in (model, run.stock)]
    assert kinds[0] == kinds[1] and ki.find_ffns(model) == []
    assert model.backbone.get_config() == run.config
    np.testing.assert_allclose(logits(model, run.x), before.logits, rtol=0, atol=1e-6)
    for (*entrances, down), mask in before.ffns:
        if mask.ndim == 2:  # each expert's in a column: tests/hub/test_mixtures.py
            continue
        for rows in (*(to_numpy(kernel).T for kernel in entrances), to_numpy(down)):
            assert np.all(rows[mask == 0] == 0) and np.all(np.any(rows[mask == 1], 1))
    if run.name in CORE:
        step(model, (run.x, run.y))
        assert np.any(logits(model, run.x) != before.logits)


@pytest.mark.parametrize("run", sorted({*CORE} & {*TRAINED}), indirect=True)
def test_the_same_tokens_are_generated(run):
    masked, narrow = run.generated
    np.testing.assert_array_equal(masked["token_ids"], narrow["token_ids"])
    assert len(np.unique(masked["token_ids"][:, 3:])) > 2


def set_masks(model, seed=0):
    """Another random choice of `TARGET` neurons in each FFN."""
    rng = np.random.default_rng(seed)
    for ffn in ki.find_ffns(model):
        order = rng.random(tuple(ffn.mask.shape)).argsort(axis=-1)
        ffn.mask.assign((order < TARGET).astype("float32"))


@pytest.mark.parametrize("name", MODELS)
def test_untrained(name):
    """The families' laws that need no training, so on every backend for each."""
    model = tiny_lm(name)
    x, _ = batch(model, np.random.default_rng(0), SIZE)
    stock = logits(model, x)
    ki.make_prunable(model)
    np.testing.assert_array_equal(logits(model, x), stock)
    set_masks(model)
    masked = logits(model, x)
    assert np.abs(masked - stock).max() > 0.01
    narrow = ki.compact(model)
    np.testing.assert_allclose(logits(narrow, x), masked, rtol=0, atol=1e-5)
    assert type(narrow) is type(model) and foreign(narrow) == []
    for argument, per_neuron in MODELS[name].widths.items():
        assert narrow.backbone.get_config()[argument] == TARGET * per_neuron
    np.testing.assert_array_equal(logits(ki.strip(model), x), masked)


@pytest.mark.parametrize("name", [n for n in MODELS if n not in UNGATED + MIXTURES])
def test_up_is_the_activated_matrix_and_gate_the_linear_one(name):
    """To turn the signs of gate and down changes nothing; of up and down, a lot."""
    model = ki.make_prunable(tiny_lm(name))
    x, _ = batch(model, np.random.default_rng(0), SIZE)
    before = logits(model, x)
    for matrix, same in ((1, True), (0, False)):
        for ffn in ki.find_ffns(model):
            cuts = [cut.variable for cut in ffn.cuts()]
            kernels, biases = cuts[:3], cuts[3:]  # biases of up and gate, if any
            for variable in (kernels[matrix], kernels[2], *biases[matrix:][:1]):
                variable.assign(-to_numpy(variable))
        assert np.allclose(logits(model, x), before, rtol=0, atol=1e-5) == same


def test_linear_attention():
    """Qwen3.5 as it is: most layers have no softmax."""
    model = tiny_lm("qwen3.5", layer_types=["linear_attention", "full_attention"])
    x, _ = batch(model, np.random.default_rng(0), SIZE)
    stock = model.predict(x, verbose=0)
    ki.make_prunable(model)
    np.testing.assert_array_equal(model.predict(x, verbose=0), stock)


@pytest.mark.parametrize("name", ["llama3", "gemma2"])
def test_the_next_step_of_sgd_is_the_same(name):
    model = ki.make_prunable(tiny_lm(name))
    compiled(model, sgd())
    data = batch(model, np.random.default_rng(0), SIZE)
    set_masks(model)
    step(model, data)
    narrow = ki.compact(model)
    for masked, slim in compare_after_a_step(model, narrow, data):
        scale = max(1.0, np.abs(masked).max())
        np.testing.assert_allclose(slim, masked, rtol=0, atol=1e-6 * scale)


def test_bfloat16_within_its_precision():
    model = ki.make_prunable(tiny_lm("llama3", dtype="bfloat16"))
    x, _ = batch(model, np.random.default_rng(0), SIZE)
    set_masks(model)
    expected = logits(model, x).astype("float32")
    received = logits(ki.compact(model), x).astype("float32")
    # Dead neurons add exact zeros: what is left is the order of the sums, which may
    # round the output of an FFN (or what follows) to the next bfloat16: 2**-8.
    assert np.abs(received - expected).max() <= 2**-8 * np.abs(expected).max()


LOAD = """
import sys, numpy as np, keras, keras_hub
backbone = keras_hub.models.Backbone.from_preset(sys.argv[1])
assert "keras_idea" not in sys.modules
data = np.load(sys.argv[2])
out = backbone({k: data[k] for k in ("token_ids", "padding_mask")})
error = np.abs(keras.ops.convert_to_numpy(out) - data["out"]).max()
assert error <= 1e-6, error
print(type(backbone).__name__, backbone.intermediate_dim)
"""


@pytest.mark.parametrize("name", ["llama tied", "gemma2"])
def test_a_narrow_preset_loads_where_this_package_is_not(name, tmp_path):
    model = ki.make_prunable(tiny_backbone(name))
    x, _ = batch(model, np.random.default_rng(0), SIZE)
    set_masks(model)
    narrow = ki.compact(model)
    narrow.save_to_preset(tmp_path / "narrow")
    np.savez(tmp_path / "data.npz", **x, out=to_numpy(narrow(x)))
    command = [sys.executable, "-c", LOAD, "narrow", "data.npz"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    row = MODELS[name]
    width = TARGET * row.widths["intermediate_dim"]
    assert result.stdout.split() == [row.backbone, str(width)]


def test_keras_nlp_is_the_same():
    """The old name of KerasHub: a package that re-exports it."""
    import keras_hub
    import keras_nlp

    assert keras_nlp.models.Llama3Backbone is keras_hub.models.Llama3Backbone
    row = MODELS["llama3"]
    backbone = randomize(keras_nlp.models.Llama3Backbone(**row.arguments), row.scale)
    model = keras_nlp.models.Llama3CausalLM(backbone=backbone, preprocessor=None)
    assert type(model) is type(tiny_lm("llama3"))
    set_masks(ki.make_prunable(model))
    narrow = ki.compact(model)
    assert isinstance(narrow, keras_nlp.models.Llama3CausalLM)
    assert narrow.backbone.intermediate_dim == TARGET
