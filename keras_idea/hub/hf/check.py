"""A checkpoint in KerasHub, compared with the same one in transformers.

Shapes: B batch, T tokens, V vocabulary (of an encoder: its width).
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_idea.errors import LoadRefused
from keras_idea.hub.hf.config import compared_length, not_taken_over
from keras_idea.hub.hf.quiet import quiet
from keras_idea.hub.hf.stage import Stage
from keras_idea.hub.inputs import text_inputs

# Largest difference for outputs of at most 1; it grows with the largest output.
_TOLERANCE = 2e-5
_LENGTH, _PROMPT, _NEW = 64, 8, 16
# Positions of a sequence whose logits are compared, where it is long.
_LAST = 64
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
        return (
            f"Compared with transformers on {self.tokens} tokens: logits within "
            f"{self.difference:.1e} of {self.largest:.3g} (allowed {self.allowed:.1e})"
            f"{greedy}"
        )


def check_numbers(backbone: Any, task: Any, stage: Stage, causal: bool) -> Checked:
    """Compares a loaded model with transformers', in float32.

    Args:
        backbone: KerasHub backbone.
        task: its `CausalLM`, or None of an encoder.
        stage: `Stage` of its folder.
        causal: bool, whether it is a language model.

    Raises:
        LoadRefused: if they compute something else; how far off, and the keys of the
            config that KerasHub did not take over.
    """
    theirs = _Theirs(stage, causal)
    ours = _ours_causal(task) if causal else _ours_encoder(backbone)
    size = stage.told["vocab_size"]
    difference, largest, tokens, greedy = 0.0, 0.0, 0, 0
    for ids_BT in _rows(stage, size):
        a_BTV, b_BTV = theirs.outputs(ids_BT), ours(ids_BT)
        if a_BTV.shape[-1] != b_BTV.shape[-1]:
            raise _refusal(stage, f"{b_BTV.shape[-1]} outputs, not {a_BTV.shape[-1]}")
        apart = float(np.abs(a_BTV - b_BTV).max())
        difference = max(difference, apart) if np.isfinite(apart) else np.inf
        largest = max(largest, float(np.abs(a_BTV).max()))
        tokens += ids_BT.size
    allowed = _TOLERANCE * max(1.0, largest)
    if not difference <= allowed:
        raise _refusal(
            stage,
            f"other logits: they differ by {difference:.2g} of {largest:.3g}, allowed "
            f"are {allowed:.1e}",
        )
    if causal:
        greedy = _compare_greedy(theirs, ours, stage, size, allowed)
    return Checked(difference, allowed, largest, tokens, greedy)


def _refusal(stage: Stage, what: str) -> LoadRefused:
    lost = not_taken_over(stage.config)
    keys = f" Its config has keys that KerasHub does not read: {', '.join(lost)}."
    return LoadRefused(
        f"KerasHub computes {what}.{keys if lost else ''} Received: "
        f"{str(stage.source)!r}, model_type={stage.told['model_type']!r}. Give another "
        "checkpoint: this one would be trained as another model than it is."
    )


class _Theirs:
    """The model in transformers."""

    def __init__(self, stage: Stage, causal: bool) -> None:
        import transformers

        auto: Any = (
            transformers.AutoModelForCausalLM if causal else transformers.AutoModel
        )
        # Of "sdpa" some models leave out the caps on their scores.
        told = {"dtype": "float32", "attn_implementation": "eager"}
        with quiet(transformers):
            self._model = auto.from_pretrained(stage.source, **told)
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
        told = {"do_sample": False, "max_new_tokens": num_tokens}
        told["min_new_tokens"] = num_tokens
        return self._model.generate(**_as_torch(ids_BP), **told).numpy().astype("int32")


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
        found = backbone.predict_on_batch({n: known[n] for n in names})
        if isinstance(found, dict):
            found = found["sequence_output"]
        return np.asarray(found)

    return outputs


def _rows(stage: Stage, size: int) -> list[np.ndarray]:
    """Rows of tokens: of text, random ones, and one beyond a sliding window."""
    length = compared_length(stage.told, _LENGTH)
    short = min(length, _LENGTH)
    random = np.random.default_rng(0).integers(0, size, (1, max(length, short)))
    rows = [random[:, :short]]
    if length > short:
        rows.append(random)
    ids = [] if stage.tokenizer is None else stage.tokenizer.encode(_TEXT * 4)
    if 1 < len(ids):
        rows.append(np.asarray([ids[:short]]))
    return [row.astype("int32") for row in rows]


def _compare_greedy(
    theirs: "_Theirs", ours: Callable, stage: Stage, size: int, allowed: float
) -> int:
    """Greedy tokens of transformers that KerasHub chooses too, but for ties.

    One pass says what it would choose after each of them.
    """
    row = _rows(stage, size)[-1]
    prompt = min(_PROMPT, max(1, row.shape[1] - 1))
    ids_BT = theirs.greedy(row[:, :prompt], min(_NEW, row.shape[1] - prompt))
    logits_TV = ours(ids_BT)[0, prompt - 1 : -1]
    chosen_T = ids_BT[0, prompt:]
    behind_T = logits_TV.max(axis=-1) - logits_TV[np.arange(len(chosen_T)), chosen_T]
    if not (behind_T <= 2 * allowed).all():
        raise _refusal(stage, "another greedy text")
    return len(chosen_T)


def check_ids(
    ours: Callable[[str], Sequence[int]], theirs: Callable[[str], Sequence[int]]
) -> str:
    """Where a tokenizer makes other ids of a text than transformers', or ""."""
    for text in TEXTS:
        received, expected = list(ours(text)), list(theirs(text))
        if received != expected:
            return f"{text[:60]!r} becomes {received[:12]}, not {expected[:12]}"
    return ""


#: Where tokenizers differ: runs of spaces and lines, digits, apostrophes, scripts.
TEXTS = (
    "the quick brown fox jumps over the lazy dog",
    _TEXT,
    "def f(x):\n    if x > 1024:\n\n\n        return x + 10.25\n",
    "  It's 2024, naïve e\u0301 漢字 🙂\t\tend \n\n",
    "WE'LL they'd\r\nnew\u00a0line  3,141,592",
)


def is_causal(config: Any) -> bool:
    """Whether a checkpoint is a language model, by its architecture."""
    names = getattr(config, "architectures", None) or [""]
    return any(end in names[0] for end in ("ForCausalLM", "LMHeadModel"))
