"""The KerasHub families with mixtures of experts: one row of data each.

Tried with keras_hub 0.32.0, see tests/support/hub_models.py.
"""

import dataclasses

from keras_idea.hub.family import Family, FFNLayout

# Both matrices of an expert that tokens come to lie in one variable.
_FUSED = FFNLayout(
    up="_expert_feedforward_gate_dense",
    down="_expert_feedforward_output_dense",
    inside="mlp.expert_bank",
    stacks={"transformer_layers": "moe_intermediate_dim"},
    experts=True,
    packing="halves",
)
# What all tokens go through: a block without experts, or an expert beside them.
_DENSE = FFNLayout(
    up="_feedforward_gate_dense",
    gate="_feedforward_intermediate_dense",
    down="_feedforward_output_dense",
    inside="mlp",
)
_SHARED = dataclasses.replace(
    _DENSE,
    inside="mlp.shared_expert_dense",
    stacks={"transformer_layers": "shared_expert_intermediate_dim"},
)
_SHARED_3_5 = dataclasses.replace(
    _DENSE,
    inside="mlp.shared_expert",
    stacks={"transformer_layers": "shared_expert_intermediate_size"},
)

MIXTURE_ROWS = (
    Family(
        "Mixtral",
        ffns=FFNLayout(
            up="_expert_feedforward_gate_dense",
            gate="_expert_feedforward_intermediate_dense",
            down="_expert_feedforward_output_dense",
            inside="_sparse_moe_block.expert_bank",
            experts=True,
        ),
    ),
    Family("QwenMoe", ffns=_FUSED, others=(_SHARED, _DENSE)),
    Family("Qwen3Moe", ffns=_FUSED, others=(_DENSE,)),
    Family(
        "GptOss",
        ffns=FFNLayout(
            up="gate_up_proj",
            down="down_proj",
            inside="sparse_moe_block.experts",
            experts=True,
            packing="pairs",
        ),
    ),
    Family("Qwen3_5Moe", ffns=_FUSED, others=(_SHARED_3_5,)),
)
