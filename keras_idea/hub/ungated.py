"""The KerasHub families whose FFNs have no gate: one row of data each.

Tried with keras_hub 0.32.0, see tests/support/hub_models.py.
"""

import dataclasses

from keras_idea.hub.family import Family, FFNLayout, HFExport

_BLOCK = FFNLayout(
    up="_feedforward_intermediate_dense", down="_feedforward_output_dense"
)
_PUBLIC = FFNLayout(
    up="feedforward_intermediate_dense", down="feedforward_output_dense"
)
_NUMBERED = FFNLayout(up="dense_1", down="dense_2")
_FC = FFNLayout(up="fc1", down="fc2", inside="mlp")
TWO_STACKS = {
    "encoder_transformer_layers": "intermediate_dim",
    "decoder_transformer_layers": "intermediate_dim",
}
_TEXT_ENCODER = {"encoder_layers": "intermediate_dim"}

UNGATED_ROWS = (
    Family("GPT2", ffns=_BLOCK, hf=HFExport()),
    *(
        Family(prefix, ffns=_BLOCK)
        for prefix in (
            "OPT GPTNeoX Bert Roberta XLMRoberta DistilBert Electra DebertaV3".split()
        )
    ),
    *(
        Family(prefix, ffns=dataclasses.replace(_BLOCK, stacks=TWO_STACKS))
        for prefix in ("Bart", "Whisper")
    ),
    *(Family(prefix, ffns=_PUBLIC) for prefix in ("ESM", "RoformerV2")),
    Family(
        "Bloom", ffns=FFNLayout(up="_mlp_intermediate_dense", down="_mlp_output_dense")
    ),
    Family("Falcon", ffns=FFNLayout(up="dense_h_to_4h", down="dense_4h_to_h")),
    Family("FNet", ffns=FFNLayout(up="_intermediate_dense", down="_output_dense")),
    Family(
        "ViT",
        ffns=dataclasses.replace(
            _NUMBERED, inside="mlp", stacks={"vit_encoder.encoder_layers": "mlp_dim"}
        ),
    ),
    Family(
        "DeiT",
        ffns=FFNLayout(
            up="mlp.dense",
            down="output_layer.dense",
            stacks={"deit_encoder.encoder_layers": "intermediate_dim"},
        ),
    ),
    Family(
        "DINOV2",
        ffns=dataclasses.replace(
            _FC,
            stacks={"encoder.layers": "intermediate_dim"},
            requires={
                "use_swiglu_ffn": (
                    False,
                    "its gate and its up matrix are one, and its config holds another "
                    "number than their width",
                )
            },
        ),
    ),
    Family("SigLIPTextEncoder", ffns=dataclasses.replace(_FC, stacks=_TEXT_ENCODER)),
    *(
        Family(prefix, ffns=dataclasses.replace(_NUMBERED, stacks=_TEXT_ENCODER))
        for prefix in ("CLIPTextEncoder", "MetaCLIP2TextEncoder")
    ),
)
