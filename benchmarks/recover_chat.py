r"""A tuned checkpoint pruned: what does it recover on, to keep its tuning?

    KERAS_BACKEND=jax python benchmarks/recover_chat.py ../shared/data/text \
        runs/recover_tokens/checkpoint-{0,1,2}/preset

Tunes small stock Mistrals (those of recover_tokens.py) on prompts with responses that a
rule makes of the words of the text. Then prunes 40% of the neurons of each four times,
with as many tokens each: on the responses of the conversations, on raw text, on all
tokens of the conversations, and on the responses with the tuned model as teacher. Nats
per token of held-out responses, the share of them of which every token is the
likeliest, and bits per byte of raw text. A cell that is done is not computed again.
Writes benchmarks/results/recover_chat.json and .md.
"""

import argparse
import json
import pathlib
import random
import time

import keras
import keras_hub
import numpy as np
import record
from intervals import plus_minus
from record import cpu_name
from recover_checkpoint import mean_and_error

import keras_idea as ki
from keras_idea.data import TextSource, tokenizer_vocabulary
from keras_idea.distillation import FloatLogits, WeightedDistiller
from keras_idea.files import write_atomically
from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.data.chat.chat_text import ChatText
from keras_idea.lm.data.chat.row_cache import COUNTED

NATS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

LENGTH, BATCH, TUNE, TUNE_PEAK, RECORDS = 64, 8, 1200, 1e-3, 4_000
PRUNE, STEPS, PEAK, KEPT = 60, 240, 1e-3, 0.6
MEASURES = ("nats per response token", "right responses", "raw text, bits per byte")
TASKS = {
    "Write in upper case": lambda words: " ".join(words).upper(),
    "Give the last word": lambda words: f"The last word is {words[-1]}.",
    "Give the first word": lambda words: f"The first word is {words[0]}.",
    "Count the words": lambda words: f"There are {len(words)} words.",
    "Put hyphens between": lambda words: "-".join(words),
}
# What the loss counts, and whether the tuned model teaches; None: raw text.
ARMS = {
    "responses": ("responses", False),
    "raw text": (None, False),
    "all tokens": ("all", False),
    "responses, teacher": ("responses", True),
}


def write_records(path, text, count=RECORDS, seed=0):
    """Prompts with responses that a rule makes of the words of a text."""
    rng = random.Random(seed)
    words = [w for w in text.read_text().split() if w.isalpha() and len(w) < 7]
    with path.open("w") as file:
        for _ in range(count):
            start = rng.randrange(len(words) - 5)
            chosen = words[start : start + rng.randint(2, 3)]
            task = rng.choice(sorted(TASKS))
            record = {"prompt": f"{task}: {' '.join(chosen)}"}
            record["response"] = TASKS[task](chosen)
            file.write(json.dumps(record) + "\n")


def conversations(chat, vocabulary, folder, counted="responses"):
    """The conversations in rows, as a run of `[chat]` reads them."""
    source, cache = TextSource(chat), folder / "cache"
    text = ChatText(source, cache, LENGTH, family="Mistral", counted=counted)
    return text.tokenized(vocabulary)


def model_of(preset):
    """A preset's model, without its preprocessor."""
    load = keras_hub.models.MistralCausalLM.from_preset
    return load(str(preset), preprocessor=None)


