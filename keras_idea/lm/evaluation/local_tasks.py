"""The paper's benchmarks read from local files instead of a hub.

The prompts and metrics are those of lm-evaluation-harness 0.4's own tasks, as dicts
that it takes; "openwebtext" it does not have. Documents come from the files, TriviaQA's
example too, and its answers have 24 tokens at most.
"""

import json
import os
import pathlib
import re
from collections.abc import Callable, Iterable
from typing import Any

from keras_idea.errors import EvaluationError
from keras_idea.validation import did_you_mean

#: task of the harness: its file.
FILES = {
    "arc_challenge": "arc_challenge.jsonl",
    "hellaswag": "hellaswag_val_2000.jsonl",
    "triviaqa": "triviaqa_sm_sub.jsonl",
    "mmlu": "mmlu_10_subjects.jsonl",
    "openwebtext": "openwebtext.jsonl",
}
_FIELDS = {
    "arc_challenge": ("query", "choices", "gold"),
    "hellaswag": ("ctx", "endings", "label"),
    "triviaqa": ("context", "aliases"),
    "mmlu": ("subject", "split", "question", "choices", "answer"),
    "openwebtext": ("text",),
}
_ACCURACY = [
    {"metric": name, "aggregation": "mean", "higher_is_better": True}
    for name in ("acc", "acc_norm")
]
# What is taken from the harness's own files of TriviaQA and MMLU.
_ANSWERED = ("output_type", "target_delimiter", "filter_list", "metric_list")
_CHOSEN = (
    "output_type",
    "fewshot_split",
    "fewshot_config",
    "doc_to_text",
    "doc_to_target",
    "doc_to_choice",
    "metric_list",
)


def local_tasks(names: Iterable[str], folder: str | os.PathLike) -> list[dict]:
    """The harness's configs of tasks over the files of a folder.

    Args:
        names: sequence of keys of `FILES`: "arc_challenge" and "hellaswag" (0-shot),
            "triviaqa" (1-shot), "mmlu" (5-shot; one task a subject), "openwebtext"
            (perplexity of documents, whose field is "text").
        folder: path of the folder that holds the files.

    Returns:
        List of dict, for `tasks` of `lm_eval.simple_evaluate`.

    Example:
    >>> (task,) = local_tasks(["openwebtext"], "eval")
    >>> task["task"], task["output_type"]
    ('openwebtext', 'loglikelihood_rolling')
    """
    configs = []
    for name in names:
        if name not in FILES:
            raise EvaluationError(
                f"Task {name!r} has no local file; those that have one: "
                f"{', '.join(FILES)}.{did_you_mean(name, FILES)} Leave the "
                "folder out to take it from the hub."
            )
        documents = _read(pathlib.Path(folder) / FILES[name], _FIELDS[name])
        configs += _MAKERS[name](documents)
    return configs


def _read(path: pathlib.Path, fields: tuple[str, ...]) -> list[dict]:
    try:
        # Not `splitlines`, which splits at characters that JSON may hold.
        lines = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise EvaluationError(
            f"The file {str(path)!r} cannot be read: {error}. Name the folder that "
            "holds it."
        ) from None
    if lines == [""]:
        raise EvaluationError(f"The file {str(path)!r} holds no document.")
    documents = []
    for number, line in enumerate(lines, start=1):
        place = f"Line {number} of {str(path)!r}"
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise EvaluationError(f"{place} is no JSON ({error}).") from None
        if not isinstance(document, dict):
            raise EvaluationError(f"{place} is no JSON object.")
        missing = [field for field in fields if field not in document]
        if missing:
            raise EvaluationError(
                f"{place} has no {missing[0]!r}. A document of this task has "
                f"{', '.join(fields)}."
            )
        documents.append(document)
    return documents


def _task(name: str, documents: dict[str, list[dict]], **config: Any) -> dict:
    def make_datasets(**kwargs: Any) -> dict:
        import datasets

        return {
            split: datasets.Dataset.from_list(rows) for split, rows in documents.items()
        }

    return {
        "task": name,
        "dataset_path": name,
        "custom_dataset": make_datasets,
        "test_split": "test",
        "metadata": {"version": 0},
        **config,
    }


def _choices(name: str, documents: list[dict], doc_to_text: str) -> dict:
    return _task(
        name,
        {"test": documents},
        output_type="multiple_choice",
        num_fewshot=0,
        doc_to_text=doc_to_text,
        doc_to_target="gold",
        doc_to_choice="choices",
        metric_list=_ACCURACY,
    )


def _arc_challenge(documents: list[dict]) -> list[dict]:
    return [_choices("arc_challenge", documents, "{{query}}\nAnswer:")]


def _hellaswag(documents: list[dict]) -> list[dict]:
    rows = [
        {
            "query": _cleaned(document["ctx"]),
            "choices": [_cleaned(ending) for ending in document["endings"]],
            "gold": int(document["label"]),
        }
        for document in documents
    ]
    return [_choices("hellaswag", rows, "{{query}}")]


def _cleaned(text: str) -> str:
    # As the harness's own hellaswag does.
    text = re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ")


def _triviaqa(documents: list[dict]) -> list[dict]:
    own = _own("triviaqa/default.yaml")
    return [
        _task(
            "triviaqa",
            {"test": documents},
            **{name: own[name] for name in _ANSWERED},
            generation_kwargs={**own["generation_kwargs"], "max_gen_toks": 24},
            num_fewshot=1,
            fewshot_split="test",
            doc_to_text="{{context}}",
            doc_to_target="{{aliases}}",
        )
    ]


def _mmlu(documents: list[dict]) -> list[dict]:
    own = _own("mmlu/default/_default_template_yaml")
    # A few have five choices, which the harness's prompt has no place for.
    documents = [d for d in documents if len(d["choices"]) == len(own["doc_to_choice"])]
    configs = []
    for subject in sorted({document["subject"] for document in documents}):
        splits = {
            split: [
                {key: d[key] for key in ("question", "choices", "answer")}
                for d in documents
                if d["subject"] == subject and d["split"] == split
            ]
            for split in ("dev", "test")
        }
        configs.append(
            _task(
                f"mmlu_{subject}",
                splits,
                **{name: own[name] for name in _CHOSEN},
                num_fewshot=5,
                description="The following are multiple choice questions (with "
                f"answers) about {subject.replace('_', ' ')}.\n\n",
            )
        )
    return configs


def _own(path: str) -> dict:
    """What the harness's own file says of a task."""
    import lm_eval
    import yaml

    tasks = pathlib.Path(lm_eval.__file__).parent / "tasks"
    return yaml.safe_load((tasks / path).read_text(encoding="utf-8"))


def openwebtext(documents: list[dict]) -> list[dict]:
    """As the others: the perplexity of documents, each with a "text"."""
    metrics = ("word_perplexity", "byte_perplexity", "bits_per_byte")
    return [
        _task(
            "openwebtext",
            {"test": documents},
            output_type="loglikelihood_rolling",
            doc_to_text="",
            doc_to_target="{{text}}",
            metric_list=[{"metric": metric} for metric in metrics],
        )
    ]


_MAKERS: dict[str, Callable[[list[dict]], list[dict]]] = {
    "arc_challenge": _arc_challenge,
    "hellaswag": _hellaswag,
    "triviaqa": _triviaqa,
    "mmlu": _mmlu,
    "openwebtext": openwebtext,
}
