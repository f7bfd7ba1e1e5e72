"""What Keras's models and callbacks are known to do inside."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.keras_private.callbacks import acts_at, initial_epoch, peers
from keras_idea.keras_private.models import (
    Functional,
    compilation,
    compile_arguments,
    make_train_function,
    renew_state,
)

X, Y = np.ones((2, 4), "float32"), np.ones((2, 1), "float32")


def small_model(cls=keras.Model):
    inputs = keras.Input((4,))
    return cls(inputs, keras.layers.Dense(1, name="head")(inputs))


def a_loss(y_true, y_pred):
    return keras.ops.mean(keras.ops.square(y_true - y_pred))


def test_functional_is_what_a_model_of_inputs_and_outputs_is():
    assert type(small_model()) is Functional
    assert not isinstance(keras.Sequential([keras.Input((4,))]), Functional)


def test_compilation_is_new_with_each_compile():
    model = small_model()
    assert compilation(model) is None
    model.compile("sgd", a_loss)
    first = compilation(model)
    assert first is not None and compilation(model) is first
    model.compile(model.optimizer, a_loss)
    assert compilation(model) is not first


def test_compile_arguments_are_the_objects_themselves():
    model = small_model()
    model.compile("sgd", a_loss, metrics=["mae"], jit_compile=False)
    arguments = compile_arguments(model)
    assert arguments["loss"] is a_loss
    assert arguments["optimizer"] is model.optimizer
    assert arguments["metrics"] == ["mae"]
    small_model().compile(**arguments)  # all that `compile` takes


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the state is jax's")
def test_what_a_failed_step_puts_back_is_the_newest():
    """A step that cannot be traced, after other variables were given to the model."""
    model = small_model()
    model.compile("sgd", a_loss)

    class Assigns(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 1:
                kernel = self.model.get_layer("head").kernel
                kernel.assign(np.full((4, 1), 7.0))
                renew_state(self.model)
                self.model.train_function = fails

    def fails(*arguments):
        raise TypeError("traced")

    with pytest.raises(TypeError, match="traced"):
        model.fit(X, Y, batch_size=1, callbacks=[Assigns()], verbose=0)
    np.testing.assert_array_equal(model.get_layer("head").kernel, np.full((4, 1), 7.0))


def test_train_function_is_made_and_traced_anew():
    class Counted(keras.Model):
        traced = 0

        def compute_loss(self, *args, **kwargs):
            type(self).traced += 1
            return super().compute_loss(*args, **kwargs)

    model = small_model(Counted)
    model.compile(keras.optimizers.SGD(0.0), a_loss)
    model.train_on_batch(X, Y)
    first, traced = model.train_function, Counted.traced
    make_train_function(model)
    assert model.train_function is not first
    assert "train_step" not in vars(model)
    model.train_on_batch(X, Y)
    assert Counted.traced > traced


def test_callback_list_is_found_among_the_callers():
    class Asking(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.found = peers(self)

    asking, other = Asking(), keras.callbacks.Callback()
    model = small_model()
    model.compile("sgd", a_loss)
    callbacks = keras.callbacks.CallbackList([asking, other], model=model)
    callbacks.on_train_begin()
    assert asking in asking.found and other in asking.found
    assert peers(asking) == []


def test_the_first_epoch_of_a_fit_is_known_when_it_begins():
    found = []

    class Asking(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            found.append(initial_epoch())

    model = small_model()
    model.compile("sgd", a_loss)
    for first in (0, 3):
        fit = {"initial_epoch": first, "epochs": first + 1, "verbose": 0}
        model.fit(X, Y, callbacks=[Asking()], **fit)
    assert found == [0, 3] and initial_epoch() == 0


def test_whose_code_runs_between_batches_is_known():
    class Own(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            pass

    class Old(keras.callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            pass

    functions = keras.callbacks.LambdaCallback(on_train_batch_end=print)
    keras_s = keras.callbacks.EarlyStopping(), keras.callbacks.TensorBoard("logs")
    for callback, hooks in (
        (Own(), ["batch_begin"]),
        (Old(), ["batch_end"]),
        (functions, ["batch_end"]),
        (keras.callbacks.Callback(), []),
        *((callback, []) for callback in keras_s),
        (ki.IdeaPruneCallback(4, 1, 1), []),
    ):
        found = [h for h in ("batch_begin", "batch_end") if acts_at(callback, h)]
        assert found == hooks, callback
