"""What the pages say of released checkpoints is what the cells of the study hold."""

import json
import math

import pytest

from benchmarks.checkpoints import table
from benchmarks.record import REPOSITORY

RESULTS = REPOSITORY / "benchmarks" / "results"
ARMS = {
    "not cut, trained as the others": "control",
    "pruned in `fit`, with a teacher": "gradual, logits",
    "pruned in `fit`, with a teacher and its block outputs": "gradual",
    "cut, refit and recovered, no teacher": "refit, text alone",
    "cut, refit and recovered with a teacher": "refit, logits",
    "cut `by_weights`, refit, recovered with a teacher": "refit by weights, logits",
    "cut, refit, recovered with teacher and block outputs": "refit",
    "cut so, recovered in transformers with a teacher": "optipfair with data",
}
PEERS = {
    "cut by optipfair 0.4.2": "optipfair",
    "cut by optipfair 0.4.2, with data": "optipfair_with_data",
    "cut by Torch-Pruning 1.6.1, magnitude": "Torch-Pruning,_magnitude",
    "cut by Torch-Pruning 1.6.1, Taylor": "Torch-Pruning,_Taylor",
}
NAMES = {
    "SmolLM2-135M-Instruct": "smollm2",
    "SmolLM2-135M-Instruct with its own tokens": "smollm2-gguf",
    "Gemma 3 270M": "gemma3",
}


def nats(name, file):
    return json.loads((RESULTS / "checkpoints" / name / f"{file}.json").read_text())


def test_the_page_of_all_cells(tmp_path):
    table.write(RESULTS / "checkpoints", tmp_path)
    written = (tmp_path / "checkpoints.md").read_text("utf-8")
    assert written == (RESULTS / "checkpoints.md").read_text("utf-8")


def test_the_table_of_the_encoder():
    """Its rows, from the cut to what is best."""
    page = (REPOSITORY / "docs" / "released_checkpoints.md").read_text("utf-8")
    rows = page.partition("| all-MiniLM-L6-v2 |")[2].splitlines()[2:6]
    files = ("activation", "activation+refit", "gradual", "refit")
    for row, file in zip(rows, files, strict=True):
        cell = nats("minilm", f"0.67-{file}")
        _, cosine, rank, nearest = (part.strip() for part in row.strip("|").split("|"))
        assert cosine == f"{cell['cosine']:.3f}"
        assert rank == f"{cell['rank correlation']:.3f}"
        assert nearest == f"{100 * cell['same nearest']:.1f}%"


def test_the_table_of_questions():
    """Each figure is that of a cell, and its documents are as many as the page says."""
    page = (REPOSITORY / "docs" / "recommended_settings.md").read_text("utf-8")
    below = page.partition("| the right one of four answers |")[2]
    files = (
        "as_it_is",
        "activation_by_weights,_refit",
        "refit_by_weights+logits-1048576",
    )
    for row, file in zip(below.splitlines()[2:5], files, strict=True):
        cell = nats("tasks", f"smollm2-{file}")
        told = [part.strip() for part in row.strip("|").split("|")][1:]
        for task, figure in zip(("arc_challenge", "hellaswag"), told, strict=True):
            right, error = (float(part.strip(" %")) for part in figure.split("±"))
            assert right == pytest.approx(100 * cell[task]["acc_norm"], abs=0.05)
            assert error == pytest.approx(100 * cell[task]["acc_norm_stderr"], abs=0.05)
        assert f"The first {cell['limit']} questions" in below


@pytest.mark.parametrize("page", ["README.md", "docs/recommended_settings.md"])
def test_the_table_of_two_thirds(page):
    """Perplexities, and the share of the excess loss that a recovery removes."""
    lines = (REPOSITORY / page).read_text("utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if "| two thirds of" in line)
    name, seen = None, 0
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        label, size, tokens, *told = (c.strip() for c in line.strip("|").split("|"))
        name = NAMES.get(label.partition("**, as it is")[0].strip("*"), name)
        wide, cut = nats(name, "1-as_it_is"), nats(name, "0.67-activation")
        if "as it is" in label:
            expected = wide
        elif "one step" in label:
            expected = cut
        elif "refit=True" in label:
            expected = nats(name, "0.67-activation+refit")
        elif label in PEERS:
            expected = nats(name, f"0.67-{PEERS[label]}")
            versions = expected["versions"]
            assert versions["optipfair"] in label or versions["torch-pruning"] in label
        elif tokens != "0":
            count = int(tokens.replace(",", ""))
            paths = (RESULTS / "checkpoints" / name).glob(f"0.67-*-{count}-*.json")
            cells = [json.loads(path.read_text()) for path in paths]
            arm = ARMS[label]
            found = [c for c in cells if c["how"] == arm]
            expected = min(found, key=lambda c: c["openwebtext"])
        else:
            continue
        seen += 1
        assert size == f"{expected['parameters'] / 1e6:.1f}M"
        for text, said in zip(("openwebtext", "wikitext2"), told, strict=True):
            figure = f"{math.exp(expected[text]):,.1f}"
            if tokens != "0" and "not cut" not in label:
                share = (cut[text] - expected[text]) / (cut[text] - wide[text])
                figure += f" ({100 * share:.0f}%)"
            assert said == figure
    assert seen >= 2
