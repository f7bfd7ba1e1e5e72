"""Packages of the extras, imported when they are needed and not before."""

import importlib

from keras_idea.errors import MissingPackage


def require(module, purpose, extra="data"):
    """Imports a package of an extra.

    Args:
        module: str, its import name, such as "zstandard" or "pyarrow.parquet".
        purpose: str, what needs it, for the message: "Reading 'a.jsonl.zst'".
        extra: str, the extra of this package that brings it. Default "data".

    Returns:
        The module.

    Raises:
        MissingPackage: if it cannot be imported.

    Example:
    >>> zstandard = require("zstandard", "Reading 'a.jsonl.zst'")
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackage(
            f"{purpose} needs the package {module.split('.')[0]!r}, which cannot be "
            f'imported ({error}). Install it: pip install "keras-idea[{extra}]"'
        ) from error
