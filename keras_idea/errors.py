"""The errors of this package.

`except KerasIdeaError` catches them all. What the operating system raises (a full disk,
a folder without permission) stays an `OSError`.
"""


class KerasIdeaError(Exception):
    """The base class of this package's errors. The message says what to do.

    Attributes:
        status: int. The exit status of the command line: 2: bad input; 1: failure.

    Example:
    >>> issubclass(CheckpointError, KerasIdeaError)
    True
    """

    status = 2


class ArgumentError(KerasIdeaError, ValueError):
    """Raised for an argument, or a model, that the called function does not support."""


class MissingPackage(KerasIdeaError, ImportError):
    """Raised if a package of an extra is not installed."""


class TextError(KerasIdeaError, ValueError):
    """Raised for text that cannot be trained on."""


class ConfigError(KerasIdeaError, ValueError):
    """Raised for a run that cannot be carried out as described."""


class CheckpointError(KerasIdeaError, ValueError):
    """Raised for a checkpoint that cannot be used."""


class PruningStopped(KerasIdeaError, RuntimeError):
    """Raised if a `fit` that prunes cannot end as planned."""

    status = 1


class LoadRefused(KerasIdeaError, ValueError):
    """Raised for a released checkpoint that cannot be loaded exactly."""


class ExportRefused(KerasIdeaError, ValueError):
    """Raised before an export that cannot be made; nothing is written."""


class ExportFailed(KerasIdeaError, RuntimeError):
    """Raised if an export does not pass its check; nothing of it is left."""

    status = 1
