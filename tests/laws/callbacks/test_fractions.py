"""A fraction is one of the width at first, or is refused: never of what it has left.

A run with `target_dim=0.5` is killed after each of its epochs, and goes on from a file
with the same callback.
"""

import keras
import pytest

import keras_idea as ki
from tests.support.case_models import heads
from tests.support.dense_ffns import dense_gated
from tests.support.helpers import residual_model
from tests.support.ways_to_train import FIT

# 8 batches an epoch: at full width, masked, just done, narrow.
BEGIN, STEPS, EPOCHS = 8, 16, 4
REFUSED = "nothing says which that was. Received: target_dim=0.5, begin_step=8; the opt"


def made(ffn=dense_gated):
    model = residual_model((16, 12), ffn=ffn)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def prune(target=0.5, begin=BEGIN, **how):
    return ki.IdeaPruneCallback(target, begin, STEPS, **how)


def widths(model):
    return [ffn.hidden_dim for ffn in ki.find_ffns(model)]


def killed_after(epoch, make, data, folder, **how):
    """A run that ended after an epoch, as Keras's own checkpoint holds it."""
    model, path = make(), folder / "{epoch}.keras"
    save = keras.callbacks.ModelCheckpoint(path)
    model.fit(*data, epochs=EPOCHS, callbacks=[prune(**how), save], **FIT)
    assert widths(model) == [8, 6]
    return keras.models.load_model(folder / f"{epoch}.keras")


@pytest.mark.parametrize(
    "compact, refused", [("end", (3, 4)), ("progressive", (2, 3, 4))]
)
@pytest.mark.parametrize("epoch", [1, 2, 3, 4])
def test_a_run_goes_on_from_a_file(epoch, compact, refused, data, tmp_path):
    loaded = killed_after(epoch, made, data, tmp_path, compact=compact)
    before = widths(loaded)
    rest = {"initial_epoch": epoch, "epochs": EPOCHS + 1}
    rest["callbacks"] = [prune(compact=compact)]
    if epoch in refused:
        with pytest.raises(ValueError, match=REFUSED):
            loaded.fit(*data, **rest, **FIT)
        assert widths(loaded) == before
    else:
        loaded.fit(*data, **rest, **FIT)
        assert widths(loaded) == [8, 6]


def test_a_masked_run_goes_on_from_a_file(data, tmp_path):
    """With "off" the file is as wide as ever, and says who is pruned."""
    model = made()
    model.fit(*data, epochs=4, callbacks=[prune(compact="off")], **FIT)
    model.save(tmp_path / "masked.keras")
    loaded = keras.models.load_model(tmp_path / "masked.keras")
    loaded.fit(*data, epochs=1, callbacks=[prune(compact="off")], **FIT)
    assert [ffn.width for ffn in ki.find_ffns(loaded)] == [8, 6]


@pytest.mark.parametrize("epoch", [2, 4])
@pytest.mark.parametrize("compact", ["end", "progressive"])
def test_layers_that_hold_the_width_go_on(epoch, compact, data, tmp_path):
    make = ki.PrunableGatedFFN
    loaded = killed_after(epoch, lambda: made(make), data, tmp_path, compact=compact)
    again = [prune(compact=compact)]
    loaded.fit(*data, initial_epoch=epoch, epochs=EPOCHS + 1, callbacks=again, **FIT)
    assert widths(loaded) == [8, 6]


@pytest.mark.parametrize("epochs", [2, 3, 4])
@pytest.mark.parametrize("compact", ["end", "progressive"])
def test_a_checkpoint_holds_the_width(epochs, compact, data, tmp_path):
    for end in (epochs, EPOCHS + 1):
        model, checkpoint = made(), ki.Checkpoint(tmp_path / "checkpoints")
        done = checkpoint.restore(model)
        callbacks = [prune(compact=compact), checkpoint]
        if end == epochs:
            callbacks.append(keras.callbacks.LambdaCallback(on_epoch_end=kill(end)))
        try:
            rest = {"initial_epoch": done, "epochs": EPOCHS + 1}
            model.fit(*data, **rest, callbacks=callbacks, **FIT)
        except InterruptedError:
            continue
    assert done == epochs and widths(model) == [8, 6]
    assert [ffn.full_dim for ffn in ki.find_ffns(model)] == [16, 12]


def kill(after):
    def on_epoch_end(epoch, logs):
        if epoch + 1 == after:
            raise InterruptedError

    return on_epoch_end


@pytest.mark.parametrize(
    "cure, expected",
    [
        ({"target": 6, "groups": lambda ffn: "0" in ffn.name}, [6, 6]),
        ({"begin": 32}, [4, 3]),
        ({"compile": True}, [4, 3]),
    ],
    ids=["a number", "a later begin", "a new optimizer"],
)
@pytest.mark.filterwarnings("ignore:begin_step=8 lies before")
def test_what_the_message_says_does(cure, expected, data, tmp_path):
    loaded = killed_after(4, made, data, tmp_path)
    if cure.pop("compile", False):
        loaded.compile(keras.optimizers.Adam(0.01), "mse")
    loaded.fit(*data, epochs=4, callbacks=[prune(**cure)], **FIT)
    assert widths(loaded) == expected


def test_a_wide_model_that_was_trained_before(data):
    """It may be one that a run has left: what is meant is to be said."""
    model = made()
    model.fit(*data, epochs=4, **FIT)
    said = "has 16 neurons, .*target_dim=16 or target_dim=8; or begin_step=32, to"
    with pytest.raises(ValueError, match=said):
        model.fit(*data, epochs=4, callbacks=[prune()], **FIT)
    model.fit(*data, epochs=4, callbacks=[prune(begin=32)], **FIT)
    assert widths(model) == [8, 6]


@pytest.mark.parametrize("ffn", [dense_gated, ki.PrunableGatedFFN])
@pytest.mark.parametrize("compact", ["end", "off"])
def test_a_compact_copy_counts_as_the_model_does(compact, ffn, data):
    """As narrowed in place: 0.5 after 0.5 is the same width."""
    model = made(ffn)
    model.fit(*data, epochs=4, callbacks=[prune(compact=compact)], **FIT)
    copy = ki.compact(ki.compact(model))
    for ours, theirs in zip(ki.find_ffns(copy), ki.find_ffns(model), strict=True):
        assert (ours.hidden_dim, ours.full_dim) == (theirs.width, theirs.full_dim)
        left = theirs.original_indices[theirs.kept_neurons()]
        assert ours.original_indices.tolist() == left.tolist()
    copy.compile(keras.optimizers.Adam(0.01), "mse")
    with pytest.warns(UserWarning, match="Nothing is left to prune"):
        copy.fit(*data, epochs=4, callbacks=[prune()], **FIT)
    assert widths(copy) == [8, 6]


KINDS = {
    "heads": (4, {"targets": {"kv_groups": 0.5}}),
    # Each keeps the same fraction of what it had.
    "a budget over both": (
        2,
        {
            "target_parameters": 520,
            "kinds": ("neurons", "kv_groups"),
            "compact": "progressive",
        },
    ),
}


@pytest.mark.parametrize("epoch, how", KINDS.values(), ids=KINDS.keys())
def test_heads_too(epoch, how, data, tmp_path):
    def fit(model):
        model.fit(x, x[..., :2], epochs=4, callbacks=[prune(None, **how), save], **FIT)

    x = data[0]
    model = heads(["grouped"])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    save = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras")
    fit(model)
    assert ki.find_groups(model)[-1].hidden_dim == 2
    with pytest.raises(ValueError, match="nothing says which that was"):
        fit(keras.models.load_model(tmp_path / f"{epoch}.keras"))
