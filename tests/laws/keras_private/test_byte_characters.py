"""The characters of bytes, against the vocabulary of another library."""

from tokenizers import pre_tokenizers

from keras_idea.keras_private.byte_characters import byte_characters


def test_bytes_have_the_characters_of_byte_level_bpe():
    characters = byte_characters()
    assert len(set(characters)) == 256
    assert sorted(characters) == sorted(pre_tokenizers.ByteLevel.alphabet())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ((written, _),) = level.pre_tokenize_str("é \n")
    assert written == "".join(characters[byte] for byte in "é \n".encode())
