"""llama.cpp's own converter on the Hugging Face folders; run by served.py."""

import pathlib
import subprocess
import sys
import tempfile

import gguf
import llama_cpp
import numpy as np

from keras_idea.errors import KerasIdeaError
from keras_idea.export import export_gguf, export_hf

_UNKNOWN = "BPE pre-tokenizer was not recognized"
# What the converter would say of a tokenizer that it does not know by its hash.
_PATCHED = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import conversion.base
import convert_hf_to_gguf
conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "superbpe"
convert_hf_to_gguf.main()
"""


def converted(model, ours, llama):
    """Converts a model's Hugging Face folder and compares it with our own file.

    Args:
        model: what `export_hf` takes.
        ours: path of our GGUF file of it, in float32.
        llama: path of llama.cpp's source.

    Returns:
        dict: why there is none, or what is equal.
    """
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        try:
            export_hf(model, folder / "hf")
        except KerasIdeaError as error:
            return {"no Hugging Face folder": str(error)}
        file = folder / "theirs.gguf"
        said = convert(folder / "hf", file, llama)
        patched = _UNKNOWN in said
        if patched:
            said = convert(folder / "hf", file, llama, patched=True)
        if said:
            return {"refused": said.splitlines()[-1]}
        return {"tokenizer not recognized": patched, **compared(ours, file)}


def convert(folder, file, llama, patched=False):
    """Runs the converter; returns what it said if it failed, else ''."""
    script = llama / "convert_hf_to_gguf.py"
    program = ["-c", _PATCHED, str(llama)] if patched else [str(script)]
    command = [sys.executable, *program, str(folder), "--outfile", str(file)]
    command += ["--outtype", "f32"]
    done = subprocess.run(command, capture_output=True, text=True)
    # Without the names of folders, which are another machine's to the reader.
    said = done.stderr.strip().replace(f"{folder}/", "").replace(f"{llama}/", "")
    return said if done.returncode else ""


def compared(ours, theirs):
    """dict: tensors that are equal, and keys that are not."""
    (our_keys, our_tensors), (keys, tensors) = map(_read, (ours, theirs))
    # The converter writes a tied matrix a second time.
    our_tensors.setdefault("output.weight", our_tensors["token_embd.weight"])
    equal = [
        name
        for name, tensor in tensors.items()
        if name in our_tensors and np.allclose(tensor, our_tensors[name], atol=1e-6)
    ]
    others = {*our_tensors, *tensors} - {*equal, "output.weight"}
    return {
        "tensors": len(tensors),
        "tensors equal": len(equal),
        "other tensors": sorted(others),
        "other keys": {
            key: [our_keys[key], keys[key]]
            for key in sorted(our_keys.keys() & keys.keys())
            if not isinstance(keys[key], list)
            and our_keys[key] != keys[key]
            and not key.startswith(("GGUF.", "general."))
        },
    }


def _read(path):
    reader = gguf.GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items()}
    return keys, {tensor.name: np.array(tensor.data) for tensor in reader.tensors}


def of_released(lm, vocabulary, llama):
    """A model with a released tokenizer, by our file and through the converter.

    Args:
        lm: a KerasHub `CausalLM`, whose preprocessor has the tokenizer.
        vocabulary: str, the vocabulary's name beside llama.cpp's tests.
        llama: path of llama.cpp's source.

    Returns:
        dict of numbers.
    """
    texts, expected = test_texts(vocabulary, llama)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        export_gguf(lm, folder / "ours.gguf")
        result = {"texts": len(texts)}
        found = _ids(folder / "ours.gguf", texts)
        result["our file"] = _equal(found, expected)
        own = [np.asarray(lm.preprocessor.tokenizer(text)).tolist() for text in texts]
        result["KerasHub"] = _equal(own, expected)
        try:
            export_hf(lm, folder / "hf")
        except KerasIdeaError as error:
            return {**result, "no Hugging Face folder": str(error)}
        import transformers

        loaded = transformers.AutoTokenizer.from_pretrained(folder / "hf")
        found = [loaded.encode(text, add_special_tokens=False) for text in texts]
        result["Hugging Face folder"] = _equal(found, expected)
        said = convert(folder / "hf", folder / "theirs.gguf", llama)
        if said:
            return {**result, "refused": said.splitlines()[-1]}
        found = _ids(folder / "theirs.gguf", texts)
        result["converted folder"] = _equal(found, expected)
        return result | compared(folder / "ours.gguf", folder / "theirs.gguf")


def test_texts(vocabulary, llama):
    """The texts on which llama.cpp tests a tokenizer, and their token ids."""
    file = llama / f"models/ggml-vocab-{vocabulary}.gguf"
    texts = file.with_suffix(".gguf.inp").read_bytes().decode("utf-8")
    lines = file.with_suffix(".gguf.out").read_text().splitlines()
    texts = texts.split("\n__ggml_vocab_test__\n")[: len(lines)]
    return texts, [[int(i) for i in line.split()] for line in lines]


def read_vocabulary(vocabulary, llama):
    """Tokens, merges and special tokens of a released tokenizer."""
    keys, _ = _read(llama / f"models/ggml-vocab-{vocabulary}.gguf")
    tokens, merges, types = (
        keys[f"tokenizer.ggml.{name}"] for name in ("tokens", "merges", "token_type")
    )
    special = [t for t, kind in zip(tokens, types, strict=True) if kind in (3, 4)]
    return tokens, merges, special


def _ids(path, texts):
    llama = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    found = [llama.tokenize(t.encode(), add_bos=False, special=False) for t in texts]
    llama.close()
    return found


def _equal(found, expected):
    return sum(a == b for a, b in zip(found, expected, strict=True))
