"""Prunes a third of a KerasHub preset's neurons, with the original model as teacher.

    make demo                                    # makes runs/demo/preset
    python examples/prune_a_checkpoint.py        # or the path of another preset

This is examples/prune_a_checkpoint.toml in Python. You call `fit` of a teacher and its
student, paired by `ki.distiller`, and the callback prunes the student.
"""

import sys

import keras
import keras_hub
import numpy as np

import keras_idea as ki

PRESET = sys.argv[1] if len(sys.argv) > 1 else "runs/demo/preset"
PRUNE_STEPS, RECOVER_STEPS, BATCH, LENGTH = 100, 200, 32, 64


def main() -> tuple[float, float]:
    """Prunes and saves the narrow preset; returns bits per byte before and after."""
    keras.utils.set_random_seed(0)
    # They train on tokens. On JAX, an unused preprocessor makes Keras predict slowly.
    teacher = keras_hub.models.CausalLM.from_preset(PRESET, preprocessor=None)
    student = keras_hub.models.CausalLM.from_preset(PRESET, preprocessor=None)
    preprocessor = keras_hub.models.CausalLMPreprocessor.from_preset(PRESET)
    tokenizer = preprocessor.tokenizer
    vocabulary = ki.data.tokenizer_vocabulary(tokenizer)
    corpus = ki.data.open_text(paths="stdlib", vocabulary=vocabulary)

    steps = PRUNE_STEPS + RECOVER_STEPS
    schedule = ki.CosineDecay(1e-3, 1e-5, steps, warmup_steps=20)
    nats = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    student.compile(keras.optimizers.AdamW(schedule), nats, weighted_metrics=None)
    pair = ki.distiller(teacher, student)

    def inputs(ids: np.ndarray) -> dict[str, np.ndarray]:
        return {"token_ids": ids, "padding_mask": np.ones_like(ids)}

    x, y = corpus.held_out_windows(LENGTH, limit=512)
    batches = corpus.batches(seed=0, batch_size=BATCH, length=LENGTH)

    def bits() -> float:
        logits = student.predict(inputs(x), batch_size=BATCH, verbose=0)
        loss = float(nats(y, logits))
        return loss / corpus.bytes_per_token(y) / float(np.log(2.0))

    before = bits()
    prune = ki.IdeaPruneCallback(0.667, 0, PRUNE_STEPS, round_to=32)
    pair.fit(
        ((inputs(ids), targets) for ids, targets in batches),
        steps_per_epoch=50,
        epochs=steps // 50,
        callbacks=[prune],
        shuffle=False,
        verbose=2,
    )
    after = bits()
    student.preprocessor = preprocessor  # the tokenizer is saved with the model
    student.save_to_preset("runs/checkpoint-preset")
    print(f"{before:.3f} bits per byte before, {after:.3f} after")
    print("Preset: runs/checkpoint-preset")
    return before, after


if __name__ == "__main__":
    main()
