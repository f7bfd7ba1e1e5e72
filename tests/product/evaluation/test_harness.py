"""lm-evaluation-harness's questions, answered as a direct computation would."""

import contextlib
import importlib.metadata
import json

import lm_eval
import numpy as np
import pytest
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

from keras_idea.errors import MissingPackage
from keras_idea.evaluation import TokenScorer
from keras_idea.lm.evaluation.harness import HarnessModel
from keras_idea.lm.evaluation.local_tasks import FILES, local_tasks
from tests.support.letters import LETTERS, START, Causal, decode, encode


@pytest.fixture(scope="module")
def model():
    return Causal()


@pytest.fixture(scope="module")
def harness(model):
    scorer = TokenScorer(model, max_length=40, batch_tokens=256)
    return HarnessModel(scorer, encode, decode, START)


def log_likelihood(model, context, continuation):
    """Token by token, each from the 40 before it at most."""
    total, greedy = 0.0, True
    whole = [*context, *continuation][-41:]
    for end in range(len(whole) - min(len(continuation), len(whole) - 1), len(whole)):
        logits = model.logits(whole[:end])
        total += logits[whole[end]] - np.log(np.exp(logits).sum())
        greedy &= logits.argmax() == whole[end]
    return total, greedy


def texts(rng, count, longest):
    return [
        "".join(rng.choice(list(LETTERS), rng.integers(1, longest)))
        for _ in range(count)
    ]


def ask(kind, arguments):
    return [Instance(kind, {}, a, i) for i, a in enumerate(arguments)]


@pytest.mark.parametrize(
    ("version", "works"),
    [("0.4.9.2", False), ("0.4.11", False), ("0.4.12", True), ("0.5.0rc1", True)],
)
def test_versions_that_ask_without_examples(monkeypatch, version, works):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    expected = contextlib.nullcontext()
    if not works:
        expected = pytest.raises(MissingPackage, match="0.4.12")
    with expected:
        HarnessModel(None, encode, decode, START)


def test_fifty_documents(model, harness):
    """Short and cut off, with context and without."""
    rng = np.random.default_rng(0)
    contexts, continuations = texts(rng, 50, 60), texts(rng, 50, 20)
    contexts[3] = contexts[20] = ""
    pairs = list(zip(contexts, continuations, strict=True))
    found = harness.loglikelihood(ask("loglikelihood", pairs), disable_tqdm=True)
    for (context, continuation), (value, greedy) in zip(pairs, found, strict=True):
        before = context.rstrip()
        rest = context[len(before) :] + continuation
        ids = encode(before) or [START]
        expected, likeliest = log_likelihood(model, ids, encode(rest))
        assert value == pytest.approx(expected, abs=1e-4)
        assert greedy == likeliest


def test_rolling(model, harness):
    """Each token once, from what its window holds before it."""
    text = texts(np.random.default_rng(1), 1, 400)[0] + "the end of it, at last" * 5
    [found] = harness.loglikelihood_rolling(
        ask("loglikelihood_rolling", [(text,)]), disable_tqdm=True
    )
    ids, expected = encode(text), 0.0
    for start in range(0, len(ids), 40):
        targets = ids[start : start + 40]
        end = start + len(targets)
        before = [START, *ids][max(0, end - 40) : start + 1]
        for i, target in enumerate(targets):
            logits = model.logits([*before, *targets[:i]])
            expected += logits[target] - np.log(np.exp(logits).sum())
    assert found == pytest.approx(expected, rel=1e-5)


def test_generation(model, harness):
    """Greedy, up to the first stop text or the limit; each prompt for itself.

    Prompts are cut so that the new text still fits; where that is more than the model
    sees, the window slides.
    """
    prompts = ["Question: what?\nAnswer:", "a", "", "un " * 30, "a man?"]
    options = [
        {"until": ["\n"], "max_gen_toks": 12},
        {"until": "zz", "max_gen_toks": 3},
        {"until": [], "max_gen_toks": 5},
        {"until": ["a", "e", "i"], "max_gen_toks": 20},
        {"until": ["zz"], "max_gen_toks": 45},
    ]
    requests = list(zip(prompts, options, strict=True))
    found = harness.generate_until(ask("generate_until", requests), disable_tqdm=True)
    for (prompt, option), text in zip(requests, found, strict=True):
        ids, new = encode(prompt) or [START], []
        ids = ids[-max(1, 40 - option["max_gen_toks"]) :]
        for _ in range(option["max_gen_toks"]):
            new.append(int(model.logits([*ids, *new][-40:]).argmax()))
        expected = decode(new)
        for stop in option["until"]:
            expected = expected.split(stop)[0]
        assert text == expected


def test_a_start_token(model):
    """Before every text, but not twice, and not where the harness says no."""
    scorer = TokenScorer(model, max_length=40)
    harness = HarnessModel(scorer, encode, decode, START, add_start=True)
    assert harness.tok_encode("ab") == [START, 0, 1]
    assert harness.tok_encode("") == [START]
    assert harness.tok_encode("ab", add_special_tokens=False) == [0, 1]
    begun = HarnessModel(scorer, lambda text: [START, 0], decode, START, add_start=True)
    assert begun.tok_encode("<start>a") == [START, 0]


