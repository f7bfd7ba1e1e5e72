"""The packages that an export needs."""

import importlib.util

from keras_idea.errors import ExportRefused


def require(modules, what, extra):
    """Refuses an export for which a package is missing.

    Args:
        modules: sequence of str, the modules it needs.
        what: str, the export, at the beginning of the message.
        extra: str, the extra of this package that brings them.

    Raises:
        ExportRefused: if one is not installed; which, and how to install it.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ExportRefused(
            f"{what} needs {' and '.join(missing)}, not installed here: "
            f'pip install "keras-idea[{extra}]".'
        )
