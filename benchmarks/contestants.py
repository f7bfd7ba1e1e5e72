"""The shapes a benchmark measures, as rows of data, and the models it compares.

See step_cost.py.
"""

import dataclasses
import functools

import keras
import numpy as np

import keras_idea as ki
from keras_idea._step.algorithm import Track
from keras_idea._step.pruner import NeuronPruner
from keras_idea.hub.inputs import token_inputs
from tests.support.tiny_decoder import DecoderConfig, decoder


@dataclasses.dataclass(frozen=True)
class Shape:
    """One model shape and batch, and how long it is measured by default.

    Args:
        model_dim: int, features of the residual stream.
        num_layers: int, decoder blocks.
        num_heads: int, attention heads.
        hidden_dim: int, neurons of each FFN before pruning.
        target_dim: int, neurons of each FFN after pruning.
        sequence_length: int, tokens of a sequence.
        batch_size: int, sequences of a step.
        steps: int, timed steps of each model.
        steps_per_turn: int, timed steps before the next model has its turn.
        vocabulary_size: int, token ids.
        dtype: str, Keras dtype policy.
    """

    model_dim: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    target_dim: int
    sequence_length: int
    batch_size: int
    steps: int
    steps_per_turn: int
    vocabulary_size: int = 256
    dtype: str = "float32"

    @property
    def tokens(self):
        """int, tokens of a step."""
        return self.batch_size * self.sequence_length

    def __str__(self):
        """One line, as the tables print it."""
        return (
            f"d={self.model_dim}, {self.num_layers} layers, {self.num_heads} heads, "
            f"FFN {self.hidden_dim} -> {self.target_dim}, batch {self.batch_size} x "
            f"{self.sequence_length} tokens, {self.dtype}"
        )


_LARGE = (50304, "mixed_bfloat16")
SHAPES = {
    "tiny": Shape(16, 1, 2, 64, 24, 16, 4, 6, 2),
    "small": Shape(64, 2, 4, 512, 192, 64, 32, 160, 4),
    "medium": Shape(128, 4, 4, 1024, 384, 128, 16, 48, 3),
    # Of SmolLM2-135M, for `--model smollm2`.
    "smollm2": Shape(576, 30, 9, 1536, 1024, 128, 4, 24, 2, 49152),
    # For a GPU: the paper's models whole, as wide as they begin.
    "paper-300m": Shape(1024, 24, 16, 8192, 3072, 1024, 8, 40, 4, *_LARGE),
    "paper-2.8b": Shape(2048, 24, 32, 16384, 6528, 1024, 2, 20, 4, *_LARGE),
    # Two layers of the paper's 2.8B model on their way to 1.3B.
    "paper-1.3b-layer": Shape(
        2048, 2, 32, 16384, 6528, 1024, 8, 200, 10, 8192, "mixed_bfloat16"
    ),
}


def make_decoder(shape, hidden_dim, prunable):
    """A small decoder, with `GatedFFN` or `PrunableGatedFFN` layers."""
    config = DecoderConfig(
        vocabulary_size=shape.vocabulary_size,
        model_dim=shape.model_dim,
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        hidden_dim=hidden_dim,
        sequence_length=shape.sequence_length,
    )
    ffn = ki.PrunableGatedFFN if prunable else ki.GatedFFN
    return decoder(config, ffn=ffn, dtype=shape.dtype)


def make_llama3(shape, hidden_dim, prunable, num_key_value_heads=None, tied=False):
    """KerasHub's Llama3: the same stock model, prunable or not."""
    import keras_hub

    backbone = keras_hub.models.Llama3Backbone(
        vocabulary_size=shape.vocabulary_size,
        num_layers=shape.num_layers,
        num_query_heads=shape.num_heads,
        num_key_value_heads=num_key_value_heads or shape.num_heads,
        hidden_dim=shape.model_dim,
        intermediate_dim=hidden_dim,
        tie_word_embeddings=tied,
        dtype=shape.dtype,
    )
    task = keras_hub.models.Llama3CausalLM(backbone=backbone, preprocessor=None)
    # Not the task itself: its `fit` makes a pipeline of the data first, which takes
    # longer than the few steps of a turn.
    return keras.Model(task.input, task.output)


def make_ffns(shape, hidden_dim, prunable):
    """FFNs alone, without attention: where pruning has least to hide behind."""
    ids = keras.Input((shape.sequence_length,), dtype="int32")
    x = keras.layers.Embedding(shape.vocabulary_size, shape.model_dim)(ids)
    ffn = ki.PrunableGatedFFN if prunable else ki.GatedFFN
    for _ in range(shape.num_layers):
        x = x + ffn(hidden_dim)(keras.layers.RMSNormalization()(x))
    logits = keras.layers.Dense(shape.vocabulary_size, use_bias=False)(x)
    return keras.Model(ids, logits)


