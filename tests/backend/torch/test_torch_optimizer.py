"""A loop of one's own, of which the callback is told the epochs alone."""

import keras
import numpy as np
import pytest
import torch

import keras_idea as ki


@pytest.mark.parametrize("of_keras", [True, False])
def test_an_optimizer_of_torch_stops_the_run(of_keras):
    rng = np.random.default_rng(0)
    x = keras.ops.convert_to_tensor(rng.normal(size=(32, 8)).astype("float32"))
    layers = [keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(3)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    other = torch.optim.Adam(model.parameters(), 1e-2)
    prune = ki.IdeaPruneCallback(4, begin_step=4, prune_steps=4)
    callbacks = keras.callbacks.CallbackList([prune], model=model)

    def train():
        callbacks.on_train_begin()
        for epoch in range(3):
            callbacks.on_epoch_begin(epoch)
            for batch in x.split(8):
                loss = ((model(batch, training=True) - batch[:, :3]) ** 2).mean()
                model.zero_grad()
                loss.backward()
                if of_keras:
                    weights = model.trainable_weights
                    with torch.no_grad():
                        model.optimizer.apply([w.value.grad for w in weights], weights)
                else:
                    other.step()
            callbacks.on_epoch_end(epoch)
        callbacks.on_train_end()

    if of_keras:
        train()
        assert model.layers[0].units == 4
    else:
        with pytest.raises(RuntimeError, match="pruning saw"):
            train()
