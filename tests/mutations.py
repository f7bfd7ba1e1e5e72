"""Does the suite find a fault? `python -m tests.mutations`, on a copy of the code.

Each row of `MUTATIONS` puts one fault into the copy, some of them old ones of ours, and
runs the part of `make test` that should find it, up to the first failure.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

from tests.support import ROOT


class Mutation(NamedTuple):
    """One fault: in `file`, `old` becomes `new`; `folders` of tests find it."""

    fault: str
    file: str
    old: str
    new: str
    folders: str
    backend: str = "torch"


_PRUNER, _CHECKPOINT = "step/pruner.py", "callbacks/checkpoint/checkpoint.py"
_RENEWAL, _MASKS = "step/scores_and_masks.py", "functional/masks.py"
MUTATIONS = (
    # Faults that were there once, or were looked for.
    Mutation(
        "scores are taken after the step",
        _PRUNER,
        "            self._step(self._of_active(grads, known), trainable_variables)\n",
        "            self._step(self._of_active(grads, known), trainable_variables)\n"
        "            renewal = (\n"
        "                [gradients.sensitivities(ffn) for ffn in ffns],\n"
        "                gradients.ends, gradients.ended)\n",
        "laws",
    ),
    Mutation(
        "only the first slot is sliced",
        "surgery/optimizer_state.py",
        "for name, slots in slots_of(part):\n                found",
        "for name, slots in list(slots_of(part))[:1]:\n                found",
        "laws",
    ),
    Mutation(
        "a mask revives",
        _MASKS,
        "rankable = ops.logical_and(alive, ops.logical_not(ops.isnan(importance)))",
        "rankable = ops.logical_not(ops.isnan(importance))",
        "laws",
    ),
    Mutation(
        "a resumed run repeats a batch",
        "lm/data/tokens/batches.py",
        'check_int("start_step", start_step, minimum=0) :',
        'max(check_int("start_step", start_step, minimum=0) - 1, 0) :',
        "pure",
    ),
    Mutation(
        "of equal importances the last stay",
        _MASKS,
        'ops.cumsum(ops.cast(ties, "int32"), axis=-1) <= free',
        'ops.flip(ops.cumsum(ops.flip(ops.cast(ties, "int32"), -1), -1), -1) <= free',
        "laws",
    ),
    Mutation(
        "the width of the last step is an earlier one",
        "functional/width.py",
        "if elapsed < self.prune_steps:",
        "if elapsed <= self.prune_steps:",
        "laws",
    ),
    Mutation(
        "a NaN gradient stays in the scores",
        _RENEWAL,
        "measured = ops.isfinite(new)",
        'measured = ops.ones_like(new, dtype="bool")',
        "laws",
    ),
    Mutation(
        "masks fall by scores of nothing",
        _RENEWAL,
        "known = [bool(ops.any(values)) for values in importance]",
        "known = [True for _ in importance]",
        "laws",
    ),
    Mutation(
        "checkpoints are kept by their step",
        "callbacks/checkpoint/files.py",
        "return sorted(places)",
        "return sorted(places, key=lambda place: (place[1], place[0]))",
        "product",
    ),
    Mutation(
        "seeds are not put back",
        _CHECKPOINT,
        "            set_random_state(self._random_state)\n            self",
        "            self",
        "laws",
    ),
    Mutation(
        "a teacher counts in the budget",
        "finding/budget.py",
        "    weights = set(map(id, student_of(model).weights))\n"
        "    plain = plain_variables(student_of(model))\n",
        "    weights = set(map(id, model.weights))\n"
        "    plain = plain_variables(model)\n",
        "product",
    ),
    Mutation(
        "pruned rows are multiplied by zero",
        "step/row_ops.py",
        "ops.where(cut.spread(mask, 1) > 0, values, ops.zeros_like(values))",
        "values * ops.cast(cut.spread(mask, 1), values.dtype)",
        "laws",
        "jax",
    ),
    Mutation(
        "gradients of pruned neurons count in a norm",
        _PRUNER,
        "grads[place] = of_active(cut, grads[place], track.mask.value)",
        "pass",
        "laws",
    ),
    Mutation(
        "averages bring pruned neurons back",
        _PRUNER,
        "zero_rows(ffn.cuts(), state.mask.value)",
        "pass",
        "laws",
    ),
    # Others.
    Mutation(
        "the past weighs as the new should",
        "functional/importance.py",
        "(1.0 - decay) * new + decay * old",
        "decay * new + (1.0 - decay) * old",
        "laws",
    ),
    Mutation(
        "a learned mask's constraint has the wrong sign",
        "functional/hard_concrete.py",
        "return -by_sparsity * p",
        "return by_sparsity * p",
        "laws",
    ),
    Mutation(
        "Adam's second moment is not corrected",
        "functional/adam.py",
        "ops.sqrt(second / (1 - ops.power(betas[1], step)))",
        "ops.sqrt(second)",
        "laws",
    ),
    Mutation(
        "functions traced with the wide shapes stay",
        "surgery/narrow_in_place.py",
        "            make_train_function(part)",
        "            pass",
        "laws",
        "tensorflow",
    ),
    Mutation(
        "a compact copy shares its metrics",
        "surgery/copying.py",
        "    if not isinstance(metric, keras.metrics.Metric):",
        "    if True:",
        "laws",
    ),
    Mutation(
        "the optimizer forgets a narrowed variable",
        "surgery/narrow_in_place.py",
        "            rename_key(part, key, variable_key(part, variable))",
        "            pass",
        "laws",
        "tensorflow",
    ),
    Mutation(
        "a damaged checkpoint is taken",
        "callbacks/checkpoint/files.py",
        "                verified_manifest(self.folder / name)\n",
        "",
        "product",
    ),
    Mutation(
        "the logs before a kill are lost",
        _CHECKPOINT,
        '        self.history = saved.facts["history"]\n',
        "",
        "laws product",
    ),
    Mutation(
        "every process reads the first one's share",
        "lm/data/tokens/batches.py",
        "parts[self.shard_index :: self.shard_count]",
        "parts[0 :: self.shard_count]",
        "pure",
    ),
    Mutation(
        "windows leave a token out",
        "lm/data/tokens/batches.py",
        "start = int(index) * self.length\n",
        "start = int(index) * (self.length + 1)\n",
        "pure",
    ),
    Mutation(
        "compiled masks fall a step late",
        _RENEWAL,
        'schedule.call(ops.cast(iterations, "int32"))',
        'schedule.call(ops.maximum(ops.cast(iterations, "int32") - 1, 0))',
        "laws",
        "jax",
    ),
)


def main() -> int:
    """Tries the mutations that are asked for; 1 if one is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("words", nargs="*", help="of the faults to try; default: all")
    words = parser.parse_args().words
    lost = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "copy"
        ignored = shutil.ignore_patterns(".*", "build", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=ignored)
        for mutation in MUTATIONS:
            if not words or any(word in mutation.fault for word in words):
                found = try_out(mutation, copy)
                lost += not found
                row = {"fault": mutation.fault, "backend": mutation.backend}
                print(json.dumps({**row, "found by": found}), flush=True)
    return int(lost > 0)


def try_out(mutation: Mutation, copy: pathlib.Path) -> str | None:
    """The first test that fails, or None.

    Raises:
        ValueError: if the code is not there any more, or is there twice.
    """
    path = copy / "keras_idea" / mutation.file
    text = path.read_text()
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.file} has no single {mutation.old!r}.")
    path.write_text(text.replace(mutation.old, mutation.new))
    try:
        folders = [f"tests/{folder}" for folder in mutation.folders.split()]
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "--daily", "-x", "--tb=no", *folders],
            cwd=copy,
            env={
                **os.environ,
                "KERAS_BACKEND": mutation.backend,
                "PYTHONPATH": str(copy),
            },
            capture_output=True,
            text=True,
        )
    finally:
        path.write_text(text)
    named = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", ended.stdout, re.M)
    return named[1] if named else None


if __name__ == "__main__":
    sys.exit(main())
