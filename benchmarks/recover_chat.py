"""A tuned checkpoint pruned: what does it recover on, to keep its tuning?

    KERAS_BACKEND=jax python benchmarks/recover_chat.py PRESET TEXT --folder DIR

Tunes a small stock Mistral, PRESET, on prompts with responses that a rule makes of the
words of TEXT (a folder with wikitext2). Then `keras-idea train` prunes 40% of its
neurons four times, with as many tokens each: on the raw text, on the conversations with
all of their tokens in the loss, on their responses alone, and on those with the tuned
model as teacher. Nats per token of held-out responses, greedy answers that are right,
and bits per byte of raw text. One seed. Writes DIR/recover_chat.json.
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
from keras_idea.hub.inputs import token_inputs
from keras_idea.runs.config import parse_config
from keras_idea.runs.train.training import train

LENGTH, BATCH, TUNE, PRUNE, RECOVER, PEAK = 128, 8, 800, 40, 140, 1e-3
TASKS = {
    "Write in upper case": lambda words: " ".join(words).upper(),
    "Give the last word": lambda words: f"The last word is {words[-1]}.",
    "Give the first word": lambda words: f"The first word is {words[0]}.",
    "Count the words": lambda words: f"There are {len(words)} words.",
    "Put hyphens between": lambda words: "-".join(words),
}
ARMS = {
    "raw text": '[data]\ntext = "{text}"\n',
    "all tokens": '[chat]\npaths = "{chat}"\nloss = "all"\n',
    "responses": '[chat]\npaths = "{chat}"\n',
    "responses, teacher": '[chat]\npaths = "{chat}"\n[distillation]\n'
    'teacher = "{tuned}"\n',
}
RUN = """
[model]
preset = "{tuned}"
target_dim = 0.6
sequence_length = {length}
[budget]
enlarge_steps = 0
prune_steps = {prune}
recover_steps = {recover}
[optimizer]
peak_learning_rate = {peak}
end_learning_rate = 1e-5
warmup_steps = 20
[run]
output = "{output}"
validate_every = 60
compare_from_scratch = false
[sample]
tokens = 8
"""


def write_records(path, text, count=20_000, seed=0):
    """Prompts with responses that a rule makes of the words of a text."""
    rng = random.Random(seed)
    words = [w for w in text.read_text().split() if w.isalpha() and len(w) < 9]
    with path.open("w") as file:
        for _ in range(count):
            start = rng.randrange(len(words) - 5)
            chosen = words[start : start + rng.randint(2, 5)]
            task = rng.choice(sorted(TASKS))
            record = {"prompt": f"{task}: {' '.join(chosen)}"}
            record["response"] = TASKS[task](chosen)
            file.write(json.dumps(record) + "\n")


def corpus_of(preset, chat, folder):
    """The conversations as every arm reads them."""
    made = keras_hub.models.CausalLMPreprocessor.from_preset(str(preset))
    vocabulary = tokenizer_vocabulary(made.tokenizer)
    text = ChatText(TextSource(chat), folder / "cache", LENGTH, family="Mistral")
    return text.tokenized(vocabulary), made, vocabulary


def tune(preset, corpus, folder):
    """The tuned preset; made if it is not there."""
    tuned = folder / "tuned"
    if tuned.exists():
        return tuned
    keras.utils.set_random_seed(0)
    model = keras_hub.models.MistralCausalLM.from_preset(str(preset))
    preprocessor, model.preprocessor = model.preprocessor, None
    schedule = ki.CosineDecay(2e-3, 2e-5, TUNE, warmup_steps=100)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(schedule), loss, weighted_metrics=None)
    batches = corpus.batches(seed=0, batch_size=BATCH, length=LENGTH)
    keras.Model.fit(
        model,
        ((token_inputs(model, x), y, w) for x, y, w in batches),
        steps_per_epoch=TUNE // 10,
        epochs=10,
        shuffle=False,
        verbose=2,
    )
    model.preprocessor = preprocessor
    model.save_to_preset(str(tuned))
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


def judge(preset, chat_corpus, raw_corpus):
    """What a model knows of held-out responses and of raw text."""
    model = keras_hub.models.MistralCausalLM.from_preset(str(preset))
    model.preprocessor = None
    x, y, w = chat_corpus.validation_windows(length=LENGTH, limit=64)
    nats = -(log_probabilities(model, x, y) * w).sum() / w.sum()
    right = exact(model, x, y, w)
    x, y = raw_corpus.validation_windows(length=LENGTH, limit=64)
    bits = -log_probabilities(model, x, y).mean() / np.log(2)
    return {
        "response nats per token": float(nats),
        "responses all of whose tokens are the likeliest": right,
        "raw bits per byte": float(bits / raw_corpus.bytes_per_token(y)),
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
    parser.add_argument("--folder", type=pathlib.Path, default="runs/recover_chat")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    chat = folder / "chat.jsonl"
    if not chat.exists():
        write_records(chat, arguments.text / "wikitext2" / "train_1mb.txt")
    corpus, made, vocabulary = corpus_of(arguments.preset, chat, folder)
    print(corpus.description, flush=True)
    raw = ki.data.load_text(arguments.text).tokenized(vocabulary)
    tuned = tune(arguments.preset, corpus, folder)
    found = {
        "as released": judge(arguments.preset, corpus, raw),
        "tuned": judge(tuned, corpus, raw),
    }
    for arm, lines in ARMS.items():
        output = folder / arm.replace(", ", "-").replace(" ", "-")
        names = {"text": arguments.text.resolve(), "chat": chat, "tuned": tuned}
        toml = (lines + RUN).format(
            **names,
            output=output,
            length=LENGTH,
            prune=PRUNE,
            recover=RECOVER,
            peak=PEAK,
        )
        if "[data]" in toml:
            toml = toml.replace("[data]\n", f"[data]\nbatch_size = {BATCH}\n")
        else:
            toml += f"[data]\nbatch_size = {BATCH}\n"
        toml = toml.replace("[chat]\n", f'[chat]\ncache = "{folder}/cache"\n')
        began = time.monotonic()
        train(parse_config(toml), overwrite=True)
        found[arm] = judge(output / "preset", corpus, raw)
        found[arm]["seconds"] = round(time.monotonic() - began)
        print(arm, found[arm], flush=True)
        (folder / "recover_chat.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
