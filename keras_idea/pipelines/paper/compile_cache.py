"""Compiled train steps are kept on disk, where the backend can."""

import sys

import keras


def keep_compiled(folder):
    """Lets jax keep what it compiles in a folder, and find it there again.

    A grid compiles few different programs many times: those of one seed are those
    of the next. On other backends nothing is done.

    Args:
        folder: Path of the folder.
    """
    if keras.backend.backend() != "jax":
        return
    # Not imported: the package names no backend, and Keras has loaded this one.
    config = sys.modules["jax"].config
    config.update("jax_compilation_cache_dir", str(folder))
    config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
