"""One table of some 60 ways to prune: what the six laws in tests/laws are tested on.

A case is a tiny model, how it is compiled, what is pruned of it, and what is known of
it without running the package: which groups it has, and how many of their units stay.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import keras
import numpy as np
import pytest
from keras import optimizers as o

import keras_idea as ki
from keras_idea.methods import Activation, LearnedMask, Random, Sensitivity
from tests import ENDURANCE, OPTIMIZED
from tests.support import case_models as m
from tests.support import conv_nets, helpers, hub_models
from tests.support import users_models as users
from tests.support.seconds import BACKENDS

BEGIN, STEPS, TOTAL, BATCH = 1, 3, 6, 4
FIT = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
# What `make test` runs on jax and TensorFlow: each thing that a backend does otherwise.
ON_EACH = (
    "gated",
    "batch norm",
    "called twice",
    "a custom train step",
    "own gated",
    "mixed float16",
    "AdamW, a schedule and a clipped norm",
    "amsgrad and averages",
    "averages put in place",
    "accumulated",
    "by activation",
    "learned mask",
    "progressive",
    "heads and neurons",
    "channels",
    "channels, grouped",
    "hub llama3",
)
AT_NIGHT = (
    "hub qwen3",
    "hub t5",
    "hub roberta",
    "hub gemma, heads",
    "hub qwen3, heads",
)


def _sgd():
    return o.SGD(0.01, momentum=0.9)


def _adamw():
    return o.AdamW(0.01)


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to prune.

    Attributes:
        make: function without arguments: a built model.
        says: what `explain` does: "NAME 12 neurons, ...; NAME REASON, ..."; behind the
            semicolon are other layers, and a word of the reason (<: it reads).
        kept: units that stay of each group that is pruned.
        optimizer: function without arguments.
        targets: as of `IdeaPruneCallback`; None for a budget in `prune`.
        prune: function without arguments: further arguments of `IdeaPruneCallback`.
        compact: "end" or "progressive".
        without: laws that do not hold, or for which the model stands elsewhere in the
            table: "narrow", "compacts", "loads", "explains".
        also: "algorithm", "resumes", "elastic".
        within: of the largest output, by how much two models may differ.
        epochs: of TOTAL batches each.
    """

    name: str
    make: Callable[[], keras.Model]
    says: str
    kept: Sequence[int]
    optimizer: Callable = _sgd
    targets: dict | None = dataclasses.field(default_factory=lambda: {"neurons": 0.5})
    prune: Callable[[], dict] = dict
    compact: str = "end"
    without: str = ""
    also: str = ""
    within: float = 1e-5
    epochs: int = 1

    def build(self):
        """A compiled model, with the same weights every time."""
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(0)
        model = self.make()
        if not m.is_hub(model):
            m.drawn(model)
        arguments = {"loss": m.loss_of(model)}
        if keras.backend.backend() == "tensorflow" and not (ENDURANCE or OPTIMIZED):
            arguments["jit_compile"] = False  # XLA takes most of a case's time
        if hasattr(model, "backbone"):
            arguments["weighted_metrics"] = None
        model.compile(self.optimizer(), **arguments)
        return model

    def data(self, model, count=TOTAL * BATCH):
        """Inputs and targets, always the same."""
        rng = np.random.default_rng(1)
        if m.is_hub(model) and isinstance(model.input, dict):
            x, y = hub_models.batch(model, rng, count)
            if hasattr(model, "backbone"):
                return x, y
        elif isinstance(model, helpers.Subclassed):
            x = rng.normal(size=(count, 5, 8)).astype("float32")
        else:
            x = users.inputs_of(model, rng, count)
        y = [
            rng.normal(size=(count, *(n or 6 for n in out.shape[1:])))
            for out in keras.tree.flatten(m.outputs_of(model, x))
        ]
        y = [part.astype("float32") for part in y]
        return x, keras.tree.pack_sequence_as(m.outputs_of(model, x), y)

    @property
    def groups(self):
        """List of "NAME UNITS KIND"."""
        return [row for row in self.says.partition("; ")[0].split(", ") if row]

    @property
    def left(self):
        """List of (pattern of a name, word of the reason)."""
        rows = self.says.partition("; ")[2].split(", ")
        return [row.split(None, 1) for row in rows if row]

    def kinds(self):
        """The kinds of units that are pruned."""
        return list(self.targets or ["neurons"])

    def pruned(self, model):
        """Handles of what is pruned of a model."""
        wanted = self.prune().get("groups") or (lambda group: True)
        return [group for group in ki.find_groups(model, self.kinds()) if wanted(group)]

    def callback(self, compact=None, **arguments):
        """The callback that prunes it."""
        budget = {} if self.targets is None else {"targets": self.targets}
        steps = {"begin_step": BEGIN, "prune_steps": STEPS}
        compact = compact or self.compact
        given = {**steps, **budget, **self.prune(), **arguments}
        return ki.IdeaPruneCallback(compact=compact, **given)


