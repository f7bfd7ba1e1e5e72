"""KerasHub's models: their families, configs, inputs and tokenizers; `load`."""

from keras_idea.hub.loading import load

__all__ = ["load"]
