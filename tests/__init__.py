"""The tests; imported before Keras is.

What a test compiles runs for a moment, and two backends' processes share two cores:
without XLA's optimizations, on one thread, the suite takes less than half of the time.
`make endurance` (`KERAS_IDEA_ENDURANCE=1`) leaves both as a user has them.
"""

import os

#: Every family trained on every backend, twenty kills, and what is compiled optimized.
ENDURANCE = os.environ.get("KERAS_IDEA_ENDURANCE") == "1"

if not ENDURANCE:
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
