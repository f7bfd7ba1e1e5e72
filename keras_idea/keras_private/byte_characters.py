"""How KerasHub writes the bytes of a byte-level tokenizer."""


def byte_characters() -> list[str]:
    """For each byte the printable character that stands for it in byte-level BPE.

    KerasHub's tokenizers take vocabularies in these characters, but export no function
    that tells them. Seen with KerasHub 0.32.
    """
    from keras_hub.src.tokenizers.byte_pair_tokenizer import bytes_to_unicode

    characters = dict(zip(*bytes_to_unicode(), strict=True))
    return [characters[bytes([byte])] for byte in range(256)]
