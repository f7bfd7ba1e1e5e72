"""Prunes a small classifier while `fit` trains it.

    KERAS_BACKEND=jax python examples/prune_in_fit.py

Two wide FFNs learn to distinguish three spirals. In the middle of `fit`, 7/8 of their
neurons are pruned and the model becomes narrow. This takes about 15 s on 2 CPU cores
and ends at a test accuracy of 0.99 or more.
"""

import keras
import numpy as np

import keras_idea as ki


def spirals(count, arms=3, seed=0):
    """Points on the arms of a spiral, and the arm that each is on."""
    random = np.random.default_rng(seed)
    arm = random.integers(0, arms, count)
    radius = random.uniform(0.1, 1.0, count)
    angle = 5.0 * radius + 2.0 * np.pi * arm / arms + random.normal(0.0, 0.08, count)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points.astype("float32"), arm


def main():
    """Trains wide, prunes and recovers in one `fit`; prints size and accuracy."""
    keras.utils.set_random_seed(0)
    x, y = spirals(20_000)
    steps = 600  # 20,000 points in batches of 100, three times

    # --- the fifteen lines -------------------------------------------------------
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(16)(inputs)
    for _ in range(2):
        hidden = hidden + ki.PrunableGatedFFN(256)(hidden)
    model = keras.Model(inputs, keras.layers.Dense(3)(hidden))
    model.compile(
        keras.optimizers.AdamW(ki.CosineDecay(3e-3, 3e-5, total_steps=steps)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    prune = ki.IdeaPruneCallback(target_dim=32, begin_step=300, prune_steps=150)
    model.fit(x, y, batch_size=100, epochs=3, verbose=2, callbacks=[prune])
    narrow = ki.compact(model)  # a plain model: GatedFFNs of 32 neurons
    # -----------------------------------------------------------------------------

    test_x, test_y = spirals(5_000, seed=1)
    _, accuracy = narrow.evaluate(test_x, test_y, batch_size=500, verbose=0)
    print(f"{narrow.count_params():,} parameters, test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
