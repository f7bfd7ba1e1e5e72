"""What tests share: references in float64, tiny models and texts, scripts to start.

Nothing here imports a test.
"""

import pathlib

#: Path of the repository, and of this folder.
ROOT = pathlib.Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
