"""Tiny KerasHub models, one or more for each family that can be pruned, as data.

`keras_hub` is imported inside the functions: it brings TensorFlow with it.
"""

import dataclasses

import keras
import numpy as np

VOCABULARY, LENGTH, FULL = 32, 8, 24


@dataclasses.dataclass(frozen=True)
class Row:
    """One configuration.

    Attributes:
        backbone: str, class name in `keras_hub.models`.
        task: str, name of the class that gives it logits.
        arguments: dict, what the backbone's constructor is given.
        widths: dict, argument of the width -> how much of it a neuron takes.
        ffns: int, FFNs it has.
        scale: float, how far its weights are spread, for logits of about 1.
        packing: str, how one variable of a mixture's experts holds two matrices:
            "halves" or "pairs"; "" if it holds one.
    """

    backbone: str
    task: str
    arguments: dict
    widths: dict = dataclasses.field(default_factory=lambda: {"intermediate_dim": 1})
    ffns: int = 2
    scale: float = 0.2
    packing: str = ""  # of a mixture's experts


_DECODER = {
    "vocabulary_size": VOCABULARY,
    "num_layers": 2,
    "num_query_heads": 2,
    "num_key_value_heads": 1,
    "hidden_dim": 16,
    "intermediate_dim": FULL,
}
_HEADS_OF_8 = {**_DECODER, "head_dim": 8}
_GEMMA = {**_HEADS_OF_8, "intermediate_dim": 2 * FULL}
_GEMMA2 = {
    **_GEMMA,
    "query_head_dim_normalize": False,
    "use_post_ffw_norm": True,
    "use_post_attention_norm": True,
    "attention_logit_soft_cap": 5.0,
    "final_logit_soft_cap": 10.0,
    "use_sliding_window_attention": True,
    "sliding_window_size": 4,
}
_GEMMA3 = {
    **_HEADS_OF_8,
    "image_size": None,
    "use_post_ffw_norm": True,
    "use_post_attention_norm": True,
    "use_sliding_window_attention": True,
    "sliding_window_size": 4,
}
# With "linear_attention" jax compiles a loop of 64 steps, for half a minute: that
# is a test of its own.
_QWEN3_5 = {
    **_HEADS_OF_8,
    "layer_types": ["full_attention", "full_attention"],
    "partial_rotary_factor": 0.5,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
# Keys and values shared by the last two layers, and an
# embedding of its own for each layer: what the small Gemma 4 models have.
_GEMMA4 = {
    **_HEADS_OF_8,
    "num_layers": 4,
    "image_size": None,
    "sliding_window_size": 4,
    "sliding_window_pattern": 2,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 8,
    "final_logit_soft_cap": 10.0,
}
_SMOLLM3 = {
    "vocabulary_size": VOCABULARY,
    "hidden_dim": 16,
    "intermediate_dim": FULL,
    "num_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "rope_layer_enabled_list": [True, False],
    "layer_types": ["full_attention"] * 2,
    "mlp_bias": False,
    "layer_norm_epsilon": 1e-5,
    "max_position_embeddings": 32,
    "rope_theta": 10000.0,
    "partial_rotary_factor": 1.0,
}
_T5 = {
    "vocabulary_size": VOCABULARY,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": FULL,
    "dropout": 0.0,
    "activation": "gelu",
    "use_gated_activation": True,
    "tie_embedding_weights": False,
}
_T5GEMMA = {
    "vocabulary_size": VOCABULARY,
    "encoder_hidden_dim": 16,
    "encoder_intermediate_dim": FULL,
    "encoder_num_layers": 2,
    "encoder_num_attention_heads": 2,
    "encoder_num_key_value_heads": 1,
    "encoder_head_dim": 8,
    "encoder_layer_types": ["sliding_attention", "full_attention"],
    "decoder_hidden_dim": 16,
    "decoder_intermediate_dim": FULL,
    "decoder_num_layers": 2,
    "decoder_num_attention_heads": 2,
    "decoder_num_key_value_heads": 1,
    "decoder_head_dim": 8,
    "decoder_layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 4,
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 10.0,
    "query_pre_attn_scalar": 8.0,
}
_T5GEMMA_WIDTHS = {"encoder_intermediate_dim": 1, "decoder_intermediate_dim": 1}
_EDREC = {
    "vocab_size": VOCABULARY,
    "num_layers_enc": 1,
    "num_layers_dec": 2,
    "hidden_dim": 16,
    "intermediate_dim": FULL,
    "num_heads": 2,
}
_MIXTURE = {**_DECODER, "num_experts": 4, "top_k": 2}
_QWEN_MOE = {
    **_MIXTURE,
    "moe_intermediate_dim": FULL,
    "norm_top_k_prob": True,
    "decoder_sparse_step": 1,
}
_QWEN3_5_MOE = {
    **_QWEN3_5,
    "num_experts": 4,
    "top_k": 2,
    "moe_intermediate_dim": FULL,
    "shared_expert_intermediate_size": FULL,
}
del _QWEN3_5_MOE["intermediate_dim"]
_PLAIN = {
    "vocabulary_size": VOCABULARY,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": FULL,
}
_POSITIONS = {**_PLAIN, "dropout": 0.0, "max_sequence_length": 48}
_FALCON = {**_PLAIN, "num_attention_heads": 2}
del _FALCON["num_heads"]
_FNET = {**_POSITIONS}
del _FNET["num_heads"]
_ELECTRA = {**_POSITIONS, "vocab_size": VOCABULARY, "embedding_dim": 16}
del _ELECTRA["vocabulary_size"]
_WHISPER = {
    **_PLAIN,
    "num_mels": 8,
    "max_encoder_sequence_length": 16,
    "max_decoder_sequence_length": LENGTH,
}
_IMAGES = {
    "image_shape": (16, 16, 3),
    "patch_size": (8, 8),
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
}
_TEXT = {**_PLAIN, "embedding_dim": 16, "max_sequence_length": LENGTH}

MODELS = {
    "llama": Row("LlamaBackbone", "LlamaCausalLM", _DECODER),
    "llama tied": Row(
        "LlamaBackbone", "LlamaCausalLM", {**_DECODER, "tie_word_embeddings": True}
    ),
    "llama3": Row("Llama3Backbone", "Llama3CausalLM", _DECODER),
    "mistral": Row(
        "MistralBackbone", "MistralCausalLM", {**_DECODER, "sliding_window": 4}
    ),
    "qwen": Row("QwenBackbone", "QwenCausalLM", _DECODER),
    "qwen3": Row("Qwen3Backbone", "Qwen3CausalLM", _HEADS_OF_8),
    "qwen3.5": Row("Qwen3_5Backbone", "Qwen3_5CausalLM", _QWEN3_5),
    "phi3": Row("Phi3Backbone", "Phi3CausalLM", _DECODER),
    "gemma": Row(
        "GemmaBackbone", "GemmaCausalLM", _GEMMA, widths={"intermediate_dim": 2}
    ),
    "gemma2": Row(
        "GemmaBackbone", "GemmaCausalLM", _GEMMA2, widths={"intermediate_dim": 2}
    ),
    "gemma3": Row("Gemma3Backbone", "Gemma3CausalLM", _GEMMA3),
    "gemma4": Row("Gemma4Backbone", "Gemma4CausalLM", _GEMMA4, ffns=4, scale=0.15),
    "smollm3": Row("SmolLM3Backbone", "SmolLM3CausalLM", _SMOLLM3),
    "smollm3 biased": Row(
        "SmolLM3Backbone", "SmolLM3CausalLM", {**_SMOLLM3, "mlp_bias": True}
    ),
    "t5": Row("T5Backbone", "T5Seq2SeqLM", _T5, ffns=4),
    "t5gemma": Row(
        "T5GemmaBackbone", "T5GemmaSeq2SeqLM", _T5GEMMA, _T5GEMMA_WIDTHS, ffns=4
    ),
    # Decoder and encoder of other sizes.
    "t5gemma uneven": Row(
        "T5GemmaBackbone",
        "T5GemmaSeq2SeqLM",
        {
            **_T5GEMMA,
            "encoder_hidden_dim": 12,
            "encoder_intermediate_dim": 20,
            "cross_attention_hidden_size": 12,
        },
        _T5GEMMA_WIDTHS,
        ffns=4,
    ),
    "edrec": Row("EdRecBackbone", "EdRecSeq2SeqLM", _EDREC, ffns=3, scale=0.15),
    # Mixtures of experts.
    "mixtral": Row("MixtralBackbone", "MixtralCausalLM", _MIXTURE),
    "qwen moe": Row(
        "QwenMoeBackbone",
        "QwenMoeCausalLM",
        {**_QWEN_MOE, "shared_expert_intermediate_dim": FULL},
        {"moe_intermediate_dim": 1, "shared_expert_intermediate_dim": 1},
        ffns=4,
        packing="halves",
    ),
    # Its first block has no experts.
    "qwen3 moe": Row(
        "Qwen3MoeBackbone",
        "Qwen3MoeCausalLM",
        {**_QWEN_MOE, "head_dim": 8, "mlp_only_layers": [0]},
        {"moe_intermediate_dim": 1, "intermediate_dim": 1},
        packing="halves",
    ),
    "qwen3.5 moe": Row(
        "Qwen3_5MoeBackbone",
        "Qwen3_5MoeCausalLM",
        _QWEN3_5_MOE,
        {"moe_intermediate_dim": 1, "shared_expert_intermediate_size": 1},
        ffns=4,
        packing="halves",
    ),
    "gpt oss": Row("GptOssBackbone", "GptOssCausalLM", _MIXTURE, packing="pairs"),
    # Without a gate.
    "gpt2": Row("GPT2Backbone", "GPT2CausalLM", _POSITIONS),
    "opt": Row("OPTBackbone", "OPTCausalLM", _POSITIONS),
    "gpt neox": Row("GPTNeoXBackbone", "GPTNeoXCausalLM", _POSITIONS),
    "bloom": Row("BloomBackbone", "BloomCausalLM", {**_PLAIN, "dropout": 0.0}),
    "falcon": Row("FalconBackbone", "FalconCausalLM", _FALCON),
    "bart": Row("BartBackbone", "BartSeq2SeqLM", _POSITIONS, ffns=4),
    "t5 plain": Row(
        "T5Backbone", "T5Seq2SeqLM", {**_T5, "use_gated_activation": False}, ffns=4
    ),
}

#: Backbones without a gate and without a task that has logits.
ENCODERS = {
    "bert": Row("BertBackbone", "", {**_POSITIONS, "num_segments": 2}),
    "roberta": Row("RobertaBackbone", "", _POSITIONS),
    "xlm roberta": Row("XLMRobertaBackbone", "", _POSITIONS),
    "distilbert": Row("DistilBertBackbone", "", _POSITIONS),
    "electra": Row("ElectraBackbone", "", _ELECTRA),
    "deberta": Row("DebertaV3Backbone", "", {**_POSITIONS, "bucket_size": 4}),
    "fnet": Row("FNetBackbone", "", _FNET),
    "esm": Row("ESMBackbone", "", _PLAIN),
    "roformer": Row("RoformerV2Backbone", "", {**_PLAIN, "head_size": 8}),
    "whisper": Row("WhisperBackbone", "", _WHISPER, ffns=4),
    "vit": Row("ViTBackbone", "", {**_IMAGES, "mlp_dim": FULL}, widths={"mlp_dim": 1}),
    "deit": Row("DeiTBackbone", "", {**_IMAGES, "intermediate_dim": FULL}),
    "dinov2": Row(
        "DINOV2Backbone", "", {**_IMAGES, "patch_size": 8, "intermediate_dim": FULL}
    ),
    "siglip text": Row("SigLIPTextEncoder", "", _TEXT),
    "clip text": Row("CLIPTextEncoder", "", _TEXT),
    "metaclip text": Row("MetaCLIP2TextEncoder", "", {**_TEXT, "eos_token_id": 1}),
}
#: Those with experts.
MIXTURES = ("mixtral", "qwen moe", "qwen3 moe", "qwen3.5 moe", "gpt oss")


def tiny_backbone(name, **overrides):
    """The backbone of a row of `MODELS`, with random weights."""
    import keras_hub

    row = MODELS[name]
    cls = getattr(keras_hub.models, row.backbone)
    return randomize(cls(**{**row.arguments, **overrides}), row.scale)


def tiny_lm(name, task_arguments=None, **overrides):
    """The task of a row around its backbone: it has logits, and no preprocessor."""
    import keras_hub

    row = MODELS[name]
    cls = getattr(keras_hub.models, row.task)
    backbone = tiny_backbone(name, **overrides)
    task = cls(backbone=backbone, preprocessor=None, **(task_arguments or {}))
    return randomize(task, row.scale)


def randomize(model, scale):
    """Gives a model the same weights in every run, far from their defaults.

    Defaults hide mistakes: biases of zero, norms of one, logits that hardly vary.
    """
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        values = scale * rng.normal(size=variable.shape)
        # KerasHub draws the sinks of GPT-OSS's attentions, each time others.
        if len(variable.shape) == 1 and variable.name != "sinks":
            values = keras.ops.convert_to_numpy(variable.value) + values / 3
        variable.assign(values)
    return model


def batch(model, rng, size=4, length=LENGTH):
    """Inputs and targets for a row's task; two sequences of three end in padding."""
    backbone = getattr(model, "backbone", model)
    ids = rng.integers(1, VOCABULARY, (size, length), dtype="int32")
    lengths = length - np.arange(size) % 3
    mask = (np.arange(length) < lengths[:, None]).astype("int32")
    x = {}
    for name, tensor in backbone.input.items():
        if name.endswith("padding_mask"):
            x[name] = mask.astype(tensor.dtype)
        elif name == "position_ids":
            x[name] = np.tile(np.arange(length, dtype="int32"), (size, 1))
        else:
            x[name] = ids if not x or name == "token_ids" else np.roll(ids, 1, axis=1)
    return x, np.roll(ids, -1, axis=1)
