"""The KerasHub families whose FFNs have no gate: one row of data each.

Tried with keras_hub 0.32.0, see tests/support/hub_models.py.
"""

import dataclasses

from keras_idea.hub.family import Family, FFNLayout, HFExport

_BLOCK = FFNLayout(
    up="_feedforward_intermediate_dense", gate="", down="_feedforward_output_dense"
)
_PUBLIC = FFNLayout(
    up="feedforward_intermediate_dense", gate="", down="feedforward_output_dense"
)
_TWO_STACKS = {
    "encoder_transformer_layers": "intermediate_dim",
    "decoder_transformer_layers": "intermediate_dim",
}
_TEXT_ENCODER = {"encoder_layers": "intermediate_dim"}

UNGATED_ROWS = (
    Family("GPT2", ffns=_BLOCK, hf=HFExport()),
    *(
        Family(prefix, ffns=_BLOCK)
        for prefix in (
            "OPT",
            "GPTNeoX",
            "Bert",
            "Roberta",
            "XLMRoberta",
            "DistilBert",
            "Electra",
            "DebertaV3",
        )
    ),
    *(
        Family(prefix, ffns=dataclasses.replace(_BLOCK, stacks=_TWO_STACKS))
        for prefix in ("Bart", "Whisper")
    ),
    *(Family(prefix, ffns=_PUBLIC) for prefix in ("ESM", "RoformerV2")),
    Family(
        "Bloom",
        ffns=FFNLayout(up="_mlp_intermediate_dense", gate="", down="_mlp_output_dense"),
    ),
    Family("Falcon", ffns=FFNLayout(up="dense_h_to_4h", gate="", down="dense_4h_to_h")),
    Family(
        "FNet", ffns=FFNLayout(up="_intermediate_dense", gate="", down="_output_dense")
    ),
    Family(
        "ViT",
        ffns=FFNLayout(
            up="dense_1",
            gate="",
            down="dense_2",
            inside="mlp",
            stacks={"vit_encoder.encoder_layers": "mlp_dim"},
        ),
    ),
    Family(
        "DeiT",
        ffns=FFNLayout(
            up="mlp.dense",
            gate="",
            down="output_layer.dense",
            stacks={"deit_encoder.encoder_layers": "intermediate_dim"},
        ),
    ),
    Family(
        "DINOV2",
        ffns=FFNLayout(
            up="fc1",
            gate="",
            down="fc2",
            inside="mlp",
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
    Family(
        "SigLIPTextEncoder",
        ffns=FFNLayout(
            up="fc1", gate="", down="fc2", inside="mlp", stacks=_TEXT_ENCODER
        ),
    ),
    *(
        Family(
            prefix,
            ffns=FFNLayout(up="dense_1", gate="", down="dense_2", stacks=_TEXT_ENCODER),
        )
        for prefix in ("CLIPTextEncoder", "MetaCLIP2TextEncoder")
    ),
)
