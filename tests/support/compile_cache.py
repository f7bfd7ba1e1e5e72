"""Compiled train steps are kept on disk, where the backend can."""

import contextlib

import keras

_SECONDS = 0.2


@contextlib.contextmanager
def kept_compilations(folder):
    """Lets jax keep what it compiles in a folder, and find it there again.

    A grid compiles few different programs many times: those of one seed are those
    of the next. On other backends nothing is done; afterwards all is as before.
    """
    if keras.backend.backend() != "jax":
        yield
        return
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    def use(values):
        for name, value in values.items():
            jax.config.update(name, value)
        # jax decides once, at the first compilation, whether and where.
        compilation_cache.reset_cache()

    wanted = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": _SECONDS,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    try:
        use(wanted)
        yield
    finally:
        use(before)
