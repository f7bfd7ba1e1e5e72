"""What `compact` leaves is narrow, computes the same, and loads without this package.

Units are pruned at random by hand, after a step that fills the optimizer's slots. The
narrow model, its file and what another process loads of it, in which `keras_idea`
cannot be imported, give the masked model's outputs.
"""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests import cases
from tests.cases import BATCH, CASES
from tests.support import ROOT
from tests.support.case_models import is_hub
from tests.support.helpers import to_numpy
from tests.support.masks import prune_by_hand
from tests.support.sliced import assert_near, assert_sliced

# Loads every file of a folder, and writes down the largest difference of each.
STRANGER = """
import json, pathlib, sys, traceback
sys.modules["keras_idea"] = None
import keras, numpy as np
import tests.support.trained_only  # a user's layers
folder, found = pathlib.Path(sys.argv[1]), {}
if list(folder.glob("*hub*")):
    import keras_hub
for path in sorted(folder.glob("*.keras")):
    try:
        keras.utils.clear_session(free_memory=False)
        model = keras.models.load_model(path)
        data = np.load(path.with_suffix(".npz"))
        x = {n[2:]: data[n] for n in data.files if n.startswith("x ")}
        if "0" in x:
            x = [x[name] for name in sorted(x)] if len(x) > 1 else x["0"]
        made = keras.tree.flatten(model.predict_on_batch(x))
        pairs = [(part, data[f"y {i}"]) for i, part in enumerate(made)]
        if "slot 0" in data.files:
            slots = [v.value for v in model.optimizer.variables]
            slots = [np.array(keras.ops.convert_to_numpy(v)) for v in slots]
            pairs += [(v, data[f"slot {i}"]) for i, v in enumerate(slots)]
        apart = 0.0
        for one, other in pairs:
            assert one.shape == other.shape, (one.shape, other.shape)
            one, other = (np.asarray(v, "float64") for v in (one, other))
            scale = max(1e-3, np.abs(other).max(initial=0))
            apart = max(apart, np.abs(one - other).max(initial=0) / scale)
        found[path.stem] = float(apart)
    except Exception:
        found[path.stem] = traceback.format_exc()
print(json.dumps(found))
"""


def masked(case):
    """A model some of whose units were pruned by hand after a step, and a batch."""
    model = case.build()
    x, y = case.data(model, BATCH)
    model.train_on_batch(x, y)
    if keras.backend.backend() == "jax":
        model.jax_state_sync()
    rng = np.random.default_rng(4)
    for group, count in zip(case.pruned(model), case.kept, strict=True):
        order = rng.random(group.units_shape).argsort(axis=-1)
        prune_by_hand(group, order < count)
    return model, x


def compacted(case):
    """(masked model, its compact copy, a batch, what the masked model makes of it)."""
    model, x = masked(case)
    return model, ki.compact(model), x, model.predict_on_batch(x)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the files of all cases lie."""
    return tmp_path_factory.mktemp("files")


# On jax and TensorFlow daily.
FEW = (
    "gated",
    "blocks with a config",
    "own gated",
    "heads and neurons",
    "channels, residual",
    "mixed float16",
    "hub llama3",
)


@cases.laws("compacts", few=FEW)
def test_compacts(case, folder):
    wide, narrow, x, outputs = compacted(case)
    if "loads" not in case.without:
        write(case, narrow, x, outputs, folder)
    assert type(narrow) is type(wide) and narrow is not wide
    assert [group.hidden_dim for group in case.pruned(narrow)] == list(case.kept)
    assert_near(narrow.predict_on_batch(x), outputs, case.within)
    assert_sliced(wide, narrow, 1e-6)
    again = ki.compact(narrow)
    for one, other in zip(narrow.variables, again.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


def write(case, narrow, x, outputs, folder):
    """Saves a narrow model, a batch, and what the masked model makes of it."""
    narrow.save(folder / f"{case.name}.keras")
    named = x if isinstance(x, dict) else dict(enumerate(keras.tree.flatten(x)))
    arrays = {f"x {name}": value for name, value in named.items()}
    outputs = enumerate(keras.tree.flatten(outputs))
    arrays |= {f"y {i}": to_numpy(value).astype("float32") for i, value in outputs}
    # KerasHub's tasks come back without their optimizer's state.
    slots = enumerate([] if is_hub(narrow) else narrow.optimizer.variables)
    arrays |= {f"slot {i}": to_numpy(value).astype("float32") for i, value in slots}
    np.savez(folder / f"{case.name}.npz", **arrays)


@pytest.fixture(scope="module")
def loaded(request, folder):
    """What one process without this package found in the files of all cases here."""
    named = "test_loads_without_this_package"
    tests = [item for item in request.session.items if item.originalname == named]
    for case in [item.callspec.params["case"] for item in tests]:
        if not (folder / f"{case.name}.npz").exists():
            write(case, *compacted(case)[1:], folder)
    command = [sys.executable, "-c", STRANGER, str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.daily("torch", "tensorflow")
def test_a_model_without_a_config_becomes_narrow_itself():
    (case,) = [case for case in CASES if case.name == "a list of blocks"]
    (wide, x), (model, _) = masked(case), masked(case)
    narrow = ki.compact(model, in_place=True)
    assert narrow is model
    assert [group.hidden_dim for group in case.pruned(narrow)] == list(case.kept)
    assert_near(narrow.predict_on_batch(x), wide.predict_on_batch(x), case.within)
    assert_sliced(wide, narrow, 1e-6)
    # TensorFlow's traced function of the wide model is not the one that trains on.
    kernels = [kernel for group in case.pruned(narrow) for kernel in group.kernels]
    before = [to_numpy(kernel) for kernel in kernels]
    narrow.train_on_batch(*case.data(narrow, BATCH))
    for kernel, value in zip(kernels, before, strict=True):
        assert (to_numpy(kernel) != value).any(), kernel.path


@cases.laws("loads", few=FEW)
def test_loads_without_this_package(case, loaded):
    apart = loaded[case.name]
    if "own" in case.name.split():  # its layers are this package's
        assert "keras_idea" in str(apart)
    else:
        assert not isinstance(apart, str), apart
        assert apart <= case.within


def test_every_case_is_here():
    assert len({case.name for case in CASES}) == len(CASES) >= 60
