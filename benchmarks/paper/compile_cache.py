"""Compiled train steps are kept on disk, where the backend can."""

import contextlib

import keras

_SECONDS = 0.2


@contextlib.contextmanager
def kept_compilations(folder):
    """Lets jax keep what it compiles in a folder, and find it there again.

    A grid compiles few different programs many times: those of one seed are those
    of the next. On other backends nothing is done.

    Args:
        folder: Path of the folder.

    Yields:
        None; afterwards everything is as before.
    """
    if keras.backend.backend() != "jax":
        yield
        return
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    config, cache = jax.config, compilation_cache
    wanted = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": _SECONDS,
    }
    before = {name: getattr(config, name) for name in wanted}
    try:
        _set(config, cache, wanted)
        yield
    finally:
        _set(config, cache, before)


def _set(config, cache, values):
    for name, value in values.items():
        config.update(name, value)
    # jax decides once, at the first compilation, whether and where.
    cache.reset_cache()
