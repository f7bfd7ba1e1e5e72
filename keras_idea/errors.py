"""Every error of this package's own, under one root.

One `except KerasIdeaError` holds them all; most are a `ValueError` too, as Keras's own
refusals are.
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
    """An argument, a model or its state, that cannot be right; says what to give."""


class MissingPackage(KerasIdeaError, ImportError):
    """A package of an extra that is not installed; says how to install it."""


class TextError(KerasIdeaError, ValueError):
    """Raised for text that cannot be trained on; says what to give instead."""


class ConfigError(KerasIdeaError, ValueError):
    """A run's description that cannot be carried out; says what to change."""


class RunFolderError(KerasIdeaError, ValueError):
    """A run folder that cannot be taken; says what to do about it."""


class CheckpointError(KerasIdeaError, ValueError):
    """A checkpoint that cannot be used; says what to do about it."""


class DiskError(KerasIdeaError, OSError):
    """A disk that is full or cannot be written; names the folder and what to do."""

    status = 1


class TrainingDiverged(KerasIdeaError, RuntimeError):
    """The loss is no longer a number."""

    status = 1


class PruningStopped(KerasIdeaError, RuntimeError):
    """Pruning that does not do what was planned; says what was seen, and the cause."""

    status = 1


class EvaluationError(KerasIdeaError, ValueError):
    """What cannot be evaluated; says what to give instead."""


class LoadRefused(KerasIdeaError, ValueError):
    """A checkpoint that cannot be loaded, or not exactly; says how far off and why."""


class ExportRefused(KerasIdeaError, ValueError):
    """Raised before an impossible or disallowed export; nothing is written."""


class ExportFailed(KerasIdeaError, RuntimeError):
    """Raised for an export that did not pass its check; nothing of it is left."""

    status = 1


class ReportRefused(KerasIdeaError, ValueError):
    """A place where no report may be written; says what to do about it."""


class RunRecordError(KerasIdeaError, ValueError):
    """A folder that no report can be made of; says why."""


class ProcessError(KerasIdeaError, RuntimeError):
    """The processes of a run disagree: says which, and about what."""

    status = 1
