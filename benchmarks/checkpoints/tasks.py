"""Questions answered by a checkpoint and by what was made of it.

    python -m benchmarks.checkpoints.tasks smollm2 "as it is" PRESET --limit 500

lm-evaluation-harness's arc_challenge and hellaswag, 0-shot, the first --limit documents
of local files; `keras-idea evaluate --tasks` does the same. Writes a cell of
benchmarks/results/checkpoints/tasks/.
"""

import argparse
import importlib.metadata
import json
import pathlib
import time

import keras

from benchmarks import record
from keras_idea.lm.runs.judge.evaluate import judge_tasks
from keras_idea.lm.runs.judge.judged import load_judged

RESULTS = record.REPOSITORY / "benchmarks" / "results" / "checkpoints" / "tasks"
TASKS = ("arc_challenge", "hellaswag")
LENGTH = 256  # tokens that the model sees at once; no document is longer


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints.tasks")
    parser.add_argument("name", help="of the checkpoint")
    parser.add_argument("how", help="it was made: a cell's name, or 'as it is'")
    parser.add_argument("preset")
    parser.add_argument("--local", default="../shared/data/eval")
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    arguments = parser.parse_args()
    path = (
        arguments.results / f"{arguments.name}-{arguments.how.replace(' ', '_')}.json"
    )
    began = time.monotonic()
    judged = load_judged(arguments.preset, LENGTH)
    answers = judge_tasks(judged, list(TASKS), arguments.local, arguments.limit)
    facts = record.environment()
    for package in ("keras-hub", "lm_eval"):
        facts["versions"][package] = importlib.metadata.version(package)
    facts["command"] = (
        f"KERAS_BACKEND={keras.backend.backend()} python -m benchmarks.checkpoints."
        f"tasks {arguments.name} {arguments.how!r} PRESET --limit {arguments.limit}"
    )
    found = {
        "name": arguments.name,
        "how": arguments.how,
        "limit": arguments.limit,
        **answers,
    }
    found |= {"seconds": round(time.monotonic() - began, 1), **facts}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(arguments.name, arguments.how, answers, flush=True)


if __name__ == "__main__":
    main()