def test_a_context_of_white_space(model, harness):
    """Counts as the beginning of a text: each of its tokens is predicted too."""
    [(found, _)] = harness.loglikelihood(ask("loglikelihood", [(" \n", "ab")]), True)
    expected, _ = log_likelihood(model, [START], encode(" \nab"))
    assert found == pytest.approx(expected, abs=1e-4)


def test_continuations_that_do_not_fit(model, harness, caplog):
    """Scored as far as they fit, with a warning; one without tokens is refused."""
    long = "the end of it, at last, is far beyond what it sees"
    pairs = [("a", long), ("a", "b")]
    [(found, _), _] = harness.loglikelihood(ask("loglikelihood", pairs), True)
    expected, _ = log_likelihood(model, encode("a"), encode(long))
    assert found == pytest.approx(expected, abs=1e-4)
    assert "1 of 2 continuations are longer than the 40 tokens" in caplog.text
    with pytest.raises(ValueError, match=r"at least one token. Received: \('a', ''\)"):
        harness.loglikelihood(ask("loglikelihood", [("a", "")]), disable_tqdm=True)


QUESTIONS = {
    "arc_challenge": [
        {"query": "Question: b?", "choices": ["un", "ab"], "gold": 1},
        {"query": "Question: c?", "choices": ["an", "nab", "c"], "gold": 0},
    ],
    "hellaswag": [
        {"ctx": "A man [title] sits. he", "endings": ["ran.", "sat."], "label": 1},
        {"ctx": "A lady:\u2028she", "endings": ["un", "a [x] b"], "label": 0},
    ],
    "triviaqa": [
        {"context": f"Question: {letter}?\nAnswer:", "answer": "a", "aliases": ["a"]}
        for letter in "abc"
    ],
    "mmlu": [
        {
            "subject": subject,
            "split": split,
            "question": f"What {i}?",
            "choices": ["a", "b", "c", "d"],
            "answer": i % 4,
        }
        for subject in ("law", "old_maths")
        for split, count in (("dev", 5), ("test", 3))
        for i in range(count)
    ],
    "openwebtext": [{"text": "a man ran. he sat."}, {"text": "an end"}],
}


@pytest.fixture
def folder(tmp_path):
    for name, documents in QUESTIONS.items():
        lines = [json.dumps(document, ensure_ascii=False) for document in documents]
        (tmp_path / FILES[name]).write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_papers_tasks_from_local_files(model, folder):
    """Through the harness itself; ARC's accuracy by hand."""
    harness = HarnessModel(TokenScorer(model, 256), encode, decode, START)
    results = lm_eval.simple_evaluate(
        harness,
        tasks=local_tasks(QUESTIONS, folder),
        bootstrap_iters=0,
        task_manager=TaskManager(include_defaults=False),
    )["results"]
    assert sorted(results) == [
        "arc_challenge",
        "hellaswag",
        "mmlu_law",
        "mmlu_old_maths",
        "openwebtext",
        "triviaqa",
    ]
    right = []
    for document in QUESTIONS["arc_challenge"]:
        context = encode(f"{document['query']}\nAnswer:")
        values = [
            log_likelihood_of_all(model, context, encode(f" {choice}"))
            for choice in document["choices"]
        ]
        right.append(int(np.argmax(values)) == document["gold"])
    assert results["arc_challenge"]["acc,none"] == pytest.approx(np.mean(right))
    assert 0 <= results["triviaqa"]["exact_match,remove_whitespace"] <= 1
    texts = [document["text"] for document in QUESTIONS["openwebtext"]]
    nats = [log_likelihood_of_all(model, [START], encode(text)) for text in texts]
    bits = -sum(nats) / np.log(2.0) / sum(map(len, texts))
    assert results["openwebtext"]["bits_per_byte,none"] == pytest.approx(bits, rel=1e-5)


def log_likelihood_of_all(model, context, continuation):
    total = 0.0
    for i, token in enumerate(continuation):
        logits = model.logits([*context, *continuation[:i]])
        total += logits[token] - np.log(np.exp(logits).sum())
    return total


def test_a_file_with_a_byte_order_mark(tmp_path):
    text = json.dumps({"text": "a page"})
    tasks = []
    for start in ("", "\ufeff"):
        (tmp_path / FILES["openwebtext"]).write_text(start + text, encoding="utf-8")
        (task,) = local_tasks(["openwebtext"], tmp_path)
        tasks.append(list(task["custom_dataset"]()["test"]))
    assert tasks[0] == tasks[1] == [json.loads(text)]


class TestRefusals:
    def test_a_task_without_a_file(self, folder):
        with pytest.raises(ValueError, match="'gsm8k' has no local file; those that"):
            local_tasks(["gsm8k"], folder)

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(ValueError, match="arc_challenge.jsonl' cannot be read"):
            local_tasks(["arc_challenge"], tmp_path)

    def test_a_broken_line(self, folder):
        sound = json.dumps(QUESTIONS["hellaswag"][0])
        (folder / FILES["hellaswag"]).write_text(sound + '\n{"ctx')
        with pytest.raises(ValueError, match="Line 2 of .* is no JSON"):
            local_tasks(["hellaswag"], folder)
