"""transformers without its progress bars and warnings."""

import contextlib
import types
from collections.abc import Iterator


@contextlib.contextmanager
def quiet(transformers: types.ModuleType) -> Iterator[None]:
    """Without progress bars and warnings: what matters is told in an error."""
    logging = transformers.utils.logging
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
