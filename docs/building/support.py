"""What is supported where, counted in the suite itself."""

import json
import pathlib

from docs.building.collected import collect
from keras_idea.lm.report.table import markdown_table

ROOT = pathlib.Path(__file__).parents[2]
BACKENDS = ("jax", "tensorflow", "torch")
_GUIDES = sorted((ROOT / "docs/guides").glob("*.py"))
_LOOPS = "custom_training_loop"  # its functions are compared with `fit` elsewhere
#: Feature: the tests that hold it, by how their ids begin.
FEATURES = {
    "scores, masks and widths equal the float64 transcription": (
        "layers/test_algorithm.py",
        "hub/test_hub_algorithm.py",
        "hub/test_mixtures.py::test_equals_algorithm_1",
    ),
    "narrowing in the middle of `fit`": (
        "callbacks/test_idea_prune.py",
        "callbacks/test_progressive.py",
        "callbacks/test_ways_of_training.py",
    ),
    "the optimizer's state is carried over": (
        "surgery/test_optimizer_state.py",
        "keras_private/test_slots.py",
    ),
    "methods: sensitivity, activation, learned mask, random": ("methods/",),
    "a budget of parameters, bytes or FLOPs": ("callbacks/test_budget.py",),
    "custom training loops": ("callbacks/test_custom_loops.py",),
    "distillation": ("callbacks/test_distillation.py",),
    "FFNs without a gate": ("layers/test_ungated.py", "hub/test_encoders.py"),
    "any Keras model of `Dense` layers": (
        "groups/test_dense_groups.py",
        "groups/test_users_models_in_fit.py",
        "groups/test_faults_by_design.py",
    ),
    "the configs of blocks follow the width": ("surgery/test_own_config.py",),
    "stock KerasHub models": (
        "hub/test_hub_contract.py",
        "hub/test_hub_groups.py",
        "hub/test_hub_untrained.py",
    ),
    "mixtures of experts": ("hub/test_mixtures",),
    "half precision, gradient accumulation": ("runs/test_precision.py",),
    "rematerialization": ("hub/test_rematerialized.py",),
    "compilation ahead of time": ("test_compile_ahead.py",),
    "checkpoints": ("checkpoints/",),
    "killed runs resume": ("runs/test_resume.py", "runs/test_damaged_runs.py"),
    "a mesh of devices": ("test_layouts.py", "test_mesh.py"),
    "replicas; other strategies raise an error": (
        "test_distribution.py",
        "test_replicas.py",
    ),
    "documents, tokenizers, streams": ("data/", "runs/test_corpora.py"),
    "evaluation with lm-eval": ("evaluation/",),
    "TensorBoard": ("monitor/",),
    "export: preset, Hugging Face, ONNX, GGUF": ("export/",),
    "guides": (
        *(
            f"docs/test_guides.py::test_{path.stem}"
            for path in _GUIDES
            if path.stem != _LOOPS
        ),
        "callbacks/test_custom_loops.py::test_the_guide",
    ),
}
EXPORTS = ("masked = narrow", "preset", "Hugging Face", "GGUF")


def support_page() -> str:
    """The page, in Markdown.

    Raises:
        RuntimeError: where a feature or a model has no tests, or tests cannot be
            collected.
    """
    tests = collect(BACKENDS)
    families = json.loads((ROOT / "benchmarks/results/families.json").read_text())
    families = {name: row for name, row in families.items() if _is_family(row)}
    parts = [
        "# What works where",
        "The tables count tests on each backend, all on CPUs. In `yes (3 of 5)`, "
        "`make test` runs three of the five tests. `endurance` means that only "
        "`make endurance` runs them. A dash means that the feature belongs to other "
        "backends. What is not supported raises an error, and tests check that. No GPU "
        "and no TPU has run any of this yet. For TPUs, we only asked the compiler.",
        "## Features",
        markdown_table([["feature", *BACKENDS], *_features(tests)]).rstrip(),
        "## Families of KerasHub",
        "The table counts the tests of each family. It also shows what "
        "`benchmarks/families.py` measured on PyTorch with a tiny model of each "
        "family: the greatest difference of a logit. The first column compares the "
        "masked model with the narrow one. The others compare the narrow model with "
        "what is loaded back from the preset or the export.",
        markdown_table(
            [["model", *BACKENDS, *EXPORTS], *_families(tests, families)]
        ).rstrip(),
        "Reasons:",
        "\n".join(_reasons(families)),
    ]
    return "\n\n".join(parts) + "\n"


def _is_family(row):
    return isinstance(row, dict) and "masked = narrow" in row


def _features(tests):
    lines = []
    for feature, begins in FEATURES.items():
        for begin in begins:
            if not any(t.startswith(begin) for b in BACKENDS for t in tests[b]):
                raise RuntimeError(f"No test begins with {begin!r}.")
        found = [
            [daily for t, daily in tests[b].items() if t.startswith(begins)]
            for b in BACKENDS
        ]
        lines.append([feature, *map(_verdict, found)])
    return lines


def _families(tests, families):
    lines = []
    for name, row in families.items():
        own = (f"[{name}]", f"[{name}-", f"-{name}]", f"-{name}-")
        found = [
            [
                daily
                for t, daily in tests[b].items()
                if t.startswith("hub/") and any(o in t for o in own)
            ]
            for b in BACKENDS
        ]
        if not any(found):
            raise RuntimeError(f"No test names the model {name!r}.")
        cells = [
            row[column].partition(": ")[0].partition("; ")[0] for column in EXPORTS
        ]
        lines.append([name, *map(_verdict, found), *cells])
    return lines


def _verdict(daily):
    """Of a flag a test: whether `make test` runs it."""
    if not daily:
        return "-"
    count = f"{len(daily):,}"
    return f"yes ({sum(daily):,} of {count})" if any(daily) else f"endurance ({count})"


def _reasons(families):
    """Each reason once, with the models that it is about."""
    named: dict[str, list[str]] = {}
    for name, row in families.items():
        for column in EXPORTS:
            _, found, reason = row[column].partition(": ")
            if found:
                named.setdefault(f"{column}: {reason}", []).append(name)
    return [f"- {reason} ({', '.join(names)})" for reason, names in named.items()]
