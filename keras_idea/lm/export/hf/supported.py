"""Which backbones KerasHub exports to Hugging Face rightly, by `hub/hf_rules`."""

import keras

from keras_idea.errors import ExportRefused
from keras_idea.hub.families import FAMILIES
from keras_idea.hub.family import HFExport

_HINT = (
    "Train a Llama3, Mistral, Qwen or Gemma for that (its preset can be exported all "
    "the same: --preset)."
)


def hf_export_of(backbone: keras.Model) -> HFExport:
    """How KerasHub exports a stock backbone.

    Raises:
        ExportRefused: if KerasHub has no export for it, or a wrong one.
    """
    exports = {name: row.hf for name, row in FAMILIES.items() if row.hf}
    name = type(backbone).__name__
    if name not in exports:
        raise ExportRefused(
            f"KerasHub has no export to Hugging Face for {name}; it has one for "
            f"{', '.join(exports)}. {_HINT}"
        )
    for rule in exports[name].rules:
        if not rule.holds(backbone):
            raise ExportRefused(
                f"This {name} would be exported to Hugging Face wrongly: {rule.reason}"
            )
    return exports[name]