def laws(law, few=None):
    """`parametrize` for a law: its cases. `few`: as `ON_EACH`, for this law."""
    rows, few = [], ON_EACH if few is None else few
    for case in CASES:
        asked_for = law in ("algorithm", "resumes", "elastic")
        if law in case.also if asked_for else law not in case.without:
            daily = BACKENDS if case.name in few else ("torch",)
            mark = pytest.mark.daily(*(() if case.name in AT_NIGHT else daily))
            rows.append(pytest.param(case, id=case.name, marks=mark))
    return pytest.mark.parametrize("case", rows)


_2 = functools.partial
_UP = "up 12 neurons; out <output"
_TWO = "ffn_0_up 16 neurons, ffn_1_up 12 neurons; ffn_?_down <input, head output"
_OWN = "ffn_0 16 neurons, ffn_1 12 neurons; head output"
_HALF = (8, 6)


def _two(name, optimizer=_sgd, **arguments):
    """Two gated FFNs, which another row explains."""
    given = {"make": m.biased, "kept": _HALF, "without": "explains", **arguments}
    return Case(name, says=_TWO, optimizer=optimizer, **given)


def _method(name, make, **arguments):
    """Two gated FFNs by another method: what differs is the training."""
    given = {"without": "explains compacts loads", **arguments}
    return _two(name, prune=lambda: {"method": make()}, **given)


def _channels(name, says, **arguments):
    """Half of the channels of a net of `conv_nets`."""
    make, kept = _2(m.conv_net, name), conv_nets.MODELS[name][1]
    targets = {"channels": 0.5}
    name = f"channels, {name}"
    return Case(name, make, says, kept, targets=targets, **arguments)


def _hub(name, says, optimizer=_sgd, kept=(12, 12), **arguments):
    """A family of KerasHub."""
    make = _2(m.hub, name)
    return Case(f"hub {name}", make, says, kept, optimizer, **arguments)


def _heads_of(name, attention, left):
    """Half of the key/value heads of a family of KerasHub, with their query heads."""
    block = attention.partition("_%d")[0]
    says = [f"{block}_{i} 24 neurons" for i in (0, 1)]
    says += [f"{attention % i} 2 key/value heads" for i in (0, 1)]
    make = _2(m.hub, name, num_query_heads=4, num_key_value_heads=2)
    half = {"kv_groups": 0.5}
    says = f"{', '.join(says)}; {left}"
    return Case(f"hub {name}, heads", make, says, (1, 1), targets=half)


_LAYERS = "transformer_layer_0 24 neurons, transformer_layer_1 24 neurons; "
_T5 = "transformer_%scoder_layer_%d 24 neurons"

