"""The tests; imported before Keras is.

What a test compiles runs for a moment, and two backends' processes share two cores:
without XLA's optimizations, on one thread, the suite takes less than half of the time,
and jax compiles once what several tests compile. `KERAS_IDEA_OPTIMIZED=1` leaves all
that as a user has it, `KERAS_IDEA_ENDURANCE=1` adds rows: `make endurance` runs both.
"""

import atexit
import os
import shutil
import tempfile

#: Every family trained on every backend, twenty kills.
ENDURANCE = os.environ.get("KERAS_IDEA_ENDURANCE") == "1"

#: Whether what is compiled is compiled as a user's is.
OPTIMIZED = os.environ.get("KERAS_IDEA_OPTIMIZED") == "1"

if not OPTIMIZED:
    for _threads in ("OMP_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP"):
        os.environ.setdefault(f"{_threads}_THREADS", "1")
    # A jaxlib that no longer knows one of them ends at once, and says which.
    if os.environ.get("KERAS_BACKEND") == "jax":
        os.environ.setdefault(
            "XLA_FLAGS",
            "--xla_backend_optimization_level=0 "
            "--xla_llvm_disable_expensive_passes=true "
            "--xla_cpu_use_fusion_emitters=false "
            "--xla_cpu_parallel_codegen_split_count=1",
        )
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            _programs = tempfile.mkdtemp(prefix="keras-idea-programs-")
            atexit.register(shutil.rmtree, _programs, ignore_errors=True)
            os.environ["JAX_COMPILATION_CACHE_DIR"] = _programs
            os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
            os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
