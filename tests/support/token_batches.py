"""A cache of short documents whose windows are all different."""

import numpy as np

from keras_idea.data import TextSource, build_cache, load_vocabulary
from tests.support.text_files import jsonl, write

LENGTH = 8
DOCUMENTS = [f"{(i + 1) * 87_178_291_199 % 10**11:011}" for i in range(36)]


def make_cache(folder, texts):
    write(folder, {"a.jsonl": jsonl(texts)})
    source, vocabulary = TextSource(folder / "a.jsonl"), load_vocabulary("bytes")
    return build_cache(source, vocabulary, folder / "cache", shard_tokens=150)


def ids_of(batches, steps, start=0):
    return np.concatenate([batches.sample_ids(start + s) for s in range(steps)])
