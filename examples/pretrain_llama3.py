"""Trains a small Llama 3 with its own tokenizer on a folder of text.

    python examples/pretrain_llama3.py TEXT runs/small    # TEXT: a file or a folder

Nothing is pruned here. If you cannot download a checkpoint, use this one with
examples/prune_a_checkpoint.toml. The model has 1.6 million parameters and a vocabulary
of 2,048 byte pairs. It trains on 8 million tokens, in 40 minutes on one core of two. If
it is killed, the same command resumes it.
"""

import sys

import keras
import keras_hub
import numpy as np

import keras_idea as ki
from keras_idea._lm.data.make_tokenizer import make_tokenizer

TEXT = sys.argv[1] if len(sys.argv) > 1 else "stdlib"
FOLDER = sys.argv[2] if len(sys.argv) > 2 else "runs/small"
STEPS, EPOCH, BATCH, LENGTH, VOCABULARY = 2000, 100, 32, 128, 2048


def main(steps: int = STEPS, epoch: int = EPOCH) -> float:
    """Trains and saves `FOLDER/preset`; returns bits per byte of held-out text."""
    keras.utils.set_random_seed(0)
    sample = ki.data.open_text(paths=TEXT).train.tobytes()
    tokenizer = make_tokenizer("llama3", "bpe", sample, VOCABULARY)
    vocabulary = ki.data.tokenizer_vocabulary(tokenizer)
    corpus = ki.data.open_text(paths=TEXT, vocabulary=vocabulary)

    backbone = keras_hub.models.Llama3Backbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=4,
        num_query_heads=4,
        num_key_value_heads=4,
        hidden_dim=128,
        intermediate_dim=512,
    )
    model = keras_hub.models.Llama3CausalLM(backbone=backbone, preprocessor=None)
    schedule = ki.CosineDecay(4e-3, 4e-5, steps, warmup_steps=steps // 40)
    nats = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.1, global_clipnorm=1.0)
    model.compile(optimizer, nats, weighted_metrics=None)

    def inputs(ids: np.ndarray) -> dict[str, np.ndarray]:
        return {"token_ids": ids, "padding_mask": np.ones_like(ids)}

    x, y = corpus.held_out_windows(LENGTH, limit=512)
    checkpoint = ki.Checkpoint(f"{FOLDER}/checkpoints", every=2, keep=1)
    begun = checkpoint.restore(model)
    batches = corpus.batches(
        seed=0, batch_size=BATCH, length=LENGTH, start_step=begun * epoch
    )
    # The base class's `fit`: KerasHub's takes no generator.
    keras.Model.fit(
        model,
        ((inputs(ids), targets) for ids, targets in batches),
        steps_per_epoch=epoch,
        epochs=steps // epoch,
        initial_epoch=begun,
        validation_data=(inputs(x), y),
        validation_batch_size=BATCH,
        callbacks=[checkpoint],
        shuffle=False,
        verbose=2,
    )
    judged = {"batch_size": BATCH, "verbose": 0, "return_dict": True}
    loss = keras.Model.evaluate(model, inputs(x), y, **judged)["loss"]
    bits = loss / corpus.bytes_per_token(y) / float(np.log(2.0))
    preprocessor = keras_hub.models.Llama3CausalLMPreprocessor(tokenizer, LENGTH)
    whole = keras_hub.models.Llama3CausalLM(backbone, preprocessor=preprocessor)
    whole.save_to_preset(f"{FOLDER}/preset")
    size = model.count_params()
    print(f"{size:,} parameters, {bits:.3f} bits per byte; {FOLDER}/preset")
    return bits


if __name__ == "__main__":
    main()
