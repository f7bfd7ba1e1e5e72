"""Export to a Hugging Face folder, by KerasHub, checked with transformers."""

import contextlib
import importlib.util
import shutil
from typing import Any

import numpy as np

from keras_idea.errors import ExportFailed
from keras_idea.export.compare import Subject, compare
from keras_idea.export.hf_rules import family_of
from keras_idea.export.packages import require
from keras_idea.export.report import Export
from keras_idea.export.stock import copy_in_float32, in_float32, stock
from keras_idea.export.target import Kind, check_target, replacing
from keras_idea.export.tokenizers import (
    first_difference,
    mend_hf,
    start_token,
)

# Where a tokenizer goes that must not lie beside the model.
_APART = "tokenizer"
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
)
HF = Kind(
    "a Hugging Face folder",
    names=(
        "config.json",
        "generation_config.json",
        "model*.safetensors",
        "preprocessor_config.json",
        "processor_config.json",
        "README.md",
        *_TOKENIZER_FILES,
        _APART,
    ),
    marks=("config.json", "model.safetensors"),
)
_TOLERANCE = 1e-4
_NOT_CHECKED = (
    "It was NOT loaded back: that needs transformers and torch, of which {missing} is "
    'not installed. pip install "keras-idea[export,torch]" and export again to have '
    "it checked."
)
_TOKENIZER_APART = (
    f"Its tokenizer lies in the folder {_APART!r} in it, because transformers would "
    "make another one of it beside the model: AutoTokenizer.from_pretrained("
    f"'.../{_APART}')."
)
_NO_TOKENIZER = (
    "There is NO tokenizer in it: KerasHub's export of this one encodes otherwise "
    "than its own; {difference} Use the preset's."
)


def export_hf(model, path, overwrite=False):
    """Saves a narrow model as a Hugging Face folder, in float32.

    KerasHub writes it; `transformers`, where it is installed, loads it back before
    it is kept: logits, greedy tokens and tokenizer must be the model's.

    Args:
        model: a stock KerasHub `CausalLM`, as `compact` or `load_run` returns it;
            or this package's compacted decoder, which becomes a Llama.
        path: str or path of the folder.
        overwrite: bool, whether an earlier such folder there may be replaced.

    Returns:
        `Export`.

    Raises:
        ExportRefused: if the path is taken, safetensors is missing, or KerasHub is
            known to export such a model wrongly or not at all.
        ExportFailed: if what was written is not the model. Nothing is left of it.

    Example:
    >>> print(export_hf(ki.compact(lm), "narrow-hf"))
    """
    check_target(path, HF, overwrite)
    require(("safetensors",), "The export to Hugging Face", "export")
    source = in_float32(stock(model))
    exported = _exportable(source.lm)
    with replacing(path) as temporary:
        try:
            exported.export_to_transformers(str(temporary))
        except Exception as error:
            raise ExportFailed(f"KerasHub cannot export it: {error}") from error
        match, notes = _check(source, temporary)
    what = f"a Hugging Face folder of {type(source.lm).__name__}, float32"
    return Export(path, what, match, source.notes + notes)


def _exportable(lm):
    """The task that KerasHub is to export, of a class it knows."""
    family = family_of(lm.backbone)
    if family.export_as is None:
        return lm
    import keras_hub

    copy = copy_in_float32(lm, prefix=family.export_as)
    if lm.preprocessor is not None:
        tokenizer_class = getattr(keras_hub.tokenizers, family.tokenizer_as)
        copy.preprocessor = _TokenizerAlone(
            tokenizer_class(proto=lm.preprocessor.tokenizer.proto)
        )
    return copy


class _TokenizerAlone:
    """What an export asks of a preprocessor."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer


def _check(source, path):
    """`Match` or None, and notes, of a folder that was written."""
    needed = ("transformers", "torch")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        return None, (_NOT_CHECKED.format(missing=" and ".join(missing)),)
    match = compare(
        source.subject,
        _subject(path),
        source.vocabulary_size,
        _TOLERANCE,
        source.probe_length,
    )
    return match, _settle_tokenizer(source.lm.preprocessor, path)


def _subject(path):
    """What transformers loads from a folder, as a `Subject`."""
    import transformers

    model: Any

    with _quiet(transformers):
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                path, dtype="float32"
            )
        except Exception as error:
            raise ExportFailed(
                f"transformers cannot load what KerasHub exported: {error}"
            ) from error
    model.eval().requires_grad_(False)
    # What ends a text is not what is compared.
    model.generation_config.eos_token_id = None

    def batch(ids_BT):
        inputs = {"input_ids": ids_BT, "attention_mask": np.ones_like(ids_BT)}
        inputs = {name: array.astype("int64") for name, array in inputs.items()}
        # So that this package does not import torch.
        return transformers.BatchEncoding(inputs, tensor_type="pt")

    def logits(ids_BT):
        return model(**batch(ids_BT)).logits.numpy()

    def greedy(ids_BP, num_tokens):
        outputs = model.generate(
            **batch(ids_BP), do_sample=False, max_new_tokens=num_tokens
        )
        return outputs.numpy()

    return Subject(logits, greedy)


def _settle_tokenizer(preprocessor, path):
    """Makes the folder's tokenizer the model's, or takes it out; notes for that."""
    if preprocessor is None or not _tokenizer_difference(preprocessor, path):
        return ()
    mend_hf(preprocessor.tokenizer, path, start_token(preprocessor))
    difference = _tokenizer_difference(preprocessor, path)
    if not difference:
        return ()
    # Beside a config.json transformers may take the family's class whatever the
    # tokenizer's own files say: Qwen's cuts the text as it likes.
    apart = path / _APART
    apart.mkdir()
    for name in _TOKENIZER_FILES:
        if (path / name).exists():
            (path / name).rename(apart / name)
    if not _tokenizer_difference(preprocessor, apart):
        return (_TOKENIZER_APART,)
    shutil.rmtree(apart)
    return (_NO_TOKENIZER.format(difference=difference),)


def _tokenizer_difference(preprocessor, path):
    import transformers

    tokenizer = preprocessor.tokenizer
    start = [tokenizer.start_token_id] if start_token(preprocessor) else []

    def with_start(text):
        return [*start, *np.asarray(tokenizer(text)).tolist()]

    with _quiet(transformers):
        try:
            loaded = transformers.AutoTokenizer.from_pretrained(path)
        except Exception as error:
            return f"transformers cannot load it: {error}."
    return first_difference(with_start, loaded.encode)


@contextlib.contextmanager
def _quiet(transformers):
    """Without progress bars and warnings: what matters is told in an error."""
    logging = transformers.utils.logging
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
