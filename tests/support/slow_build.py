"""Builds a cache with a tokenizer that takes its time: a script for test_build.

    python slow_build.py SOURCE FOLDER SECONDS BUILDERS

The tokenizer begins when so many builds are under way in FOLDER, and takes so many
seconds for each thousand characters. Prints the path and the fingerprint of the cache.
"""

import dataclasses
import pathlib
import sys
import time

from keras_idea.data import TextSource, build_cache, load_vocabulary
from keras_idea.lm.data.tokens import build

source, folder = map(pathlib.Path, sys.argv[1:3])
seconds, builders = float(sys.argv[3]), int(sys.argv[4])
vocabulary = load_vocabulary("bytes")
seen = 0


def encode_batch(texts):
    global seen
    while seen < builders and not list(folder.glob("tokens-*")):
        seen = max(seen, len(list(folder.glob(".*.tmp"))))
        time.sleep(0.001)
    time.sleep(seconds)
    return vocabulary.encode_batch(texts)


# No guard of __main__: threads need none.
build._CHUNK = 1000
cache = build_cache(
    TextSource(source),
    dataclasses.replace(vocabulary, encode_batch=encode_batch),
    folder,
    workers=1,
    shard_tokens=2000,
)
print(cache.path, cache.fingerprint)
