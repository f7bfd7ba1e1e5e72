"""A checkpoint in KerasHub, compared with the same one in transformers.

Shapes: B batch, T tokens, V vocabulary (of an encoder: its width).
"""

import dataclasses
import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_idea.errors import LoadRefused
from keras_idea.hub.hf.config import compared_length
from keras_idea.hub.hf.quiet import quiet
from keras_idea.hub.hf.rules import rules_of
from keras_idea.hub.hf.stage import Stage
from keras_idea.hub.hf.tensors import tensor_names
from keras_idea.hub.inputs import text_inputs

# Largest difference for outputs of at most 1; it grows with the largest output.
_TOLERANCE = 2e-5
_LENGTH, _PROMPT, _NEW = 64, 8, 16
_GELU = (
    "KerasHub 0.32 computes this family's GELU with the tanh approximation: outputs "
    "differ from those of the checkpoint by {apart:.1e} of {largest:.3g}. Everything "
    "else is exact."
)
_MORE = (
    "transformers has no place for some tensors of its file, and they are left out: "
    "{names}."
)
_TEXT = (
    "The capital of France is Paris. In 2024, 1,234 people read:\n\n    it's a naïve "
    "test of words, numbers and spaces, such as  these.\n"
)


@dataclasses.dataclass(frozen=True)
class Checked:
    """How well a loaded checkpoint agrees with transformers.

    Attributes:
        difference: float, the largest between the logits.
        allowed: float, the largest that passes.
        largest: float, the largest logit.
        tokens: int, tokens whose logits were compared.
        greedy: int, greedy tokens that were equal; 0: it is an encoder.
        notes: tuple of str, what the user should know.
    """

    difference: float
    allowed: float
    largest: float
    tokens: int
    greedy: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        greedy = f", {self.greedy} greedy tokens equal" if self.greedy else ""
        what = "logits" if self.greedy else "outputs"
        return (
            f"Compared with transformers on {self.tokens} tokens: {what} within "
            f"{self.difference:.1e} of {self.largest:.3g} (allowed {self.allowed:.1e})"
            f"{greedy}"
        )


def check_numbers(backbone: Any, task: Any, stage: Stage, causal: bool) -> Checked:
    """Compares a loaded model with transformers', in float32.

    Args:
        backbone: KerasHub backbone.
        task: its `CausalLM`; not used for an encoder.
        stage: `Stage` of its folder.
        causal: bool, whether it is a language model.

    Raises:
        LoadRefused: if they compute something else; how far off.
    """
    # KerasHub's own activation, so that all else is compared exactly.
    approximated = rules_of(stage.hf_config).approximated
    own = stage.hf_config.get(approximated) == "gelu"
    theirs = _Theirs(stage, causal, {approximated: "gelu_pytorch_tanh"} if own else {})
    ours = _ours_causal(task) if causal else _ours_encoder(backbone)
    rows = _rows(stage, stage.hf_config["vocab_size"])
    pairs = [(theirs.outputs(ids_BT), ours(ids_BT)) for ids_BT in rows]
    for a_BTV, b_BTV in pairs:
        if a_BTV.shape[-1] != b_BTV.shape[-1]:
            raise _refusal(stage, f"{b_BTV.shape[-1]} outputs, not {a_BTV.shape[-1]}")
    difference = _largest(a_BTV - b_BTV for a_BTV, b_BTV in pairs)
    largest = _largest(a_BTV for a_BTV, _ in pairs)
    if not np.isfinite(largest):
        raise LoadRefused(
            "transformers computes values of this checkpoint that are not finite. "
            f"Received: {str(stage.source)!r}. Get its weights again."
        )
    allowed = _TOLERANCE * max(1.0, largest)
    if not difference <= allowed:
        raise _refusal(
            stage,
            f"other {'logits' if causal else 'outputs'}: they differ by "
            f"{difference:.2g} of {largest:.3g}, allowed are {allowed:.1e}",
        )
    tokens = sum(ids_BT.size for ids_BT in rows)
    greedy = _compare_greedy(theirs, ours, rows[-1], stage, allowed) if causal else 0
    notes = theirs.notes
    if own:
        exact = _Theirs(stage, causal, {})
        others = [exact.outputs(ids_BT) for ids_BT in rows]
        apart = _largest(
            other - pair[1] for other, pair in zip(others, pairs, strict=True)
        )
        notes += (_GELU.format(apart=apart, largest=largest),)
    return Checked(difference, allowed, largest, tokens, greedy, notes)


