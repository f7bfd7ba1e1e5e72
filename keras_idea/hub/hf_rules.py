"""What must hold of a backbone, or KerasHub 0.32 exports it wrongly to Hugging Face.

Measured with transformers 5.23, each on a tiny model.
"""

from keras_idea.hub.family import HFExport, Rule, has

_ROPE = has(
    "rope_scaling_factor", 1.0, "KerasHub leaves the scaling of the positions out"
)
_GEMMA2 = "KerasHub exports Gemma 2 as Gemma 1, which computes something else"
_NO_OTHER = "KerasHub's export to Hugging Face knows no other"

PLAIN_POSITIONS = HFExport((_ROPE,))
GEMMA = HFExport(
    (
        has("use_post_ffw_norm", False, _GEMMA2),
        has("use_post_attention_norm", False, _GEMMA2),
        has("attention_logit_soft_cap", None, _GEMMA2),
        has("final_logit_soft_cap", None, _GEMMA2),
        has("use_sliding_window_attention", False, _GEMMA2),
        has("num_key_value_heads", 1, "KerasHub exports the first of them only"),
        Rule(
            lambda b: b.num_query_heads * b.head_dim == b.hidden_dim,
            "KerasHub transposes the queries wrongly unless num_query_heads x "
            "head_dim is hidden_dim. Train with such a head_dim.",
        ),
        has("layer_norm_epsilon", 1e-6, "KerasHub leaves it out"),
    )
)
GEMMA3 = HFExport(
    (
        has(
            "layer_norm_epsilon",
            1e-6,
            "KerasHub's blocks compute with 1e-6 all the same",
        ),
        has("use_query_key_norm", True, _NO_OTHER),
        has("use_post_ffw_norm", True, _NO_OTHER),
        has("use_post_attention_norm", True, _NO_OTHER),
        has("attention_logit_soft_cap", None, _NO_OTHER),
        has("final_logit_soft_cap", None, _NO_OTHER),
        has("use_bidirectional_attention", False, _NO_OTHER),
        Rule(
            lambda b: (
                b.query_head_dim_normalize
                or b.num_query_heads * b.head_dim == b.hidden_dim
            ),
            "KerasHub's blocks scale the queries by head_dim all the same. Train with "
            "query_head_dim_normalize=True.",
        ),
    )
)
