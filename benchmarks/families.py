"""The table of docs/families.md: what loads, prunes and exports, each cell by running.

    KERAS_BACKEND=torch python -m benchmarks.families

Tiny models of transformers with random weights (tests/support/released_rows.py) are
loaded, half of their neurons are pruned, and the rest is exported. A number is the
largest difference of outputs, of which the largest is about 1. Three minutes on a core.
"""

import pathlib
import tempfile

import keras_idea as ki
from benchmarks.record import REPOSITORY
from keras_idea.errors import KerasIdeaError
from keras_idea.export import export_gguf, export_hf
from tests.support.released_models import release
from tests.support.released_rows import ALL

PAGE = REPOSITORY / "docs" / "families.md"
BEGIN, END = "<!-- begin: benchmarks/families.py -->", "<!-- end -->"
ROWS = (
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen2moe",
    "qwen3moe",
    "gemma",
    "gemma2",
    "gemma3text",
    "smollm3",
    "gpt2",
    "gptoss",
    "gemma4",
    "bart",
    "bert",
    "roberta",
    "xlmroberta",
    "distilbert",
    "albert",
    "vit",
    "vit classifier",
    "deit",
    "dinov2",
    "swin",
)


def row_of(name: str, folder: pathlib.Path) -> list[str]:
    """The cells of one family; after a failure there are no more."""
    cells = [f"`{name}`"]
    source = folder / "source"
    try:
        release(source, ALL[name])
        model = ki.hub.load(source)
        cells.append(type(model).__name__)
        narrow = ki.shrink(model, {"neurons": 0.5}, method="magnitude")
        cells.append("yes")
        cells.append(f"{export_hf(narrow, folder / 'hf').match.difference:.0e}")
        export_gguf(folder / "hf", folder / "m.gguf")
        cells.append("yes")
    except (KerasIdeaError, ValueError) as error:
        cells.append(f"no: {' '.join(str(error).split())[:60]}".replace("|", "/"))
    return [*cells, *[""] * (5 - len(cells))]


def main() -> None:
    """Runs each row, and writes the table into the page."""
    lines = ["| checkpoint | loads as | prunes | Hugging Face, differs by | GGUF |"]
    lines.append("|---|---|---|---|---|")
    for name in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            cells = row_of(name, pathlib.Path(folder))
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    table = "\n".join([BEGIN, *lines, END])
    PAGE.write_text(f"{before}{table}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