def _largest(arrays: Iterable[np.ndarray]) -> float:
    """The largest absolute value; infinity if one is not finite."""
    maxima = [float(np.abs(array).max()) for array in arrays]
    return max(maxima) if np.isfinite(maxima).all() else np.inf


def _refusal(stage: Stage, what: str) -> LoadRefused:
    cure = "Give another checkpoint: this one would be trained as another model."
    tie = "tie_word_embeddings"
    own_head = any("lm_head.weight" in tensor_names(f) for f in stage.weights)
    if own_head and stage.hf_config.get(tie):
        cure = (
            f"Its config says {tie}=True, and its weights have a head of their own, "
            f"lm_head.weight: set {tie} to false in its config."
        )
    return LoadRefused(
        f"KerasHub computes {what}. Received: {str(stage.source)!r}, model_type="
        f"{stage.hf_config['model_type']!r}. {cure}"
    )


class _Theirs:
    """The model in transformers."""

    def __init__(self, stage: Stage, causal: bool, options: Mapping[str, Any]) -> None:
        import transformers

        auto: Any = (
            transformers.AutoModelForCausalLM if causal else transformers.AutoModel
        )
        # Of "sdpa" some models leave out the caps on their scores.
        options = {**options, "dtype": "float32", "attn_implementation": "eager"}
        options["output_loading_info"] = True
        with quiet(transformers):
            self._model, loading_info = auto.from_pretrained(stage.source, **options)
        self.notes = _notes_of_weights(stage, loading_info)
        self._model.eval().requires_grad_(False)
        self._causal = causal
        if causal:  # what ends a text is not what is compared
            self._model.generation_config.eos_token_id = None

    def outputs(self, ids_BT: np.ndarray) -> np.ndarray:
        """Float array (B, T, V)."""
        found = self._model(**_as_torch(ids_BT))
        return (found.logits if self._causal else found.last_hidden_state).numpy()

    def greedy(self, ids_BP: np.ndarray, num_tokens: int) -> np.ndarray:
        """The ids, continued by so many greedy tokens."""
        options = {"do_sample": False, "max_new_tokens": num_tokens}
        options["min_new_tokens"] = num_tokens
        return (
            self._model.generate(**_as_torch(ids_BP), **options).numpy().astype("int32")
        )


def _notes_of_weights(stage: Stage, loading_info: Mapping[str, Any]) -> tuple[str, ...]:
    """What transformers says of the weights; refuses a file that lacks some."""
    lacking = [name for name in loading_info["missing_keys"] if "pooler" not in name]
    lacking += [str(name) for name in loading_info.get("mismatched_keys") or ()]
    if lacking:
        raise LoadRefused(
            f"Its weights lack {len(lacking)} of the tensors that its config "
            f"describes. Received: {str(stage.source)!r}, without {_some(lacking)}. "
            "Get the checkpoint again, or correct its config."
        )
    more = sorted(loading_info["unexpected_keys"])
    return (_MORE.format(names=_some(more)),) if more else ()


