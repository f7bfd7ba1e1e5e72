"""Tasks by name: the hub's data sets stand in folders, which `datasets` reads alike."""

import json
import pathlib

import lm_eval
import pytest

from keras_idea.errors import EvaluationError
from keras_idea.evaluation import TokenScorer
from keras_idea.lm.evaluation.harness import HarnessModel
from keras_idea.lm.evaluation.hub_tasks import PaperTasks
from tests.support.letters import START, Causal, decode, encode

TASKS = pathlib.Path(lm_eval.__file__).parent / "tasks"
SUBJECTS = """task: mmlu_law
dataset_path: law
output_type: multiple_choice
test_split: train
doc_to_text: "{{question}}"
doc_to_choice: ["a", "b"]
doc_to_target: 0
"""


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_harness_own_tasks_get_the_papers_shots(in_folder):
    rows = [
        {"question": f"What is {letter}", "answer": {"aliases": [letter]}}
        for letter in "abc"
    ]
    folder = in_folder / "mandarjoshi" / "trivia_qa"
    for split in ("train", "validation"):
        write_lines(folder / f"{split}.jsonl", rows)
    files = [
        f"  - split: {split}\n    path: {split}.jsonl"
        for split in ("train", "validation")
    ]
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: rc.nocontext\n  data_files:\n"
        + "\n".join(files)
        + "\n---\n"
    )
    write_lines(in_folder / "law" / "train.jsonl", [{"question": "q"}])
    (in_folder / "extra").mkdir()
    (in_folder / "extra" / "law.yaml").write_text(SUBJECTS)
    (in_folder / "extra" / "other.yaml").write_text(SUBJECTS.replace("mmlu_", "own_"))
    paths = [str(TASKS / "triviaqa"), str(in_folder / "extra")]
    manager = PaperTasks(include_defaults=False, include_path=paths)
    tasks = manager.load(["triviaqa", "mmlu_law", "own_law"])["tasks"]
    shots = {name: task.get_config("num_fewshot") for name, task in tasks.items()}
    assert shots == {"triviaqa": 1, "mmlu_law": 5, "own_law": None}


def test_openwebtext_is_streamed(in_folder):
    texts = ["a man ran.", "he sat.", "an end"]
    write_lines(
        in_folder / "Skylion007" / "openwebtext" / "train.jsonl",
        [{"text": text} for text in texts],
    )
    harness = HarnessModel(TokenScorer(Causal(), 64), encode, decode, START)
    samples = lm_eval.simple_evaluate(
        harness,
        tasks=["openwebtext"],
        bootstrap_iters=0,
        limit=2,
        task_manager=PaperTasks(include_defaults=False),
    )["samples"]["openwebtext"]
    assert [sample["doc"]["text"] for sample in samples] == texts[:2]


def test_a_name_of_no_task():
    manager = PaperTasks(include_defaults=False, include_path=str(TASKS / "triviaqa"))
    for names in (["trivaqa"], ["openwebtext", "trivaqa"]):
        with pytest.raises(EvaluationError, match=r"'trivaqa'\. Did you mean 'trivia"):
            manager.load(names)
