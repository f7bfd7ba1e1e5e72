"""A vocabulary of bytes with tokens of a template."""

import numpy as np

from keras_idea.data import Vocabulary


def toy_vocabulary(adds_space=False):
    """Bytes, but "e " is one token (256), and tokens <s>, </s> (257, 258)."""

    def encode(text):
        text = f" {text}" if adds_space and text else text
        ids, place = [], 0
        while place < len(text):
            merged = text[place : place + 2] == "e "
            ids.append(256 if merged else ord(text[place]))
            place += 1 + merged
        return np.array(ids, "int32")

    sizes = np.array([1.0] * 256 + [2.0, 0.0, 0.0])
    ids = {"<s>": 257, "</s>": 258}
    decode = "".join
    return Vocabulary(encode, decode, sizes, 258, "toy", token_id=ids.get)
