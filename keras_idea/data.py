"""Text to train on: read, tokenized once, packed, and given to `fit` in batches."""

from keras_idea.errors import CacheError, PositionError, TextError
from keras_idea.lm.data.text.hf_dataset import StreamedDataset
from keras_idea.lm.data.text.records import BadRecordError, ReadLog
from keras_idea.lm.data.text.sources import TextSource
from keras_idea.lm.data.text.tokenizers import (
    huggingface_vocabulary,
    load_vocabulary,
    sentencepiece_vocabulary,
)
from keras_idea.lm.data.text.vocabulary import (
    Vocabulary,
    byte_vocabulary,
    tokenizer_vocabulary,
)
from keras_idea.lm.data.tokens.batches import (
    PackedWindows,
    TokenBatches,
    join_documents,
)
from keras_idea.lm.data.tokens.build import build_cache
from keras_idea.lm.data.tokens.cache import TokenCache, TokenRange
from keras_idea.lm.data.tokens.cached_corpus import CachedCorpus, Documents
from keras_idea.lm.data.tokens.corpus import Corpus
from keras_idea.lm.data.tokens.load_text import load_text

__all__ = [
    "BadRecordError",
    "CacheError",
    "CachedCorpus",
    "Corpus",
    "Documents",
    "PackedWindows",
    "PositionError",
    "ReadLog",
    "StreamedDataset",
    "TextError",
    "TextSource",
    "TokenBatches",
    "TokenCache",
    "TokenRange",
    "Vocabulary",
    "build_cache",
    "byte_vocabulary",
    "huggingface_vocabulary",
    "join_documents",
    "load_text",
    "load_vocabulary",
    "sentencepiece_vocabulary",
    "tokenizer_vocabulary",
]
