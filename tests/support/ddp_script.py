"""The example of DistributedDataParallel in one process and in two: the same run.

python -m tests.support.ddp_script
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from examples import prune_ddp


def carried_out(count, folder):
    """(losses, neurons left) of the example in so many processes."""
    told = pathlib.Path(folder) / f"{count}.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={count}", "-m", "tests.support.ddp_script", told]
    subprocess.run(command, check=True)
    return json.loads(told.read_text())


if __name__ == "__main__" and len(sys.argv) > 1:
    losses, neurons = prune_ddp.main()
    pathlib.Path(sys.argv[1]).write_text(json.dumps([losses, neurons]))
elif __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        (one, left), (both, left_by_both) = (carried_out(n, folder) for n in (1, 2))
    assert left == left_by_both and len(left) == 8, (left, left_by_both)
    worst = max(abs(a - b) / a for a, b in zip(one, both, strict=True))
    assert worst < 2e-6, worst
    print("equal", worst)
