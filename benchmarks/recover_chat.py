"""A tuned checkpoint pruned: what does it recover on, to keep its tuning?

    KERAS_BACKEND=jax python benchmarks/recover_chat.py PRESET TEXT --folder DIR

Tunes a small stock Mistral, PRESET, on prompts with responses that a rule makes of the
words of TEXT (a folder with wikitext2). Then prunes 40% of its neurons four times, with
as many tokens each: on the responses of the conversations, on raw text, on all tokens
of the conversations, and on the responses with the tuned model as teacher. Nats per
token of held-out responses, the share of them of which every token is the likeliest,
and bits per byte of raw text. One seed. Arms that are done are kept in
DIR/recover_chat.json.
"""

import argparse
import json
import pathlib
import random
import time

import keras
import keras_hub
import numpy as np

import keras_idea as ki
from keras_idea.data import TextSource, tokenizer_vocabulary
from keras_idea.data.chat.chat_text import ChatText
from keras_idea.data.chat.row_cache import COUNTED
from keras_idea.hub.inputs import token_inputs
from keras_idea.runs.train.teacher import FloatLogits, WeightedDistiller

NATS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

LENGTH, BATCH, TUNE, TUNE_PEAK, RECORDS = 64, 8, 200, 3e-3, 4_000
PRUNE, STEPS, PEAK, KEPT = 20, 80, 1e-3, 0.6
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


def fit(model, corpus, steps, peak, callbacks=(), teacher=None):
    """Trains a model under one cosine."""
    schedule = ki.CosineDecay(peak, peak / 100, steps, warmup_steps=steps // 12)
    model.compile(keras.optimizers.AdamW(schedule), NATS, weighted_metrics=None)
    fitted = model
    if teacher is not None:
        logits = FloatLogits(1.0, None)
        fitted = WeightedDistiller(teacher, model, logits, student_loss_weight=0.5)
        fitted.compile(optimizer=model.optimizer, loss=NATS)
    batches = corpus.batches(seed=0, batch_size=BATCH, length=LENGTH)
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


def tune(preset, corpus, folder):
    """The tuned preset; made if it is not there."""
    tuned = folder / "tuned"
    if not tuned.exists():
        keras.utils.set_random_seed(0)
        model = model_of(preset)
        fit(model, corpus, TUNE, TUNE_PEAK)
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
        "response nats per token": float(nats),
        "right responses": right,
        "raw bits per byte": float(bits / raw.bytes_per_token(y)),
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


def main():
    """Tunes, prunes, judges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preset", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument(
        "--folder", type=pathlib.Path, default=pathlib.Path("runs/recover_chat")
    )
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    chat = folder / "chat.jsonl"
    if not chat.exists():
        write_records(chat, arguments.text / "wikitext2" / "train_1mb.txt")
    made = keras_hub.models.CausalLMPreprocessor.from_preset(str(arguments.preset))
    vocabulary = tokenizer_vocabulary(made.tokenizer)
    corpora = {c: conversations(chat, vocabulary, folder, c) for c in COUNTED}
    judged = corpora["responses"]
    print(judged.description, flush=True)
    raw = ki.data.load_text(arguments.text, max_bytes=300_000).tokenized(vocabulary)
    corpora[None] = raw
    tuned = tune(arguments.preset, judged, folder)
    path = folder / "recover_chat.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for name, preset in (("released", arguments.preset), ("tuned", tuned)):
        if name not in found:
            found[name] = judge(model_of(preset), judged, raw)
    for arm, (counted, taught) in ARMS.items():
        if arm in found:
            continue
        keras.utils.set_random_seed(0)
        model, began = model_of(tuned), time.monotonic()
        prune = ki.IdeaPruneCallback(
            target_dim=KEPT, begin_step=0, prune_steps=PRUNE, compact="end"
        )
        teacher = model_of(tuned) if taught else None
        fit(model, corpora[counted], STEPS, PEAK, [prune], teacher)
        found[arm] = judge(model, judged, raw)
        found[arm]["seconds"] = round(time.monotonic() - began)
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found, indent=1), flush=True)


if __name__ == "__main__":
    main()
