"""Trains models of three widths in one run, jointly: each is a part of the wider one.

    KERAS_BACKEND=jax python examples/one_run_a_family.py

A language model of bytes trains at FFN widths of 96, 64 and 32, one width per step, in
turn. The narrower models are sliced out of the widest, and saved as family/96.keras and
so on. At equal FLOPs, this was better than one run with branches, which was better than
three runs: see docs/costs_and_benefits.md. If you choose the widths later, use branches
(one_run_branches.py).
"""

import math
import pathlib

import keras

import keras_idea as ki

WIDE, NARROWER = 96, {"medium": 64, "small": 32}
STEPS = 1200
PEAK = 1e-2  # of the learning rate


def decoder():
    """A small decoder of bytes."""
    inputs = keras.Input((32,), dtype="int32")
    x = keras.layers.Embedding(256, 32)(inputs)
    for _ in range(2):
        seen = keras.layers.RMSNormalization()(x)
        x = x + keras.layers.MultiHeadAttention(4, 8)(seen, seen, use_causal_mask=True)
        x = x + ki.GatedFFN(WIDE)(keras.layers.RMSNormalization()(x))
    return keras.Model(inputs, keras.layers.Dense(256)(x))


def main():
    """Trains the family; prints the loss of each member on held-out text."""
    keras.utils.set_random_seed(0)
    corpus, folder = ki.data.open_text(paths="stdlib"), pathlib.Path("family")
    folder.mkdir(exist_ok=True)
    held_out = corpus.held_out_windows(32, limit=512)

    model = decoder()
    rate = ki.CosineDecay(PEAK, PEAK / 100, STEPS, warmup_steps=20)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(rate), loss)
    elastic = ki.ElasticCallback(NARROWER)
    model.fit(
        corpus.batches(seed=0, batch_size=32, length=32),
        steps_per_epoch=STEPS // 10,
        epochs=10,
        shuffle=False,
        callbacks=[elastic],
        verbose=0,
    )
    members = {WIDE: model}
    for name, width in NARROWER.items():
        members[width] = elastic.sliced(name)
    for width, member in members.items():
        member.save(folder / f"{width}.keras")
        loss = member.evaluate(*held_out, verbose=0)
        print(f"{width} neurons: {loss / math.log(2):.3f} bits per byte")


if __name__ == "__main__":
    main()
