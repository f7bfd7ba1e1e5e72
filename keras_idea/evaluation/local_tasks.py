"""The paper's benchmarks read from local files instead of a hub.

The prompts and metrics are those of lm-evaluation-harness 0.4's own tasks, as dicts
that it takes; only where the documents come from differs.
"""

import json
import pathlib
import re

from keras_idea.errors import EvaluationError

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


def local_tasks(names, folder):
    """The harness's configs of tasks over the files of a folder.

    Args:
        names: sequence of keys of `FILES`: "arc_challenge" and "hellaswag" (0-shot),
            "triviaqa" (1-shot), "mmlu" (5-shot; one task a subject), "openwebtext"
            (perplexity of documents, whose field is "text").
        folder: path of the folder that holds the files.

    Returns:
        List of dict, for `tasks` of `lm_eval.simple_evaluate`.

    Raises:
        ValueError: for a task that has no file here, or a file that is missing or
            broken.

    Example:
    >>> lm_eval.simple_evaluate(model, tasks=local_tasks(["hellaswag"], "eval"))
    """
    configs = []
    for name in names:
        if name not in FILES:
            raise EvaluationError(
                f"Task {name!r} has no local file; those that have one: "
                f"{', '.join(FILES)}. Leave the folder out to take it from the hub."
            )
        documents = _read(pathlib.Path(folder) / FILES[name], _FIELDS[name])
        configs += _MAKERS[name](documents)
    return configs


def _read(path, fields):
    try:
        # Not `splitlines`, which splits at characters that JSON may hold.
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
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


def _task(name, documents, **config):
    def make_datasets(**kwargs):
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


def _choices(name, documents, shots=0, **config):
    metrics = {"output_type": "multiple_choice", "metric_list": _ACCURACY}
    return _task(name, documents, num_fewshot=shots, **{**metrics, **config})


def _arc_challenge(documents):
    return [
        _choices(
            "arc_challenge",
            {"test": documents},
            doc_to_text="{{query}}\nAnswer:",
            doc_to_target="gold",
            doc_to_choice="choices",
        )
    ]


def _hellaswag(documents):
    rows = [
        {
            "query": _cleaned(document["ctx"]),
            "choices": [_cleaned(ending) for ending in document["endings"]],
            "gold": int(document["label"]),
        }
        for document in documents
    ]
    return [
        _choices(
            "hellaswag",
            {"test": rows},
            doc_to_text="{{query}}",
            doc_to_target="gold",
            doc_to_choice="choices",
        )
    ]


def _cleaned(text):
    # As the harness's own hellaswag does.
    text = re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ")


def _triviaqa(documents):
    return [
        _task(
            "triviaqa",
            {"test": documents},
            output_type="generate_until",
            num_fewshot=1,
            fewshot_split="test",
            doc_to_text="{{context}}",
            doc_to_target="{{aliases}}",
            target_delimiter=" ",
            generation_kwargs={
                "until": ["\n", ".", ","],
                "do_sample": False,
                "max_gen_toks": 24,
            },
            filter_list=[
                {
                    "name": "remove_whitespace",
                    "filter": [
                        {"function": "remove_whitespace"},
                        {"function": "take_first"},
                    ],
                }
            ],
            metric_list=[
                {
                    "metric": "exact_match",
                    "aggregation": "mean",
                    "higher_is_better": True,
                    "ignore_case": True,
                    "ignore_punctuation": True,
                }
            ],
        )
    ]


def _mmlu(documents):
    letters = "ABCD"
    # A few have five choices, which the harness's prompt has no place for.
    documents = [d for d in documents if len(d["choices"]) == len(letters)]
    question = "{{question.strip()}}\n" + "".join(
        f"{letter}. {{{{choices[{i}]}}}}\n" for i, letter in enumerate(letters)
    )
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
            _choices(
                f"mmlu_{subject}",
                splits,
                shots=5,
                fewshot_split="dev",
                fewshot_config={"sampler": "first_n"},
                description="The following are multiple choice questions (with "
                f"answers) about {subject.replace('_', ' ')}.\n\n",
                doc_to_text=f"{question}Answer:",
                doc_to_target="answer",
                doc_to_choice=list(letters),
                metric_list=_ACCURACY[:1],
            )
        )
    return configs


def openwebtext(documents):
    """As the others: the perplexity of documents.

    Args:
        documents: list of dict with a "text".

    Returns:
        List of one dict.
    """
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


_MAKERS = {
    "arc_challenge": _arc_challenge,
    "hellaswag": _hellaswag,
    "triviaqa": _triviaqa,
    "mmlu": _mmlu,
    "openwebtext": openwebtext,
}
