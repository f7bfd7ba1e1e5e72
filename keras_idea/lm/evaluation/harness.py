"""The model as EleutherAI's lm-evaluation-harness asks for it (extra `eval`)."""

import importlib.metadata
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows

from keras_idea.errors import EvaluationError, MissingPackage
from keras_idea.lm.evaluation.scorer import TokenScorer
from keras_idea.models.generate import extend_rows

_LOGGER = logging.getLogger("keras_idea.evaluation")
# The first version that puts a task's examples before a question of MMLU or TriviaQA.
_OLDEST = (0, 4, 12)
# As the harness's own models, for a request that does not say.
_MAX_NEW_TOKENS = 256
_NAMES_OF_ROOM = (
    "max_gen_toks",
    "max_new_tokens",
    "max_tokens",
    "max_completion_tokens",
)


class HarnessModel(TemplateLM):
    """A causal Keras model behind the harness's three questions.

    It answers as the harness's own model `hf` does on the same weights: where that
    one's tokenizer begins every text with a start token, so does this one. Log-
    likelihoods come from a `TokenScorer`, in few compiled shapes. Generation is
    greedy, all prompts of a batch in lock-step, each token one forward pass.

    It is not `hf` in this: a continuation longer than the model sees at once is scored
    as far as it fits, with a warning (`hf` stops the evaluation); where the new tokens
    leave no room for a prompt, the window slides (`hf` stops); sampling is refused.
    Tokens are those of `encode`, so that of a KerasHub tokenizer what it does otherwise
    than transformers stays: KerasHub 0.32 merges bytes across words ("12345" in a
    converted Llama 3), SentencePiece reads no special token out of a text, and bytes
    that are no UTF-8 look different in generated text.

    Args:
        scorer: `TokenScorer`.
        encode: function of a text that returns its token ids.
        decode: function of a list of token ids that returns a text.
        start_id: int, the token that stands before a text without a context.
        end_id: int or None, the token at which generation ends.
        add_start: bool, whether `start_id` also begins every other text, as the
            tokenizers of Llama and Gemma have it.
        special_ids: collection of int, tokens left out of the text that is
            generated.

    Example:
    >>> from keras_idea.data import byte_vocabulary
    >>> encode, decode = byte_vocabulary().encode, byte_vocabulary().decode
    >>> scorer = TokenScorer(model, max_length=16)
    >>> answering = HarnessModel(scorer, encode, decode, start_id=0)
    >>> answering.tok_encode("a b")
    [97, 32, 98]
    >>> import lm_eval
    >>> lm_eval.simple_evaluate(answering, tasks=["hellaswag"])  # doctest: +SKIP

    Source: lm-evaluation-harness 0.4 (`lm_eval.api.model.TemplateLM`,
    `lm_eval.models.huggingface.HFLM`).
    """

    def __init__(
        self,
        scorer: TokenScorer,
        encode: Callable[[str], Iterable[int]],
        decode: Callable[[list[int]], str],
        start_id: int,
        end_id: int | None = None,
        add_start: bool = False,
        special_ids: Iterable[int] = (),
    ) -> None:
        super().__init__()
        _check_version()
        self._scorer = scorer
        self._encode, self._decode = encode, decode
        self._start_id, self._end_id = start_id, end_id
        self._add_start, self._special_ids = add_start, frozenset(special_ids)

    @property
    def eot_token_id(self) -> int:
        """int, the token at which text ends."""
        return self._start_id if self._end_id is None else self._end_id

    @property
    def prefix_token_id(self) -> int:
        """int, what stands before a text without a context."""
        return self._start_id

    @property
    def tokenizer_name(self) -> str:
        """Str that the harness puts into the names of its caches."""
        return "keras_idea"

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """List of the token ids of a text.

        `add_special_tokens` says whether the start token comes first; None: if
        `add_start`, unless the text itself begins with it.
        """
        ids = [int(token) for token in self._encode(string)] if string else []
        if add_special_tokens is None:
            add_special_tokens = self._add_start and ids[:1] != [self._start_id]
        return [self._start_id, *ids] if add_special_tokens else ids

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        """Pairs (log-likelihood of the continuation, whether it is the greedy one).

        What does not fit is cut off on the left, as the harness's own models do.
        """
        sequences, counts, too_long = [], [], 0
        for texts, context, continuation in requests:
            if not continuation:
                raise EvaluationError(
                    f"A continuation must have at least one token. Received: {texts!r}."
                )
            # The harness moves white space that ends a context to the continuation.
            context = context or [self._start_id]
            whole = [*context, *continuation][-(self._scorer.max_length + 1) :]
            sequences.append(whole)
            counts.append(min(len(continuation), len(whole) - 1))
            too_long += counts[-1] < len(continuation)
        if too_long:
            _LOGGER.warning(
                "%d of %d continuations are longer than the %d tokens that the model "
                "sees at once: only their ends are scored. Give a larger --length.",
                too_long,
                len(requests),
                self._scorer.max_length,
            )
        scores = self._scorer.score(sequences)
        return [
            (float(log_probability[-count:].sum()), bool(greedy[-count:].all()))
            for (log_probability, greedy), count in zip(scores, counts, strict=True)
        ]

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """The log-likelihood of each whole text, in windows that do not overlap.

        A start token that `add_start` brings is predicted too, as `hf` does.
        """
        totals = []
        for request in requests:
            (text,) = request.args
            windows = list(
                get_rolling_token_windows(
                    self.tok_encode(text),
                    prefix_token=self._start_id,
                    max_seq_len=self._scorer.max_length,
                    context_len=1,
                )
            )
            # The last window has tokens of the one before as its context.
            scores = self._scorer.score([[*a, b[-1]] for a, b in windows])
            counts = [len(targets) for _, targets in windows]
            totals.append(
                sum(
                    float(log_probability[-count:].sum())
                    for (log_probability, _), count in zip(scores, counts, strict=True)
                )
            )
        return totals

    def generate_until(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[str]:
        """The greedy continuation of each prompt, up to a stop text of its request."""
        window = self._scorer.max_length
        rooms, texts, stops, prompts = [], [""] * len(requests), [], []
        for request in requests:
            prompt, options = request.args
            _refuse_sampling(options)
            stop = options.get("until") or []
            stops.append([stop] if isinstance(stop, str) else list(stop))
            rooms.append(_room(options))
            ids = self.tok_encode(prompt) or [self._start_id]
            # Cut off on the left, so that what is written still fits.
            prompts.append(ids[-max(1, window - rooms[-1]) :])

        def next_tokens(rows: list[list[int]]) -> list[int]:
            return self._scorer.next_tokens([row[-window:] for row in rows])

        def ended(i: int, new: list[int]) -> bool:
            at_end = new[-1] == self._end_id
            if not at_end:
                texts[i] = self._text_of(new)
            found = [texts[i].find(s) for s in stops[i] if s and s in texts[i]]
            if found:
                texts[i] = texts[i][: min(found)]
            return bool(found) or at_end

        extend_rows(next_tokens, prompts, rooms, ended)
        return texts

    def _text_of(self, ids: list[int]) -> str:
        return self._decode([i for i in ids if i not in self._special_ids])


def _check_version() -> None:
    """Raises an error if the harness would leave the examples of a task out."""
    version = importlib.metadata.version("lm_eval")
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < _OLDEST:
        raise MissingPackage(
            f"lm-eval {version} asks MMLU and TriviaQA without their examples. Install "
            '0.4.12 or later: pip install --upgrade "keras-idea[eval]"'
        )


def _room(options: Mapping) -> int:
    """int, the tokens that a request lets a model write."""
    given = (options[name] for name in _NAMES_OF_ROOM if options.get(name) is not None)
    return int(next(given, _MAX_NEW_TOKENS))


def _refuse_sampling(options: Mapping) -> None:
    temperature = float(options.get("temperature") or 0.0)
    samples = options.get("do_sample")
    if samples or (samples is None and temperature > 0.0):
        raise EvaluationError(
            "Text is generated greedily here, not drawn. Received: a task with "
            f"do_sample={samples!r}, temperature={temperature!r}. Take a task whose "
            "`generation_kwargs` say do_sample: false."
        )
