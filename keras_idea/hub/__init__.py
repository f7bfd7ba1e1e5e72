"""KerasHub's models: their families, configs, inputs and tokenizers; `load`."""

from keras_idea.hub.as_mistral import as_mistral
from keras_idea.hub.loading import load

__all__ = ["as_mistral", "load"]
