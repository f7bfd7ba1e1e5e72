"""Does llama.cpp compute what is exported? Tiny models of every family, in every type.

    KERAS_BACKEND=torch python -m benchmarks.served --llama FOLDER

FOLDER is llama.cpp's source, which lies in the source package of llama-cpp-python;
`make served` builds that and calls this.
"""

import argparse
import contextlib
import importlib.metadata
import pathlib
import sys
import tempfile

import gguf
import keras_hub
import llama_cpp
import numpy as np

import keras_idea as ki
from benchmarks import record
from keras_idea._lm.data.make_tokenizer import make_tokenizer
from keras_idea.errors import KerasIdeaError
from keras_idea.export import export_gguf
from keras_idea.hub.compare import TEXTS, keras_outputs
from keras_idea.hub.families import HUB_FAMILIES
from tests.support.hub_models import MODELS, tiny_lm

DTYPES = ("f32", "f16", "q8_0")
LENGTH, PROMPT, NEW, SIZE = 96, 8, 32, 512
FAMILIES = (
    *("llama", "llama tied", "llama3", "mistral", "qwen", "qwen3", "phi3", "gemma"),
    *("gemma2", "gemma3", "smollm3", "gpt2", "gpt neox", "bloom", "falcon", "opt"),
    *("mixtral", "qwen moe", "qwen3 moe", "gpt oss"),
)
NOTES = (
    "In a cell: the largest difference between logits, of the largest logit; by how "
    "many nats the mean log-likelihood of a token is off; how many greedy tokens are "
    "the model's, up to the first of a text that is not. Compared with KerasHub in "
    "float32. 4 texts of 40 random tokens, 8 of them as a prompt of 32 more. Random "
    "weights take two tokens for about as likely far oftener than trained ones do. In "
    "a mixture rounded weights choose other experts where two are about as likely, and "
    "what follows differs. Tokenizers are trained on a source file; their ids are "
    "compared with KerasHub's on the texts of llama.cpp's own tests, and a few more."
)
# What llama.cpp's mixtures of experts are like.
MIXTURES = {
    "mixtral": {"sliding_window": 48},
    "qwen moe": {"norm_top_k_prob": False},
    "qwen3 moe": {"mlp_only_layers": []},
    "gpt oss": {"sliding_window": 48},
}
# Families whose heads are pruned, from two key/value heads to one.
FEWER, WITH_HEADS = (
    ", fewer heads",
    ("mistral", "qwen3", "gemma", "gemma3", "qwen3 moe"),
)
# Whose tokenizer a family without one from nothing is given.
TOKENIZERS = {"gemma2": "gemma", "gpt2": "qwen", "gpt": "qwen", "mixtral": "mistral"}
# Vocabularies of released tokenizers, which lie beside llama.cpp's own tests.
RELEASED = {"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen": "qwen2"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama", type=pathlib.Path, required=True)
    parser.add_argument("--output", default=record.RESULTS)
    options = parser.parse_args()
    facts = record.environment()
    facts["command"] = "make served"
    for package in ("keras-hub", "gguf", "llama-cpp-python", "transformers"):
        facts["versions"][package] = importlib.metadata.version(package)
    texts = (*TEXTS, *llama_texts("gpt-2", options.llama)[0])
    names = (*FAMILIES, *(f"{name}{FEWER}" for name in WITH_HEADS))
    released = {
        vocabulary: of_released(name, vocabulary, options.llama)
        for name, vocabulary in RELEASED.items()
    }
    print(released, flush=True)
    families = {name: family(name, texts) for name in names}
    tables = [of_families(families, len(texts)), table_of_released(released)]
    results = {"families": families, "released tokenizers": released}
    record.write(options.output, "served", facts, results, tables)
    return any("failed" in found for row in families.values() for found in row.values())


def family(name, texts):
    """dict: dtype -> what came out."""
    try:
        model = make(name)
    except KerasIdeaError as error:
        return {dtype: {"refused": str(error)} for dtype in DTYPES}
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for dtype in DTYPES:
            path = pathlib.Path(folder) / f"{dtype}.gguf"
            rows[dtype] = served(model, path, dtype, texts)
            print(name, dtype, rows[dtype], flush=True)
    return rows


def make(name):
    """A tiny model with random weights and, where there is one, a trained tokenizer."""
    name, _, fewer = name.partition(FEWER[:2])
    row, (key, *_) = MODELS[name], name.split()
    sizes = {"vocabulary_size": SIZE, "hidden_dim": 64}
    sizes |= {width: 96 * per_neuron for width, per_neuron in row.widths.items()}
    wanted = {"head_dim": 32, "max_sequence_length": LENGTH, "sliding_window": 48}
    sizes |= {n: value for n, value in wanted.items() if n in row.arguments}
    if name == "smollm3":
        sizes |= {"num_layers": 4, "layer_types": ["full_attention"] * 4}
        sizes |= {"rope_layer_enabled_list": [True] * 3 + [False]}
        sizes |= {"max_position_embeddings": LENGTH}
    if fewer:
        sizes |= {"num_query_heads": 4, "num_key_value_heads": 2}
    lm = tiny_lm(name, **sizes, **MIXTURES.get(name, {}))
    if fewer:
        lm = ki.shrink(lm, {"kv_groups": 1}, method="magnitude")
    key = TOKENIZERS.get(key, key)
    if key in HUB_FAMILIES:
        text = pathlib.Path(__file__).read_text(encoding="utf-8")
        kind = HUB_FAMILIES[key].tokenizer
        give(lm, make_tokenizer(key, kind, text, SIZE - 10))
    return lm


def give(lm, tokenizer):
    """Gives a model a preprocessor of its own family."""
    prefix = type(lm).__name__.removesuffix("CausalLM")
    own = getattr(keras_hub.tokenizers, f"{prefix}Tokenizer")
    if not isinstance(tokenizer, own):
        names = ("proto",) if hasattr(tokenizer, "proto") else ("vocabulary", "merges")
        tokenizer = own(**{name: getattr(tokenizer, name) for name in names})
    preprocessor = getattr(keras_hub.models, f"{prefix}CausalLMPreprocessor")
    lm.preprocessor = preprocessor(tokenizer, sequence_length=LENGTH)


def served(model, path, dtype, texts):
    """Dict of numbers: what llama.cpp makes of an export, beside the model."""
    try:
        export_gguf(model, path, dtype)
    except KerasIdeaError as error:
        kind = "refused" if error.status == 2 else "failed"
        return {kind: str(error)}
    expected = keras_outputs(model)
    tokenizer = getattr(getattr(model, "preprocessor", None), "tokenizer", None)
    encode = tokenizer or (lambda text: list(text.encode()))
    has_one = tokenizer is not None
    rng = np.random.default_rng(1)
    size = model.output_shape[-1]
    ids_BT = rng.integers(0, size, (4, PROMPT + NEW)).astype("int32")
    with loaded(path) as llama:
        a_BTV = expected(ids_BT)
        b_BTV = np.stack([logits(llama, ids_T) for ids_T in ids_BT])
        a, b = likelihoods(a_BTV, ids_BT), likelihoods(b_BTV, ids_BT)
        tokens = ids_BT.copy()
        for place in range(PROMPT, PROMPT + NEW):
            tokens[:, place] = expected(tokens)[:, place - 1].argmax(axis=-1)
        tokens = tokens[:, PROMPT:]
        ours = np.array([greedy(llama, ids_T[:PROMPT], NEW) for ids_T in ids_BT])
        other = [
            t for t in texts if has_one and ids(llama, t, tokenizer) != [*encode(t)]
        ]
    return {
        "logits differ by": float(np.abs(a_BTV - b_BTV).max()),
        "largest logit": float(np.abs(a_BTV).max()),
        "log-likelihood of a token": float(a.mean()),
        "log-likelihood of a token differs by": float(abs(a.mean() - b.mean())),
        "greedy tokens": int(tokens.size),
        "greedy tokens equal": int(np.cumprod(tokens == ours, axis=1).sum()),
        "texts of equal ids": len(texts) - len(other) if has_one else None,
        "texts of other ids": other,
    }


@contextlib.contextmanager
def loaded(path, length=LENGTH):
    kinds = dict.fromkeys(("type_k", "type_v"), llama_cpp.GGML_TYPE_F32)
    llama = llama_cpp.Llama(
        str(path), n_ctx=length, logits_all=True, n_threads=1, verbose=False, **kinds
    )
    with contextlib.closing(llama):
        yield llama


def logits(llama, ids_T):
    llama.reset()
    llama.eval([int(i) for i in ids_T])
    return llama.scores[: len(ids_T)].copy()


def greedy(llama, ids_P, count):
    """Tokens that follow, taken by llama.cpp's own sampler from its cache."""
    stream = llama.generate([int(i) for i in ids_P], temp=0.0, repeat_penalty=1.0)
    return [token for token, _ in zip(stream, range(count), strict=False)]


def ids(llama, text, tokenizer):
    special = tokenizer is None or hasattr(tokenizer, "merges")
    return llama.tokenize(text.encode(), add_bos=False, special=special)


def likelihoods(logits_BTV, ids_BT):
    """Natural logarithms of the probabilities of the tokens that follow."""
    shifted = logits_BTV[:, :-1] - logits_BTV[:, :-1].max(-1, keepdims=True)
    log_BTV = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return np.take_along_axis(log_BTV, ids_BT[:, 1:, None], axis=-1)


def llama_texts(vocabulary, llama):
    """The texts on which llama.cpp tests a tokenizer, and their token ids."""
    file = llama / f"models/ggml-vocab-{vocabulary}.gguf"
    texts = file.with_suffix(".gguf.inp").read_bytes().decode("utf-8")
    lines = file.with_suffix(".gguf.out").read_text().splitlines()
    texts = texts.split("\n__ggml_vocab_test__\n")[: len(lines)]
    return texts, [[int(i) for i in line.split()] for line in lines]


def with_released(name, vocabulary, llama):
    """A tiny model with a released tokenizer."""
    fields = gguf.GGUFReader(llama / f"models/ggml-vocab-{vocabulary}.gguf").fields
    tokens, merges, types = (
        fields[f"tokenizer.ggml.{name}"].contents()
        for name in ("tokens", "merges", "token_type")
    )
    special = [t for t, kind in zip(tokens, types, strict=True) if kind in (3, 4)]
    more = {"max_sequence_length": LENGTH} if name == "gpt2" else {}
    lm = tiny_lm(name, vocabulary_size=len(tokens), num_layers=1, **more)
    prefix = type(lm).__name__.removesuffix("CausalLM")
    own = getattr(keras_hub.tokenizers, f"{prefix}Tokenizer")
    more = {} if name == "gpt2" else {"unsplittable_tokens": special}
    ids = {token: index for index, token in enumerate(tokens)}
    give(lm, own(vocabulary=ids, merges=["#version: 0.2", *merges], **more))
    return lm


def of_released(name, vocabulary, llama):
    """dict: texts with the ids that llama.cpp expects, by KerasHub and our file."""
    texts, expected = llama_texts(vocabulary, llama)
    lm = with_released(name, vocabulary, llama)
    own = [np.asarray(lm.preprocessor.tokenizer(text)).tolist() for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "ours.gguf"
        export_gguf(lm, file)
        with contextlib.closing(
            llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
        ) as opened:
            ours = [
                opened.tokenize(t.encode(), add_bos=False, special=False) for t in texts
            ]

    def equal(found):
        return sum(a == b for a, b in zip(found, expected, strict=True))

    return {"texts": len(texts), "KerasHub": equal(own), "our file": equal(ours)}


def of_families(families, texts):
    """The table of families."""
    rows = []
    for name, found in families.items():
        ids = found["f32"].get("texts of equal ids")
        words = "none" if ids is None else f"{ids} of {texts}"
        rows.append([name, words, *(cell(found[dtype]) for dtype in DTYPES)])
    return {
        "title": "Tiny models of random weights, loaded by llama.cpp",
        "columns": ["family", "texts of equal ids", *DTYPES],
        "rows": rows,
        "notes": NOTES,
    }


def cell(found):
    """What came out of one file."""
    for word in ("refused", "failed"):
        if word in found:
            return f"{word}: {found[word]}"
    return (
        f"{found['logits differ by']:.1e} of {found['largest logit']:.1f}; "
        f"{found['log-likelihood of a token differs by']:.1e}; "
        f"{found['greedy tokens equal']} of {found['greedy tokens']}"
    )


def table_of_released(released):
    """The table of released tokenizers."""
    columns = ("texts", "KerasHub", "our file")
    return {
        "title": "Released tokenizers: texts whose ids are llama.cpp's own",
        "columns": ["tokenizer", *columns],
        "rows": [[name, *(str(f[c]) for c in columns)] for name, f in released.items()],
        "notes": "Texts of llama.cpp's own tests whose ids are those that it expects "
        "there; the vocabularies lie beside them. KerasHub 0.32 cuts no words.",
    }


if __name__ == "__main__":
    sys.exit(main())
