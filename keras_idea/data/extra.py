"""Packages of the extra `data`, imported when they are needed and not before."""

import importlib


def require(module, purpose):
    """Imports a package of the extra `data`.

    Args:
        module: str, its import name, such as "zstandard" or "pyarrow.parquet".
        purpose: str, what needs it, for the message: "Reading 'a.jsonl.zst'".

    Returns:
        The module.

    Raises:
        ImportError: if it is not installed; says how to install it.

    Example:
    >>> zstandard = require("zstandard", "Reading 'a.jsonl.zst'")
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs the package {module.split('.')[0]!r}, which cannot be "
            f'imported ({error}). Install it: pip install "keras-idea[data]"'
        ) from error
