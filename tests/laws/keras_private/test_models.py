"""What Keras's models, callbacks and convolutions do inside."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki
from keras_idea._keras import channels
from keras_idea._keras.callbacks import peers
from keras_idea._keras.models import renew_state

X, Y = np.ones((2, 4), "float32"), np.ones((2, 1), "float32")


def small_model(cls=keras.Model):
    inputs = keras.Input((4,))
    return cls(inputs, keras.layers.Dense(1, name="head")(inputs))


def a_loss(y_true, y_pred):
    return keras.ops.mean(keras.ops.square(y_true - y_pred))


@pytest.mark.daily("jax")
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


@pytest.mark.daily("tensorflow", "torch")
def test_where_a_bias_is_added_to_the_width():
    """Keras on TensorFlow: of `channels_first`, if there are as many as in a row."""
    first = {"data_format": "channels_first", "kernel_initializer": "zeros"}
    inputs = keras.Input((2, 3, 4))
    conv = layers.Conv2D(4, 1, name="conv", **first)
    model = keras.Model(inputs, layers.Conv2D(2, 1, **first)(conv(inputs)))
    conv.bias.assign(np.arange(4.0))
    made = keras.ops.convert_to_numpy(conv(np.zeros((1, 2, 3, 4), "float32")))
    is_wrong = not np.array_equal(made[0, :, 0, 0], np.arange(4.0))
    assert is_wrong == (keras.backend.backend() == "tensorflow")
    assert is_wrong == channels.adds_bias_to_width(conv, keras.KerasTensor(made.shape))
    assert not channels.adds_bias_to_width(conv, keras.KerasTensor((1, 4, 3, 5)))
    reasons = str(ki.explain(model).left_out.get("conv"))
    assert is_wrong == ("adds it to the width" in reasons)
