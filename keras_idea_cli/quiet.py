"""TensorFlow imported without its greetings: about CUDA, oneDNN and the processor.

`TF_CPP_MIN_LOG_LEVEL` alone does not do since TensorFlow 2.21: what its libraries log
while they are loaded goes to stderr whatever the level, because Abseil's log is not
yet initialized then.
"""

import contextlib
import importlib.abc
import importlib.machinery
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_GREETINGS = re.compile(
    r"WARNING: All log messages before absl::|[IWE]\d{4} |To enable the following"
)


def quieten_tensorflow() -> None:
    """From now on TensorFlow is imported quietly; if it fails, all of it is told.

    The environment variable `TF_CPP_MIN_LOG_LEVEL` becomes "3" where it is not set.
    With "0" everything is told.
    """
    there = any(isinstance(finder, _QuietTensorFlow) for finder in sys.meta_path)
    if os.environ.setdefault(_LEVEL, "3") != "0" and not there:
        sys.meta_path.insert(0, _QuietTensorFlow())


class _QuietTensorFlow(importlib.abc.MetaPathFinder):
    """Finds TensorFlow where it is, and nothing else."""

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "tensorflow":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _QuietLoader(spec.loader)
        return spec


class _QuietLoader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        with _without_greetings():
            self._loader.exec_module(module)


@contextlib.contextmanager
def _without_greetings() -> Iterator[None]:
    """Holds back what is written to stderr, by libraries too; tells the rest of it."""
    if sys.stderr is None:  # a process without one
        yield
        return
    failed, stderr = True, os.dup(2)
    with tempfile.TemporaryFile() as held:
        sys.stderr.flush()
        os.dup2(held.fileno(), 2)
        try:
            yield
            failed = False
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            for line in held.read().decode(errors="replace").splitlines(keepends=True):
                if failed or not _GREETINGS.match(line):
                    sys.stderr.write(line)