def fit(model, corpus, steps, peak, seed, callbacks=(), teacher=None):
    """Trains a model under one cosine."""
    schedule = ki.CosineDecay(peak, peak / 100, steps, warmup_steps=steps // 12)
    model.compile(keras.optimizers.AdamW(schedule), NATS, weighted_metrics=None)
    fitted = model
    if teacher is not None:
        logits = FloatLogits(1.0, None)
        fitted = WeightedDistiller(teacher, model, logits, student_loss_weight=0.5)
        fitted.compile(optimizer=model.optimizer, loss=NATS)
    batches = corpus.batches(seed=seed, batch_size=BATCH, length=LENGTH)
    keras.Model.fit(
        fitted,
        ((token_inputs(model, x), *rest, *ones(rest)) for x, *rest in batches),
        steps_per_epoch=steps // 4,
        epochs=4,
        shuffle=False,
        callbacks=list(callbacks),
        verbose=2,
    )


def ones(rest):
    """The weights of raw text, so that all arms compile the same program."""
    return [np.ones(rest[0].shape, "float32")] if len(rest) == 1 else []


def tune(preset, corpus, folder, seed):
    """The tuned preset; made if it is not there."""
    tuned = folder / "tuned"
    if not tuned.exists():
        keras.utils.set_random_seed(seed)
        model = model_of(preset)
        fit(model, corpus, TUNE, TUNE_PEAK, seed)
        made = keras_hub.models.CausalLMPreprocessor.from_preset(str(preset))
        task = keras_hub.models.MistralCausalLM(model.backbone, preprocessor=made)
        task.save_to_preset(str(tuned))
    return tuned


def log_probabilities(model, x, y):
    """Of each predicted token, in batches."""
    found = []
    for i in range(0, len(x), BATCH):
        logits = model.predict_on_batch(token_inputs(model, x[i : i + BATCH]))
        logits = np.asarray(logits, "float64")
        logits -= logits.max(-1, keepdims=True)
        chosen = np.take_along_axis(logits, y[i : i + BATCH, :, None], -1)[..., 0]
        found.append(chosen - np.log(np.exp(logits).sum(-1)))
    return np.concatenate(found)


def judge(model, chat, raw):
    """What a model knows of held-out responses and of raw text."""
    x, y, w = chat.validation_windows(length=LENGTH, limit=64)
    nats = -(log_probabilities(model, x, y) * w).sum() / w.sum()
    right = exact(model, x, y, w)
    x, y = raw.validation_windows(length=LENGTH, limit=64)
    bits = -log_probabilities(model, x, y).mean() / np.log(2)
    return {
        MEASURES[0]: float(nats),
        MEASURES[1]: right,
        MEASURES[2]: float(bits / raw.bytes_per_token(y)),
        "parameters": model.count_params(),
    }


def exact(model, x, y, w):
    """Share of responses of which every token is the likeliest, given those before."""
    right = total = 0
    for i in range(0, len(x), BATCH):
        ids = token_inputs(model, x[i : i + BATCH])
        best = np.asarray(model.predict_on_batch(ids)).argmax(-1)
        hits = best == y[i : i + BATCH]
        for row, weights in zip(hits, w[i : i + BATCH], strict=True):
            edges = np.flatnonzero(np.diff(np.r_[0, weights, 0]))
            for begin, end in edges.reshape(-1, 2):
                right, total = right + bool(row[begin:end].all()), total + 1
    return right / total


class Cells:
    """What one checkpoint gives: each arm is computed once, and kept in a file."""

    def __init__(self, folder, seed, preset, text):
        self.folder, self.seed, self.preset = folder / str(seed), seed, preset
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "cells.json"
        kept = self.path.exists()
        self.found = json.loads(self.path.read_text()) if kept else {}
        chat = self.folder / "chat.jsonl"
        if not chat.exists():
            write_records(chat, text / "wikitext2" / "train_1mb.txt", seed=seed)
        made = keras_hub.models.CausalLMPreprocessor.from_preset(str(preset))
        vocabulary = tokenizer_vocabulary(made.tokenizer)
        self.corpora = {
            c: conversations(chat, vocabulary, self.folder, c) for c in COUNTED
        }
        raw = ki.data.load_text(text, max_bytes=300_000)
        self.corpora[None] = raw.tokenized(vocabulary)

    def get(self, name, make):
        """The facts of a cell."""
        if name not in self.found:
            began = time.monotonic()
            facts = judge(make(), self.corpora["responses"], self.corpora[None])
            facts |= {"seconds": round(time.monotonic() - began), "cpu": cpu_name()}
            self.found[name] = facts
            write_atomically(self.path, json.dumps(self.found, indent=1) + "\n")
            print(f"seed {self.seed}, {name}: {facts}", flush=True)
        return self.found[name]

    def compute(self):
        """Tunes, prunes, judges."""
        self.get("released", lambda: model_of(self.preset))
        tuned = tune(self.preset, self.corpora["responses"], self.folder, self.seed)
        self.get("tuned", lambda: model_of(tuned))
        for arm, (counted, taught) in ARMS.items():
            self.get(arm, lambda c=counted, t=taught: self.pruned(tuned, c, t))
        return self.found

    def pruned(self, tuned, counted, taught):
        """The tuned model, pruned while it recovers on a corpus."""
        keras.utils.set_random_seed(self.seed)
        model = model_of(tuned)
        prune = ki.IdeaPruneCallback(
            target_dim=KEPT, begin_step=0, prune_steps=PRUNE, compact="end"
        )
        teacher = model_of(tuned) if taught else None
        corpus = self.corpora[counted]
        fit(model, corpus, STEPS, PEAK, self.seed, [prune], teacher)
        return model


def tables_of(found, text):
    """A table of all arms, and one of differences of pairs."""

    def of(arm, measure):
        return np.array([seed[arm][measure] for seed in found])

    rows = [[arm, *(mean_and_error(of(arm, m)) for m in MEASURES)] for arm in found[0]]
    tuned = (
        "after tuning with AdamW, and after pruning 40% of the tuned model's neurons"
    )
    notes = (
        f"Held-out conversations and raw text; nats and bits: lower is better. The "
        f"released model, {tuned} and recovering for {STEPS * BATCH * LENGTH:,} tokens "
        f"on what the row names. {plus_minus([len(found)])} Each is another model, "
        f"from another seed, with other conversations. {text}"
    )
    columns = ["recovered on", *MEASURES]
    tables = [{"title": "Arms", "columns": columns, "rows": rows, "notes": notes}]
    rows = [
        [
            arm,
            *(
                mean_and_error(of(arm, m) - of("responses", m), signed=True)
                for m in MEASURES
            ),
        ]
        for arm in found[0]
        if arm != "responses"
    ]
    title, notes = "Minus recovered on responses, pairs", "Nats and bits: - is better."
    return [
        *tables,
        {"title": title, "columns": columns, "rows": rows, "notes": notes},
    ]


def main():
    """Computes what is missing, and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("presets", type=pathlib.Path, nargs="+")
    parser.add_argument("--folder", type=pathlib.Path, default="runs/recover_chat")
    parser.add_argument(
        "--output", default=str(record.REPOSITORY / "benchmarks/results")
    )
    given = parser.parse_args()
    folder, facts = given.folder.resolve(), record.environment()
    cells = [
        Cells(folder, seed, preset, given.text)
        for seed, preset in enumerate(given.presets)
    ]
    found = [each.compute() for each in cells]
    hours = sum(cell["seconds"] for seed in found for cell in seed.values()) / 3600
    said = cells[0].corpora["responses"].description
    said = said.replace(str(folder), folder.name)
    tables = tables_of(found, f"{said} {hours:.1f} core-hours, without the tuning.")
    record.print_tables(tables)
    results = dict(enumerate(found))
    record.write(given.output, "recover_chat", facts, results, tables)


if __name__ == "__main__":
    main()
