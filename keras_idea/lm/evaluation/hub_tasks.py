"""The paper's benchmarks by the harness's own names, with the paper's shots."""

import itertools

import datasets
from lm_eval.tasks import TaskManager

from keras_idea.errors import EvaluationError
from keras_idea.lm.evaluation.local_tasks import openwebtext
from keras_idea.validation import did_you_mean

#: Examples before each question, where the harness leaves it open.
SHOTS = {"triviaqa": 1, "mmlu": 5}
# The data set has no part for evaluation: the first documents are taken.
_OPENWEBTEXT, _DOCUMENTS = "Skylion007/openwebtext", 1000


class PaperTasks(TaskManager):
    """The harness's tasks, with as many shots as the paper's evaluation has.

    TriviaQA is asked with 1 shot, MMLU's subjects with 5; ARC-C and HellaSwag with
    the harness's 0. "openwebtext", which the harness does not have, is the perplexity
    of the first 1,000 documents of the data set, streamed.

    Example:
    >>> manager = PaperTasks()
    >>> import lm_eval
    >>> lm_eval.simple_evaluate(
    ...     model, tasks=["mmlu"], task_manager=manager
    ... )  # doctest: +SKIP
    """

    def load(self, specs: str | list[str | dict] | dict) -> dict:
        """As of `TaskManager`; refuses names of no task with an `EvaluationError`."""
        if isinstance(specs, list):
            self._check_names(specs)
            specs = [_streamed() if s == "openwebtext" else s for s in specs]
        loaded = super().load(specs)
        for name, task in loaded["tasks"].items():
            shots = SHOTS.get(name.split("_")[0])
            if shots is not None and task.get_config("num_fewshot") is None:
                task.set_config(key="num_fewshot", value=shots)
        return loaded

    def _check_names(self, specs: list[str | dict]) -> None:
        """Refuses what names no task; the path of a YAML file does."""
        known = {*self.all_tasks, "openwebtext"}
        for name in specs:
            if isinstance(name, str) and not name.endswith(".yaml"):
                if name not in known:
                    raise EvaluationError(
                        "There is no such task in lm-evaluation-harness. Received: "
                        f"{name!r}.{did_you_mean(name, known)} `lm_eval ls tasks` "
                        "lists all."
                    )


def _streamed() -> dict:
    stream = datasets.load_dataset(_OPENWEBTEXT, split="train", streaming=True)
    return openwebtext(list(itertools.islice(stream, _DOCUMENTS)))[0]
