"""Whole tiny runs on documents: tokenized once, packed, watched in TensorBoard."""

import json

import keras
import numpy as np
import pytest

from keras_idea.lm.cli import main
from keras_idea.lm.runs.config import load_config
from keras_idea.lm.runs.plan import plan
from tests.support.events import Events
from tests.support.text_files import jsonl, parquet, write, zst
from tests.support.tiny_run import (
    CONFIG,
    ONE_LAYER,
    load,
    run_in,
    with_hub,
)

TEXTS = [f"The fox {i} jumps over {i * i} lazy dogs." for i in range(60)]
CORPUS = '[corpus]\npaths = "documents"\n'


def reading_documents(config, *keys):
    """A config that reads documents instead of the text."""
    table = "\n".join([CORPUS.rstrip(), 'cache = "tokens"', *keys])
    return config.replace('[data]\ntext = "text.txt"\n', f"{table}\n\n[data]\n")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of this package's own decoder, and what it printed."""
    folder = tmp_path_factory.mktemp("corpora")
    write(folder / "documents", {"a.jsonl.zst": zst(jsonl(TEXTS))})
    config = CONFIG + "tensorboard = true\n"
    return run_in(folder, reading_documents(config))


def held_out_bits(model, text):
    """Bits a byte of the last fifth of `text`'s tokens, in 8 of its windows."""
    held_out = text[len(text) - round(len(text) * 0.2) :]
    count = (len(held_out) - 1) // 16
    starts = [i * count // 8 * 16 for i in range(8)]
    rows = np.array([held_out[start : start + 17] for start in starts])
    nats = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(
        rows[:, 1:], model(rows[:, :-1])
    )
    # The token that ends a document stands for no byte.
    bytes_a_token = (rows[:, 1:] != 256).mean()
    return float(keras.ops.convert_to_numpy(nats)) / np.log(2.0) / bytes_a_token


class TestOwnDecoder:
    def test_the_table_is_of_the_documents_held_out(self, run):
        folder, _ = run
        rows = json.loads((folder / "table.json").read_text())["rows"]
        model = keras.models.load_model(folder / "narrow.keras")
        tokens = [i for text in TEXTS for i in (*text.encode(), 256)]
        assert rows[1]["bits_per_byte"] == pytest.approx(
            held_out_bits(model, tokens), abs=1e-4
        )

    def test_tensorboard_shows_both_trainings(self, run):
        folder, _ = run
        pruned = Events(folder / "tensorboard" / "pruned")
        widths = [tag for tag in pruned.tags if tag.startswith("width/block")]
        assert len(widths) == 2
        assert {pruned.scalars(tag)[12] for tag in widths} == {8.0}
        scratch = Events(folder / "tensorboard" / "narrow-from-scratch")
        for events in (pruned, scratch):
            assert {"loss/train", "flops/train", "learning_rate"} <= events.tags
            assert max(events.steps("loss/validation")) == 12

    def test_it_cost_what_was_planned(self, run, monkeypatch):
        folder, _ = run
        monkeypatch.chdir(folder.parent.parent)
        stages = plan(load_config(folder / "config.toml")).stages
        pruned = Events(folder / "tensorboard" / "pruned").scalars("flops/train")
        assert pruned[12] == pytest.approx(sum(stage.flops for stage in stages[:3]))
        scratch = Events(folder / "tensorboard" / "narrow-from-scratch")
        assert scratch.scalars("flops/train")[12] == pytest.approx(stages[3].flops)

    def test_it_can_be_evaluated(self, run, capsys):
        folder, _ = run
        text = folder.parent.parent / "text.txt"
        assert main(["evaluate", str(folder), "--text", str(text)]) == 0
        assert "bits" in capsys.readouterr().out


def test_a_hub_model_with_a_tokenizer_of_the_documents(tmp_path):
    columns = {"body": TEXTS, "url": ["" for _ in TEXTS]}
    write(tmp_path, {"documents/a.parquet": parquet(columns)})
    write(tmp_path, {"others/b.jsonl": jsonl(TEXTS[::3], field="body")})
    config = reading_documents(
        with_hub(
            ONE_LAYER, "hub = 'llama3'", "tokenizer = 'bpe'", "vocabulary_size = 300"
        ),
        'field = "body"',
        'validation_paths = ["others"]',
    )
    folder, printed = run_in(tmp_path, config + "compare_from_scratch = false\n")
    # Of 300: the text has no more to merge.
    assert "Vocabulary: 283 tokens" in printed
    tokenizer = load(folder).preprocessor.tokenizer
    sizes = np.dtype("uint16")
    parts = [np.fromfile(path, sizes) for path in (tmp_path / "tokens").iterdir()]
    train, held_out = sorted(parts, key=len, reverse=True)
    for ids, texts in ((train, TEXTS), (held_out, TEXTS[::3])):
        documents = np.split(ids, np.flatnonzero(ids == tokenizer.end_token_id) + 1)
        assert [tokenizer.detokenize(d[:-1]) for d in documents[:-1]] == texts
