"""An exported model in its own library, without keras_idea: what it computes.

    KERAS_BACKEND=torch python -m benchmarks.checkpoints.alone LIBRARY MODEL TEXT

LIBRARY: keras_hub, transformers or llama_cpp. Prints a line of JSON: the token ids of
the text, nats per token, greedy tokens, generated tokens a second, the peak memory.
Of keras_idea the token ids alone: its tokenizer is the truth.
"""

import argparse
import json
import pathlib
import resource
import sys
import time

import numpy as np

WINDOW, WINDOWS = 256, 8  # tokens that are judged
PROMPT, NEW, PROMPTS = 8, 24, 4  # of greedy text
TIMED = 64  # tokens


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints.alone")
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("model")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--only-ids", action="store_true")
    parser.add_argument("--start", type=int, help="the token that each row begins with")
    parser.add_argument("--texts", type=pathlib.Path, help="a JSON list, for their ids")
    parser.add_argument("--logits", type=pathlib.Path, help="where those of a row go")
    parser.add_argument("--ids", type=pathlib.Path, help="a JSON list, instead of own")
    arguments = parser.parse_args()
    encode, logits, generate = LIBRARIES[arguments.library](arguments.model)
    own = [int(i) for i in encode(arguments.text.read_text("utf-8"))]
    texts = json.loads(arguments.texts.read_text()) if arguments.texts else []
    of_texts = [[int(i) for i in encode(text)] for text in texts]
    if arguments.only_ids:
        return print("\n" + json.dumps({"ids": own, "texts": of_texts}))
    ids = np.array(
        json.loads(arguments.ids.read_text()) if arguments.ids else own, "int32"
    )
    rows = _windows(ids, arguments.start)
    nats = np.mean([_nats(logits, row) for row in rows])
    if arguments.logits:
        np.save(arguments.logits, logits(rows[0][:-1]).astype("float32"))
    greedy = [generate(row[:PROMPT], NEW) for row in rows[:PROMPTS]]
    prompt = rows[0][:PROMPT]
    generate(prompt, TIMED)  # compiles
    began = time.perf_counter()
    generate(prompt, TIMED)
    speed = TIMED / (time.perf_counter() - began)
    assert "keras_idea" not in sys.modules
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    found = {"ids": own, "texts": of_texts, "nats": float(nats), "greedy": greedy}
    print("\n" + json.dumps(found | {"tokens_s": speed, "peak_mib": peak}))


def _windows(ids, start):
    """Rows of WINDOW tokens and the one after them; `start` in the first place."""
    rows = [ids[i * WINDOW : (i + 1) * WINDOW + 1].copy() for i in range(WINDOWS)]
    for row in rows if start is not None else ():
        row[0] = start
    return rows


def _nats(logits, row):
    """Mean nats of a row's tokens after the first, in float64."""
    found = logits(row[:-1]).astype("float64")
    found -= found.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(found, row[1:, None], axis=-1)[:, 0]
    return float((np.log(np.exp(found).sum(axis=-1)) - chosen).mean())


def keras_hub_alone(preset):
    """(encode, logits, generate) of stock KerasHub."""
    import keras
    import keras_hub

    model = keras_hub.models.CausalLM.from_preset(preset, dtype="float32")
    tokenizer, model.preprocessor = model.preprocessor.tokenizer, None
    model.compile(sampler="greedy")

    def batch(ids):
        ids = np.asarray(ids, "int32")[None]
        return {"token_ids": ids, "padding_mask": np.ones_like(ids)}

    def generate(prompt, new):
        made = batch([*prompt, *[0] * new])
        made["padding_mask"][:, len(prompt) :] = 0
        tensors = {k: keras.ops.convert_to_tensor(v) for k, v in made.items()}
        # As `generate`, which fails in Gemma 3 without a preprocessor.
        function = model.make_generate_function()
        out = keras.ops.convert_to_numpy(
            function(tensors, stop_token_ids=None)["token_ids"]
        )
        return [int(i) for i in np.asarray(out)[0, len(prompt) :]]

    def logits(ids):
        return keras.ops.convert_to_numpy(model(batch(ids), training=False))[0]

    return lambda text: np.asarray(tokenizer(text)), logits, generate


def transformers_alone(folder):
    """(encode, logits, generate) of transformers."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    @torch.no_grad()
    def logits(ids):
        return model(torch.tensor([ids.tolist()])).logits[0].numpy()

    @torch.no_grad()
    def generate(prompt, new):
        ids, cache, found = torch.tensor([prompt.tolist()]), None, []
        for _ in range(new):
            out = model(ids, past_key_values=cache, use_cache=True)
            ids, cache = out.logits[:, -1:].argmax(-1), out.past_key_values
            found.append(int(ids))
        return found

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False)

    return encode, logits, generate


def llama_cpp_alone(file):
    """(encode, logits, generate) of llama.cpp."""
    import llama_cpp

    options = {"n_ctx": WINDOW + 1, "logits_all": True, "verbose": False}
    llama = llama_cpp.Llama(file, n_threads=2, **options)

    def logits(ids):
        llama.reset()
        llama.eval(ids.tolist())
        return llama.scores[: len(ids)].copy()

    def generate(prompt, new):
        last = logits(prompt)[-1]
        found = [int(last.argmax())]
        for _ in range(new - 1):
            llama.eval(found[-1:])
            found.append(int(llama.scores[llama.n_tokens - 1].argmax()))
        return found

    def encode(text):
        return llama.tokenize(text.encode(), add_bos=False, special=True)

    return encode, logits, generate


def keras_idea_tokenizer(preset):
    """(encode, None, None) of a preset as `keras_idea.hub.load` loads it."""
    from keras_idea.hub.loading import preprocessor_of

    tokenizer = preprocessor_of(preset).tokenizer
    return lambda text: np.asarray(tokenizer(text)), None, None


LIBRARIES = {
    "keras_idea": keras_idea_tokenizer,
    "keras_hub": keras_hub_alone,
    "transformers": transformers_alone,
    "llama_cpp": llama_cpp_alone,
}

if __name__ == "__main__":
    main()
