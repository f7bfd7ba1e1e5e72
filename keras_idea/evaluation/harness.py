"""The model as EleutherAI's lm-evaluation-harness asks for it (extra `eval`)."""

from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows


class HarnessModel(TemplateLM):
    """A causal Keras model behind the harness's three questions.

    Log-likelihoods come from a `TokenScorer`, in few compiled shapes. Generation is
    greedy, all prompts of a batch in lock-step, each token one forward pass.

    Args:
        scorer: `TokenScorer`.
        encode: function of a str that returns a sequence of token ids.
        decode: function of a list of token ids that returns a str.
        start_id: int, the token that stands before a text without a context.
        end_id: int or None, the token at which generation ends.

    Example:
    >>> model = HarnessModel(scorer, vocabulary.encode, vocabulary.decode, 0)
    >>> lm_eval.simple_evaluate(model, tasks=["hellaswag"])

    Source: lm-evaluation-harness 0.4 (`lm_eval.api.model.TemplateLM`).
    """

    def __init__(self, scorer, encode, decode, start_id, end_id=None):
        super().__init__()
        self._scorer = scorer
        self._encode, self._decode = encode, decode
        self._start_id, self._end_id = start_id, end_id

    @property
    def eot_token_id(self):
        """int, what stands before a text without a context."""
        return self._start_id

    @property
    def tokenizer_name(self):
        """Str that the harness puts into the names of its caches."""
        return "keras_idea"

    def tok_encode(self, string, add_special_tokens=None, **kwargs):
        """List of the token ids of a text; no special ones are added."""
        return [int(token) for token in self._encode(string)] if string else []

    def _loglikelihood_tokens(self, requests, disable_tqdm=False, **kwargs):
        """Pairs (log-likelihood of the continuation, whether it is the greedy one).

        What does not fit is cut off on the left, as the harness's own models do.
        """
        sequences, counts = [], []
        for _, context, continuation in requests:
            whole = [*context, *continuation][-(self._scorer.max_length + 1) :]
            sequences.append(whole)
            counts.append(min(len(continuation), len(whole) - 1))
        scores = self._scorer.score(sequences)
        return [
            (float(log_probability[-count:].sum()), bool(greedy[-count:].all()))
            for (log_probability, greedy), count in zip(scores, counts, strict=True)
        ]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        """The log-likelihood of each whole text, in windows that do not overlap."""
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

    def generate_until(self, requests, disable_tqdm=False):
        """The greedy continuation of each prompt, up to a stop text of its request."""
        rooms, texts, stops = [], [""] * len(requests), []
        sequences = []
        for request in requests:
            prompt, options = request.args
            stop = options.get("until") or []
            stops.append([stop] if isinstance(stop, str) else list(stop))
            rooms.append(int(options.get("max_gen_toks", 64)))
            sequences.append(self.tok_encode(prompt) or [self._start_id])
        lengths = [len(sequence) for sequence in sequences]
        open_ones = list(range(len(requests)))
        while open_ones:
            window = self._scorer.max_length
            seen = [sequences[i][-window:] for i in open_ones]
            still_open = []
            tokens = self._scorer.next_tokens(seen)
            for i, token in zip(open_ones, tokens, strict=True):
                sequences[i].append(token)
                new = sequences[i][lengths[i] :]
                if token != self._end_id:
                    texts[i] = self._decode(new)
                found = [texts[i].find(s) for s in stops[i] if s and s in texts[i]]
                if found:
                    texts[i] = texts[i][: min(found)]
                elif token != self._end_id and len(new) < rooms[i]:
                    still_open.append(i)
            open_ones = still_open
        return texts
