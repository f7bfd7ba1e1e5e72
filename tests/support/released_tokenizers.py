"""Tiny tokenizers as transformers releases them, trained with `tokenizers`.

`tokenizers`, `sentencepiece` and transformers are imported inside the functions.
"""

import io
import json

TEXT = (
    "the quick brown fox jumps over the lazy dog, and it's the dog's 1,234th day\n"
    "def f(x):\n    if x > 1024:\n        return x + 10.25\n\n"
    "The capital of France is Paris. We'll read naïve words and 漢字 again\n"
) * 8
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
LLAMA3_TOKENS = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
SMOLLM_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
#: What cuts words, special tokens, start token, end token.
BYTE_LEVEL = {
    "gpt2": (_GPT2, ("<|endoftext|>",), "<|endoftext|>", "<|endoftext|>"),
    "llama3": (_LLAMA3, LLAMA3_TOKENS, "<|begin_of_text|>", "<|end_of_text|>"),
    "instruct": (_LLAMA3, LLAMA3_TOKENS, "<|begin_of_text|>", "<|eot_id|>"),
    "qwen2": (_QWEN2, ("<|endoftext|>", "<|im_end|>"), None, "<|endoftext|>"),
    "smollm": ("digits", SMOLLM_TOKENS, "<|im_start|>", "<|im_end|>"),
}
SIZE = 400


def byte_level(name, starts=False):
    """A byte-level BPE tokenizer of transformers; `starts`: texts get its start."""
    from tokenizers import (
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        processors,
        trainers,
    )
    from tokenizers import pre_tokenizers as pre

    regex, special, start, _ = BYTE_LEVEL[name]
    made = Tokenizer(models.BPE())
    if regex == "digits":
        cut, use_regex = pre.Digits(individual_digits=True), True
    else:
        cut, use_regex = pre.Split(Regex(regex), "isolated"), False
    made.pre_tokenizer = pre.Sequence(
        [cut, pre.ByteLevel(add_prefix_space=False, use_regex=use_regex)]
    )
    made.decoder = decoders.ByteLevel()
    if name == "qwen2":
        made.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE - len(special),
        initial_alphabet=sorted(pre.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator([TEXT], trainer)
    made.add_special_tokens(list(special))
    if starts:
        ids = [(start, made.token_to_id(start))]
        made.post_processor = processors.TemplateProcessing(
            single=f"{start} $A", special_tokens=ids
        )
    return _fast(made, bos_token=start, eos_token=BYTE_LEVEL[name][3])


def sentencepiece(prefix, special=("<unk>", "<s>", "</s>"), scheme="prepend"):
    """A BPE tokenizer with bytes, as transformers makes it of a SentencePiece model.

    Returns:
        tuple, the tokenizer and the model, serialized.
    """
    import sentencepiece as sp
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
    from tokenizers import pre_tokenizers as pre

    model = io.BytesIO()
    sp.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()),
        model_writer=model,
        model_type="bpe",
        vocab_size=SIZE,
        hard_vocab_limit=False,
        byte_fallback=True,
        normalization_rule_name="identity",
        add_dummy_prefix=prefix,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    read = sp.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [read.IdToPiece(i) for i in range(read.vocab_size())]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    merges = []
    for piece in pieces:
        splits = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        merges += [(a, b) for a, b in splits if a in vocabulary and b in vocabulary]
    made = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    there = [normalizers.Replace(" ", "▁")]
    back = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix and scheme == "prepend":
        there.insert(0, normalizers.Prepend("▁"))
        back.append(decoders.Strip(" ", 1, 0))
    if prefix and scheme == "first":
        there = []
        made.pre_tokenizer = pre.Metaspace(prepend_scheme="first", split=False)
        back.append(decoders.Strip(" ", 1, 0))
    made.normalizer = normalizers.Sequence(there)
    made.decoder = decoders.Sequence(back)
    made.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in special]
    )
    found = _fast(made, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    return found, model.getvalue()


def unigram():
    """A unigram tokenizer, as of a T5, of single letters."""
    from tokenizers import Tokenizer, models
    from tokenizers import pre_tokenizers as pre

    pieces = ["<unk>", "<s>", "</s>", "▁", *"abcdefghijklmnopqrstuvwxyz"]
    made = Tokenizer(models.Unigram([(p, -1.0) for p in pieces], unk_id=0))
    made.pre_tokenizer = pre.Metaspace()
    return _fast(made, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def word_piece(lowercase=True):
    """A tokenizer of word pieces, as BERT's."""
    from tokenizers import BertWordPieceTokenizer

    made = BertWordPieceTokenizer(lowercase=lowercase)
    made.train_from_iterator([TEXT], vocab_size=300, show_progress=False)
    from transformers import BertTokenizerFast

    return BertTokenizerFast(tokenizer_object=made._tokenizer, do_lower_case=lowercase)


def _fast(tokenizer, **special):
    from transformers import PreTrainedTokenizerFast

    known = {name: token for name, token in special.items() if token}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **known)


def named(folder, tokenizer_class):
    """Writes into a folder which class of transformers its tokenizer is."""
    file = folder / "tokenizer_config.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "tokenizer_class": tokenizer_class}))
