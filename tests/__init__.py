"""The tests; imported before Keras is."""

import os

# What a test compiles runs for a moment: without XLA's optimizations the suite takes
# less than half of the time on jax. `KERAS_IDEA_OPTIMIZE=1` leaves them in. (A jaxlib
# that no longer knows one of them ends at once, and says which.)
if os.environ.get("KERAS_IDEA_OPTIMIZE") != "1" and (
    os.environ.get("KERAS_BACKEND") == "jax"
):
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
    )
