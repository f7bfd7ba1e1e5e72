"""What is measured and studied; nothing here is installed."""

import os
import sys

if "tests" not in sys.modules:
    # Models of the tests are measured, without the tests' settings of XLA and threads.
    os.environ.setdefault("KERAS_IDEA_OPTIMIZED", "1")
