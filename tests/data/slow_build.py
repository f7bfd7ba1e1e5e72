"""Builds a cache with a tokenizer that takes its time: a script for test_build.

    python slow_build.py SOURCE FOLDER SECONDS [GO]

Waits until the file GO is there, so that several begin at once; prints the path and
the fingerprint of the cache.
"""

import dataclasses
import pathlib
import sys
import time

from keras_idea.data import TextSource, build, build_cache, load_vocabulary

source, folder, seconds, *go = sys.argv[1:]
vocabulary = load_vocabulary("bytes")


def encode_batch(texts):
    time.sleep(float(seconds))
    return vocabulary.encode_batch(texts)


# No guard of __main__: threads need none.
print("ready", flush=True)
while go and not pathlib.Path(go[0]).exists():
    time.sleep(0.001)
build._CHUNK = 1000
cache = build_cache(
    TextSource(source),
    dataclasses.replace(vocabulary, encode_batch=encode_batch),
    folder,
    workers=1,
    shard_tokens=2000,
)
print(cache.path, cache.fingerprint)
