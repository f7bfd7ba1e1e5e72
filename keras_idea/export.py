"""Exports of a narrow model, checked before they are kept; one that is not says so."""

from keras_idea._lm.export.gguf import export_gguf
from keras_idea._lm.export.hf import export_hf
from keras_idea._lm.export.load import load_run
from keras_idea._lm.export.preset import export_preset
from keras_idea.errors import ExportFailed, ExportRefused

__all__ = [
    "ExportFailed",
    "ExportRefused",
    "export_gguf",
    "export_hf",
    "export_preset",
    "load_run",
]
