"""What the configs of KerasHub's backbones call the heads of their attentions.

Those of families that say how wide a head is: where it follows from the number of
heads, no stock model has fewer of the same width.
"""

from collections.abc import Mapping
from typing import TypeAlias

#: Arguments of a backbone: query heads, key/value heads, features of a head.
Arguments: TypeAlias = tuple[str, str, str]

_USUAL: Arguments = ("num_query_heads", "num_key_value_heads", "head_dim")

HEAD_ARGUMENTS: Mapping[str, Arguments] = {
    f"{family}Backbone": _USUAL
    for family in "Mistral Qwen3 Qwen3Moe Gemma Gemma3 Gemma4 GptOss".split()
}

#: Of backbones with several lists of blocks: by the attribute that is the list.
STACKED_HEAD_ARGUMENTS: Mapping[str, Mapping[str, Arguments]] = {
    "T5GemmaBackbone": {
        f"{side}_layers": (
            f"{side}_num_attention_heads",
            f"{side}_num_key_value_heads",
            f"{side}_head_dim",
        )
        for side in ("encoder", "decoder")
    }
}