def _some(names: Sequence[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" * (len(names) > 3))


def _as_torch(ids_BT: np.ndarray) -> Any:
    """Inputs of a model of transformers, so that this package does not import torch."""
    import transformers

    inputs = {"input_ids": ids_BT.astype("int64")}
    inputs["attention_mask"] = np.ones_like(inputs["input_ids"])
    return transformers.BatchEncoding(inputs, tensor_type="pt")


def _ours_causal(task: Any) -> Callable[[np.ndarray], np.ndarray]:
    # The base class's: KerasHub's would take the ids for text.
    return lambda ids: np.asarray(
        keras.Model.predict_on_batch(task, text_inputs(task.input, ids))
    )


def _ours_encoder(backbone: Any) -> Callable[[np.ndarray], np.ndarray]:
    def outputs(ids_BT: np.ndarray) -> np.ndarray:
        known = {
            "token_ids": ids_BT,
            "padding_mask": np.ones_like(ids_BT),
            "segment_ids": np.zeros_like(ids_BT),
        }
        names = [tensor.name for tensor in backbone.inputs]
        values = backbone.predict_on_batch({n: known[n] for n in names})
        if isinstance(values, dict):
            values = values["sequence_output"]
        return np.asarray(values)

    return outputs


def _rows(stage: Stage, size: int) -> list[np.ndarray]:
    """Rows of tokens: of text, random ones, and one beyond a sliding window."""
    length = compared_length(stage.hf_config, _LENGTH)
    short = min(length, _LENGTH)
    random = np.random.default_rng(0).integers(0, size, (1, max(length, short)))
    padding = stage.hf_config.get("pad_token_id")
    random[random == padding] = size - 1 if padding != size - 1 else 0
    rows = [random[:, :short]]
    if length > short:
        rows.append(random)
    ids = [] if stage.tokenizer is None else stage.tokenizer.encode(_TEXT * 4)[:short]
    if max(ids, default=0) >= size:
        raise LoadRefused(
            "Its tokenizer has more tokens than its model. Received: token id "
            f"{max(ids)}, vocab_size={size}. Give the checkpoint its own tokenizer."
        )
    if 1 < len(ids):
        rows.append(np.asarray([ids]))
    return [row.astype("int32") for row in rows]


def _compare_greedy(
    theirs: "_Theirs",
    ours: Callable[[np.ndarray], np.ndarray],
    row: np.ndarray,
    stage: Stage,
    allowed: float,
) -> int:
    """Counts transformers' greedy tokens that KerasHub also chooses, allowing ties.

    One forward pass gives KerasHub's choice after each of these tokens.
    """
    prompt = min(_PROMPT, max(1, row.shape[1] - 1))
    ids_BT = theirs.greedy(row[:, :prompt], min(_NEW, row.shape[1] - prompt))
    logits_TV = ours(ids_BT)[0, prompt - 1 : -1]
    chosen_T = ids_BT[0, prompt:]
    behind_T = logits_TV.max(axis=-1) - logits_TV[np.arange(len(chosen_T)), chosen_T]
    if not (behind_T <= 2 * allowed).all():
        raise _refusal(stage, "another greedy text")
    return len(chosen_T)


Encode: TypeAlias = Callable[[str], Sequence[int]]


def check_ids(ours: Encode, theirs: Encode, texts: Iterable[str]) -> str:
    """Where a tokenizer makes other ids of a text than transformers', or ""."""
    for text in texts:
        received, expected = list(ours(text)), list(theirs(text))
        if received != expected:
            n = len(os.path.commonprefix([received, expected]))
            return (
                f"{text[:60]!r} becomes {received[n : n + 8]}, not "
                f"{expected[n : n + 8]}, from token {n} on"
            )
    return ""


def texts_of(tokenizer: Any) -> list[str]:
    """Texts on which to compare with a tokenizer of transformers.

    Some of them are made of its own tokens, in a random order.
    """
    size, special = tokenizer.vocab_size, set(tokenizer.all_special_ids)
    drawn = np.random.default_rng(0).integers(0, size, 400).tolist()
    drawn = [index for index in drawn if index not in special]
    words = [tokenizer.decode([index]).strip() for index in drawn]
    made = [" ".join(words), "".join(words), tokenizer.decode(drawn)]
    # What is no UTF-8, or read as a special token, is compared in another place.
    made = [text.replace("\ufffd", "") for text in made]
    for token in tokenizer.all_special_tokens:
        made = [text.replace(token, "") for text in made]
    return [*TEXTS, *made]


#: Where tokenizers differ: runs of spaces and lines, digits, apostrophes, scripts.
TEXTS = (
    "the quick brown fox jumps over the lazy dog",
    _TEXT,
    "def f(x):\n    if x > 1024:\n\n\n        return x + 10.25\n",
    "  It's 2024, naïve e\u0301 漢字 🙂\t\tend \n\n",
    "WE'LL they'd\r\nnew\u00a0line  3,141,592",
)
_BLANKS = "\t\n\r"


def folds_otherwise(text: str) -> bool:
    """Whether KerasHub's word pieces may fold, drop or split a character otherwise."""
    return any(
        unicodedata.normalize("NFKC", c.casefold()) != c.lower()
        or (unicodedata.category(c) in ("Cc", "Cf", "Zs") and c not in f" {_BLANKS}")
        for c in text
    )


#: Of what a tokenizer of word pieces folds.
RARE = ("Straße", "a\u00a0b", "a\u200bb")
