"""Packages of the extras, imported when they are needed and not before."""

import importlib
import importlib.util
from collections.abc import Iterable
from typing import Any

from keras_idea.errors import KerasIdeaError, MissingPackage


def require(
    module: str,
    purpose: str,
    extra: str = "data",
    error: type[KerasIdeaError] = MissingPackage,
) -> Any:
    """Imports a package of an extra, or raises `error` with how to install it.

    Args:
        module: str, its import name, such as "zstandard" or "pyarrow.parquet".
        purpose: str, what needs it, for the message: "Reading 'a.jsonl.zst'".
        extra: str, the extra of this package that brings it. Default "data".
        error: class of the error, `MissingPackage` by default.

    Example:
    >>> zstandard = require("zstandard", "Reading 'a.jsonl.zst'")
    """
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        raise error(
            f"{purpose} needs the package {module.split('.')[0]!r}, which cannot be "
            f'imported ({cause}). Install it: pip install "keras-idea[{extra}]"'
        ) from cause


def missing(modules: Iterable[str]) -> list[str]:
    """Those of several import names that are not installed; none is imported."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def require_installed(
    modules: Iterable[str],
    purpose: str,
    extra: str,
    error: type[KerasIdeaError] = MissingPackage,
) -> None:
    """As `require`, of packages that another package will import."""
    absent = missing(modules)
    if absent:
        raise error(
            f"{purpose} needs {' and '.join(absent)}, not installed here: "
            f'pip install "keras-idea[{extra}]".'
        )
