"""The wheel in an environment with jax alone: run by `make release`.

A script, not a pytest file: what is tried is installed, not this folder.
"""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).parents[1]
SMALL_RUN = """[model]
model_dim = 32
num_layers = 2
num_heads = 4
hidden_dim = 128
target_dim = 48
sequence_length = 32
[data]
batch_size = 16
[budget]
enlarge_steps = 100
prune_steps = 50
recover_steps = 50
[optimizer]
peak_learning_rate = 5e-3
warmup_steps = 10
[run]
output = "runs/small"
"""
project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
wheel = importlib.metadata.distribution("keras-idea")

# What it says of itself.
about = wheel.metadata
assert wheel.version == project["version"], wheel.version
assert about["License-Expression"] == "Apache-2.0", about["License-Expression"]
assert about["Requires-Python"] == project["requires-python"]
assert set(about.get_all("Provides-Extra")) == set(project["optional-dependencies"])
assert about["Description-Content-Type"] == "text/markdown"
assert (ROOT / "CHANGELOG.md").read_text().count(f"## [{wheel.version}]") == 1
assert f"version: {wheel.version}\n" in (ROOT / "CITATION.cff").read_text()

# What is in it, and what is not.
files = {str(path) for path in wheel.files if "__pycache__" not in path.parts}
sources = {
    str(path.relative_to(ROOT))
    for folder in ("keras_idea", "keras_idea_cli")
    for pattern in ("*.py", "py.typed", "*.toml", "*.json")
    for path in (ROOT / folder).rglob(pattern)
}
assert sources <= files, sources - files
assert {path.split("/")[0] for path in files - sources} <= {
    "..",
    f"keras_idea-{wheel.version}.dist-info",
}, files - sources
[sdist] = (ROOT / "dist").glob("*.tar.gz")
with tarfile.open(sdist) as archive:
    names = {name.partition("/")[2] for name in archive.getnames()}
assert {"README.md", "LICENSE", "pyproject.toml", "keras_idea/py.typed"} <= names

# What the README says, and the command, in an empty folder.
bin_folder = pathlib.Path(sys.executable).parent
[lines] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
with tempfile.TemporaryDirectory() as folder:
    where = {
        "cwd": folder,
        "env": {**os.environ, "KERAS_BACKEND": "jax"},
        "check": True,
    }
    where["env"].pop("PYTHONPATH", None)
    check = "import keras_idea; print(keras_idea.__file__)"
    run = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, **where
    )
    assert str(ROOT / "keras_idea") not in run.stdout, run.stdout
    subprocess.run([sys.executable, "-c", lines], stdout=subprocess.DEVNULL, **where)
    assert (pathlib.Path(folder) / "narrow.keras").stat().st_size > 0
    command = bin_folder / "keras-idea"
    (pathlib.Path(folder) / "small_run.toml").write_text(SMALL_RUN)
    subprocess.run([command, "train", "small_run.toml"], **where)
    plan = subprocess.run(
        [command, "plan", "small_run.toml"], capture_output=True, text=True, **where
    )
    assert "34,272" in plan.stdout, plan.stdout

print(f"keras-idea {wheel.version}: the wheel is sound, README and command run")
