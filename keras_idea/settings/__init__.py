"""The recommended settings: their rules, and what follows from them for a model."""

from keras_idea.settings.recommended import recommended

__all__ = ["recommended"]
