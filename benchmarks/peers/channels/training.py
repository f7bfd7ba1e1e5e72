"""Training the networks in Keras: rates, `fit`, and the wide networks themselves."""

import keras

from benchmarks.peers.channels import nets, task


def compiled(model, rate, steps):
    """The network with the task's AdamW."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.AdamW(
        keras.optimizers.schedules.CosineDecay(rate, steps),
        weight_decay=task.WEIGHT_DECAY,
        beta_1=task.BETAS[0],
        beta_2=task.BETAS[1],
        epsilon=task.EPSILON,
    )
    model.compile(optimizer, loss)
    return model


def fit(model, batches, callbacks=()):
    """One `fit` over the batches, of one epoch."""
    steps = len(batches)
    model.fit(
        (batch for batch in batches),
        steps_per_epoch=steps,
        shuffle=False,
        callbacks=list(callbacks),
        verbose=0,
    )
    return model


def trained_wide(name, seed, stages):
    """The wide network, trained in Keras: what all begin with."""
    keras.utils.set_random_seed(seed)
    model = compiled(nets.keras_net(name), stages.wide_rate, stages.wide)
    return fit(model, task.batches(seed, stages.wide))