MODELS = {
    "decoder": make_decoder,
    "llama3": make_llama3,
    # With random weights, which cost as much as the released ones.
    "smollm2": functools.partial(make_llama3, num_key_value_heads=3, tied=True),
    "ffns": make_ffns,
}


def make_model(kind, shape, hidden_dim, prunable, jit_compile="auto"):
    """A compiled language model as a run trains it: AdamW under a cosine.

    Args:
        kind: str, a key of `MODELS`.
        shape: `Shape`.
        hidden_dim: int, neurons of each FFN.
        prunable: bool; without it the model is plain (of KerasHub: stock).
        jit_compile: "auto" or bool, as `keras.Model.compile` takes it.

    Returns:
        A compiled `keras.Model`.
    """
    model = MODELS[kind](shape, hidden_dim, prunable)
    model.compile(
        optimizer=keras.optimizers.AdamW(ki.CosineDecay(1e-3, 1e-5, 100_000)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    return model


def make_data(shape, batches):
    """Random token ids and targets: `batches` batches of int32."""
    size = (batches * shape.batch_size, shape.sequence_length + 1)
    ids = np.random.default_rng(0).integers(shape.vocabulary_size, size=size)
    return ids[:, :-1].astype("int32"), ids[:, 1:].astype("int32")


def start_pruner(model, schedule):
    """Sets the callback's pruner to work by hand; with no schedule it keeps score."""
    model.optimizer.build(model.trainable_variables)
    pruner = NeuronPruner(
        Track(ffn, schedule, scheduled=schedule is not None)
        for ffn in ki.find_ffns(model)
    )
    pruner.attach(model)
    return pruner


class EndlessPruning(ki.IdeaPruneCallback):
    """The real callback, but its run goes on over many short calls of `fit`.

    Only the refusal of a run that is too short, and what is done once a `fit` at its
    beginning and end, are left out; every batch, and every short epoch's end, costs
    what it costs a user.
    """

    begun = False

    def set_params(self, params):
        """Hides how long one `fit` is, as it is with data of unknown length."""
        super().set_params({**params, "steps": None})

    def on_train_begin(self, logs=None):
        """Begins with the first turn only."""
        if not self.begun:
            super().on_train_begin(logs)
        self.begun = True

    def on_train_end(self, logs=None):
        """Goes on in the next turn."""


def pruning_stage(shape):
    """Arguments of the contestants' pruning stage, which outlasts every turn."""
    # Four times the default run: whoever asks for more steps stays in the stage.
    return {"begin_step": 0, "prune_steps": 4 * (shape.steps + 100)}


def make_contestants(kind, shape, jit_compile="auto", names=None):
    """The models to compare: name -> (compiled model, callbacks); all, or `names`."""
    pruning = pruning_stage(shape)
    widths = (shape.hidden_dim, shape.target_dim)

    def plain(hidden_dim):
        return make_model(kind, shape, hidden_dim, False, jit_compile)

    def prunable(schedule=None, pruned=False):
        model = make_model(kind, shape, shape.hidden_dim, True, jit_compile)
        if pruned:
            start_pruner(model, schedule)
        return model

    def trained_narrow(cut):
        # As a run makes them: trained, masked to the target, then cut.
        model = prunable()
        schedule = ki.CubicWidth(*widths, begin_step=0, prune_steps=1)
        pruner = start_pruner(model, schedule)
        fit(model, shape, make_data(shape, 3))
        pruner.detach(model)
        narrow = cut(model)
        return narrow if isinstance(narrow, keras.Model) else model

    makers = {
        "wide": lambda: plain(shape.hidden_dim),
        "wide again": lambda: plain(shape.hidden_dim),
        "at rest": prunable,
        "tracking": lambda: prunable(None, pruned=True),
        "pruning": lambda: prunable(ki.CubicWidth(*widths, **pruning), pruned=True),
        "pruning + callback": prunable,
        "built narrow": lambda: plain(shape.target_dim),
        "compacted in place": lambda: trained_narrow(
            functools.partial(ki.compact, in_place=True)
        ),
        "compact(model)": lambda: trained_narrow(ki.compact),
    }
    callbacks = {"pruning + callback": [EndlessPruning(shape.target_dim, **pruning)]}
    return {name: (makers[name](), callbacks.get(name, [])) for name in names or makers}


def fit(model, shape, data, callbacks=()):
    """One epoch over the batches of `data`, silent."""
    ids, targets = data
    model.fit(
        token_inputs(model, ids),
        targets,
        batch_size=shape.batch_size,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
    )
