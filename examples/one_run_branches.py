"""Trains models of three widths in one run, by branches: widths may be chosen later.

    KERAS_BACKEND=jax python examples/one_run_branches.py

A language model of bytes trains wide at a constant learning rate. Then its FFN width
falls to 96, 64 and 32. At each width, a copy recovers while its learning rate decays,
and is saved as branches/96.keras and so on. If you know the widths before the run,
train them jointly (one_run_a_family.py): see docs/costs_and_benefits.md.
"""

import math
import pathlib

import keras

import keras_idea as ki

WIDE, WIDTHS = 128, (96, 64, 32)
ENLARGE, PRUNE, RECOVER = 400, 100, 200  # steps
PEAK = 1e-2  # of the learning rate


def decoder():
    """A small decoder of bytes."""
    inputs = keras.Input((32,), dtype="int32")
    x = keras.layers.Embedding(256, 32)(inputs)
    for _ in range(2):
        seen = keras.layers.RMSNormalization()(x)
        x = x + keras.layers.MultiHeadAttention(4, 8)(seen, seen, use_causal_mask=True)
        x = x + ki.PrunableGatedFFN(WIDE)(keras.layers.RMSNormalization()(x))
    return keras.Model(inputs, keras.layers.Dense(256)(x))


def main():
    """Trains the family; prints the loss of each member on held-out text."""
    keras.utils.set_random_seed(0)
    corpus, folder = ki.data.open_text(paths="stdlib"), pathlib.Path("branches")
    folder.mkdir(exist_ok=True)
    held_out = corpus.held_out_windows(32, limit=512)

    def fit(model, start, steps, epochs, callback):
        batches = corpus.batches(seed=0, batch_size=32, length=32, start_step=start)
        model.fit(
            batches,
            steps_per_epoch=steps // epochs,
            epochs=epochs,
            shuffle=False,
            callbacks=[callback],
            verbose=0,
        )

    model = decoder()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(PEAK), loss)
    done = 0
    for width in WIDTHS:
        begin = done if done else ENLARGE
        # Steps count from the optimizer's first step, over all of these `fit`s.
        prune = ki.IdeaPruneCallback(width, begin_step=begin, prune_steps=PRUNE)
        fit(model, done, begin + PRUNE - done, 1, prune)
        done = begin + PRUNE

        model.save(folder / "trunk.keras")  # with the state of its optimizer
        member = keras.models.load_model(folder / "trunk.keras")
        decay = keras.callbacks.LearningRateScheduler(lambda i: PEAK * (1 - i / 10))
        fit(member, done, RECOVER, 10, decay)
        ki.compact(member).save(folder / f"{width}.keras")
        loss = member.evaluate(*held_out, verbose=0)
        print(f"{width} neurons: {loss / math.log(2):.3f} bits per byte")


if __name__ == "__main__":
    main()