CASES = [
    # Dense layers.
    Case("mlp", m.mlp, _UP, (6,), also="algorithm"),
    Case(
        "chain of neurons",
        m.chain,
        "a 12 neurons, b 10 neurons; out <output",
        (6, 5),
        lambda: o.Adam(0.01),
        also="algorithm",
    ),
    _two("gated", _adamw, without="", also="algorithm resumes elastic"),
    Case("ungated", m.ungated, _TWO, _HALF, also="algorithm"),
    Case("einsum", m.einsum, _UP, (6,)),
    Case("batch norm", m.batch_norm, _UP, (6,), also="algorithm"),
    Case(
        "called twice",
        m.called_twice,
        "up 12 neurons; down <input, out output",
        (6,),
        also="algorithm",
    ),
    Case(
        "over time",
        m.over_time,
        "ffn/dense 12 neurons, ffn/dense_1 8 neurons; out <output",
        (6, 4),
    ),
    _two(
        "one is frozen",
        make=m.frozen,
        kept=(6,),
        prune=lambda: {"groups": lambda group: group.name != "ffn_0_up"},
    ),
    Case(
        "frozen beside", m.frozen_beside, "up 12 neurons; first norm, out <output", (6,)
    ),
    Case(
        "nested",
        m.nested,
        "up 12 neurons, down 8 neurons, sequential 10 neurons; *out <output",
        (6, 4, 5),
    ),
    Case(
        "two towers",
        m.two_towers,
        "one_up 12 neurons, other_up 12 neurons; *_down <Dot",
        (6, 6),
    ),
    Case(
        "two outputs", m.two_outputs, "up 12 neurons; ? <output", (6,), also="algorithm"
    ),
    Case(
        "blocks with a config",
        m.in_blocks,
        "one 12 neurons, two 16 neurons; *dense* <input, out output",
        (6, 8),
        also="resumes",
    ),
    Case(
        "a list of blocks",
        _2(m.undropped, users.blocks_in_a_list),
        "stack/block/sequential 12 neurons, stack/gated 12 neurons, "
        "stack/gpt_block/sequential_1 12 neurons, "
        "stack/block/multi_head_attention 2 key/value heads, "
        "stack/gpt_block/multi_head_attention_1 2 key/value heads; "
        "stack/*/*dense_? <LayerNormalization, stack/dense_4 output",
        (6, 6, 6),
        without="compacts loads",
    ),
    Case(
        "text classifier",
        _2(m.undropped, users.text_classifier),
        "block/sequential 12 neurons, dense_2 10 neurons, "
        "block/multi_head_attention 2 key/value heads; "
        "block/sequential/dense_1 <LayerNormalization, dense_3 <output",
        (6, 5),
        without="loads",
    ),
    Case(
        "miniature GPT",
        _2(m.undropped, users.miniature_gpt),
        "gpt_block/sequential 12 neurons, "
        "gpt_block/multi_head_attention 2 key/value heads; "
        "gpt_block/*/dense_1 <output, dense_2 output",
        (6,),
        without="loads",
    ),
    Case(
        "vision transformer",
        _2(m.undropped, users.vision_transformer),
        "dense 12 neurons, dense_2 12 neurons, dense_4 10 neurons, "
        "multi_head_attention 2 key/value heads, "
        "multi_head_attention_1 2 key/value heads; dense_[13] <LayerNormalization, "
        "dense_5 <output, conv2d LayerNormalization",
        (6, 6, 5),
    ),
    Case("LoRA beside", m.lora_beside, "up 12 neurons; beside LoRA, out <output", (6,)),
    Case("regularized", _2(m.mlp, kernel_regularizer="l2"), _UP, (6,)),
    Case(
        "sigmoid, clipped by the global norm",
        _2(m.mlp, activation="sigmoid"),
        _UP,
        (6,),
        lambda: o.Adam(0.01, global_clipnorm=0.1),
    ),
    Case(
        "a custom train step",
        m.own_step,
        "ffn_up 16 neurons; ffn_down <input, head output",
        (8,),
        without="loads",
    ),
    # This package's layers.
    Case("own gated", m.own_gated, _OWN, _HALF, also="algorithm resumes"),
    Case("own ungated", m.own_ungated, _OWN, _HALF, also="elastic"),
    Case("own plain", m.own_plain, _OWN, _HALF),
    Case(
        "own in a subclass",
        m.own_subclass,
        "subclassed/prunable_gated_ffn 16 neurons, "
        "subclassed/prunable_gated_ffn_1 16 neurons, "
        "subclassed/block/prunable_gated_ffn_2 16 neurons, "
        "subclassed/block_1/prunable_gated_ffn_3 16 neurons, "
        "subclassed 8 neurons; subclassed/dense_1 <output",
        (8, 8, 8, 8, 4),
        lambda: o.Adam(0.01),
    ),
    # Precision.
    _two(
        "mixed float16",
        lambda: o.LossScaleOptimizer(o.Adam(0.01), initial_scale=8.0),
        make=_2(m.residual, dtype="mixed_float16"),
        within=2e-3,
        also="resumes",
    ),
    _two("mixed bfloat16", make=_2(m.residual, dtype="mixed_bfloat16"), within=2e-2),
    # Optimizers.
    _two(
        "AdamW, a schedule and a clipped norm",
        lambda: o.AdamW(o.schedules.CosineDecay(0.01, 20), clipnorm=1.0),
    ),
    _two("AdamW, excluded from decay", m.excluded),
    _two(
        "amsgrad and averages",
        lambda: o.Adam(0.01, amsgrad=True, use_ema=True),
        also="resumes",
    ),
    _two(
        "averages put in place",
        lambda: o.SGD(0.05, use_ema=True, ema_overwrite_frequency=5),
    ),
    _two("Lion", lambda: o.Lion(0.001)),
    _two("RMSprop", lambda: o.RMSprop(0.001, momentum=0.5, centered=True)),
    _two("Nadam", lambda: o.Nadam(0.01)),
    _two("Ftrl", lambda: o.Ftrl(0.01)),
    # Its step looks at a whole matrix, in which the zeros of a wide one count.
    _two("Muon", lambda: o.Muon(0.01), without="explains narrow loads"),
    _two(
        "accumulated",
        lambda: o.Adam(0.01, gradient_accumulation_steps=2),
        epochs=2,
        also="resumes",
    ),
    # Methods, schedules and budgets.
    _method("by magnitude", lambda: "magnitude"),
    _method("at random", lambda: Random(seed=3)),
    _method("by activation", lambda: Activation(m.calibration()), also="resumes"),
    _method("learned mask", lambda: LearnedMask(seed=1), also="resumes"),
    _method("largest rows", lambda: Sensitivity(0.8, "max", "mean"), also="algorithm"),
    _two(
        "progressive",
        _adamw,
        kept=(4, 3),
        targets={"neurons": 0.25},
        prune=lambda: {"prune_steps": 9},
        compact="progressive",
        epochs=2,
        without="explains compacts loads",
        also="resumes",
    ),
    _two(
        "every third step, rounded",
        kept=(8, 8),
        prune=lambda: {"round_to": 4, "update_every": 3},
        without="explains compacts loads",
    ),
    # Each neuron has 26 parameters and 24 products; 24 and 8 are beside them.
    _two(
        "a budget of parameters",
        kept=(6, 6),
        targets=None,
        prune=lambda: {"target_parameters": 26 * 12 + 24},
        without="explains compacts loads",
    ),
    _two(
        "a budget of operations",
        kept=(6, 6),
        targets=None,
        prune=lambda: {"target_flops": 2 * (24 * 12 + 8)},
        without="explains compacts loads",
    ),
    # Heads.
    Case(
        "heads",
        m.heads,
        "grouped_up 12 neurons, single_up 12 neurons, grouped 4 key/value heads, "
        "single 4 key/value heads; *_down <input, out output",
        (2, 2),
        targets={"kv_groups": 0.5},
    ),
    Case(
        "heads and neurons",
        _2(m.heads, ["grouped"]),
        "grouped_up 12 neurons, grouped 4 key/value heads; "
        "grouped_down <input, out output",
        (6, 2),
        lambda: o.Adam(0.01),
        targets={"neurons": 0.5, "kv_groups": 0.5},
        also="algorithm resumes",
    ),
    Case(
        "a user's attention",
        m.users_attention,
        "attention 4 key/value heads; out output",
        (2,),
        targets={"kv_groups": 0.5},
        also="algorithm",
    ),
    Case(
        "packed attention",
        m.packed_attention,
        "qkv 4 key/value heads; out output",
        (2,),
        lambda: o.Adam(0.01),
        targets={"kv_groups": 0.5},
    ),
    # Channels.
    Case(
        "channels",
        m.normed_channels,
        "first 8 channels, second 6 channels; out <output",
        (4, 3),
        targets={"channels": 0.5},
        also="algorithm resumes",
    ),
    _channels("depthwise", "conv2d 4 channels; conv2d_1 <output"),
    _channels("grouped", "conv2d 4 channels, conv2d_1 3 channels; conv2d_2 <output"),
    _channels("residual", "conv2d 6 channels; dense <output"),
    _channels(
        "dense net",
        "conv2d 4 channels, conv2d_1 4 channels, conv2d_2 4 channels, "
        "conv2d_3 6 channels; dense <output",
    ),
    _channels(
        "u-net",
        "conv2d 4 channels, conv2d_1 6 channels, conv2d_transpose 4 channels; "
        "conv2d_2 <output",
    ),
    _channels(
        "transfer",
        "conv2d 6 channels, conv2d_1 8 channels; dense <output",
    ),
    # KerasHub.
    _hub(
        "llama3",
        _LAYERS + "*output_dense <LlamaLayerNorm, *self_attention tied",
        lambda: o.AdamW(0.002, epsilon=1e-4),
        also="algorithm elastic",
    ),
    _hub(
        "llama tied",
        _LAYERS + "*output_dense <LlamaLayerNorm, *self_attention tied",
        also="resumes",
    ),
    _hub(
        "gemma2",
        "decoder_block_0 24 neurons, decoder_block_1 24 neurons; "
        "*/ffw_linear <RMSNormalization, */attention tied",
    ),
    _hub(
        "qwen3",
        _LAYERS + "*self_attention tied, *output_dense <Qwen3LayerNorm",
    ),
    _hub("gpt2", _LAYERS + "*output_dense <LayerNorm, *self_attention config"),
    _hub(
        "mixtral",
        "transformer_layer_0/mixtral_sparse_moe_block/experts 24 neurons, "
        "transformer_layer_1/mixtral_sparse_moe_block_1/experts 24 neurons; "
        "*gate_dense Softmax, *self_attention tied",
        also="elastic",
    ),
    _hub(
        "gpt oss",
        "transformer_layer_0/sparse_moe_block/experts 24 neurons, "
        "transformer_layer_1/sparse_moe_block/experts 24 neurons; "
        "*router_dense TopK, *self_attention tied",
    ),
    _hub(
        "t5",
        ", ".join(_T5 % (part, i) for part in ("en", "de") for i in (0, 1))
        + "; */*_attention input, transformer_*layer_?/output_projector <T5LayerNorm",
        kept=(12,) * 4,
    ),
    _hub(
        "roberta",
        _LAYERS + "*output_dense <output, *attention_layer config",
    ),
    _heads_of(
        "mistral",
        "transformer_layer_%d/self_attention",
        "*output_dense <MistralLayerNorm",
    ),
    _heads_of("gemma", "decoder_block_%d/attention", "*/ffw_linear <RMSNormalization"),
    _heads_of(
        "qwen3", "transformer_layer_%d/self_attention", "*output_dense <Qwen3LayerNorm"
    ),
    _hub(
        "vit",
        "vit_encoder/transformer_block_1/mlp 24 neurons, "
        "vit_encoder/transformer_block_2/mlp 24 neurons; "
        "*/dense_2 <output, */patch_embedding output, */mha config",
    ),
]
