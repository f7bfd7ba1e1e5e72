"""The table `[model]` of a run's description: which model, and of what shape."""

import dataclasses
import functools
from typing import NoReturn

from keras_idea.callbacks.budget import BYTES, Budget
from keras_idea.callbacks.target import target_width
from keras_idea.errors import ArgumentError
from keras_idea.hub.make_tokenizer import TOKENIZERS, check_tokenizer
from keras_idea.runs.config import fields
from keras_idea.runs.config.hub_name import check_hub

# What a preset decides itself; the values where nothing decides.
_DIMENSIONS = {
    "model_dim": 64,
    "num_layers": 2,
    "num_heads": 4,
    "num_key_value_heads": None,
    "hidden_dim": 512,
}
_TARGET_DIM = 192


@dataclasses.dataclass(frozen=True)
class ModelConfig(fields.Table):
    """`[model]`: what is trained, and its shape before and after pruning.

    The defaults stand in the fields; of what a preset decides, in `_DIMENSIONS`.

    Args:
        hub: str or None, a KerasHub family, as of `check_hub`: trains its
            stock `CausalLM`. None, without a preset: this package's own decoder.
        preset: str or None, a KerasHub preset to begin with: a folder, or a handle
            such as "hf://...". It decides the dimensions, which must be left out.
        tokenizer: str or None, of a hub model: "bytes", "bpe" or "sentencepiece"
            (trained on the run's text; each family takes one of them); "preset":
            a preset's own. Default: "bytes", or "preset".
        vocabulary_size: int or None, tokens of a trained tokenizer. Default 4096.
        model_dim: int, width of the residual stream.
        num_layers: int, decoder blocks.
        num_heads: int, attention heads; divides `model_dim`.
        num_key_value_heads: int or None, heads of keys and values; divides
            `num_heads`. None: as many as `num_heads`; of a Gemma, one.
        hidden_dim: int, neurons of each FFN at the start: the enlarged width.
        target_dim: int, neurons of each FFN at the end; or a float in (0, 1), the
            fraction of `hidden_dim` kept. Default 192, unless there is a budget.
        target_parameters: int or None, a budget in its place: the parameters that the
            narrow model may have; its FFNs become as wide as that allows.
        target_bytes: int or None, the same in bytes, of parameters in `target_dtype`.
        target_flops: int or None, the same in operations of a token, forward: two a
            weight in a matrix.
        target_dtype: str, "float32" (default), "bfloat16", "float16" or "int8".
        round_to: int, of which a width that is not given as a number of neurons is a
            multiple. Default 1.
        sequence_length: int, tokens the model sees at once.
    """

    table = "model"
    hub: str | None = fields.checked(None, check_hub)
    preset: str | None = fields.optional(fields.check_text)
    tokenizer: str = fields.optional(fields.one_of(*TOKENIZERS, "preset"))
    vocabulary_size: int | None = fields.optional(fields.whole())
    # None only in a run from a preset.
    model_dim: int = fields.optional(fields.whole())
    num_layers: int = fields.optional(fields.whole())
    num_heads: int = fields.optional(fields.whole())
    num_key_value_heads: int | None = fields.optional(fields.whole())
    hidden_dim: int = fields.optional(fields.whole(minimum=2))
    target_dim: int | float = fields.optional(fields.check_width)
    target_parameters: int | None = fields.optional(fields.count)
    target_bytes: int | None = fields.optional(fields.count)
    target_flops: int | None = fields.optional(fields.count)
    target_dtype: str = fields.choice("float32", *BYTES)
    round_to: int = fields.integer(1, minimum=1)
    sequence_length: int = fields.integer(64, minimum=2)

    def _check_together(self) -> None:
        self._check_tokenizer()
        if self.budget and self.target_dim is not None:
            raise fields.ConfigError(
                f"`model.target_dim` and {self.budget} cannot both be given. Received: "
                f"{self.told('target_dim')}. Delete one of them."
            )
        if not self.budget and self.target_dim is None:
            object.__setattr__(self, "target_dim", _TARGET_DIM)
        if self.preset is not None:
            return self._refuse_dimensions()
        for name, default in _DIMENSIONS.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        self._check_heads()
        if not self.budget:
            self.width_at_end(self.hidden_dim)

    def _check_tokenizer(self) -> None:
        default = "bytes" if self.preset is None else "preset"
        kind = self.tokenizer or default
        object.__setattr__(self, "tokenizer", kind)
        refuse = functools.partial(_refuse_tokenizer, kind, self.vocabulary_size)
        if self.preset is not None:
            if kind != "preset" or self.vocabulary_size is not None:
                refuse("a preset has its own tokenizer", "Delete them")
        elif kind == "preset":
            refuse(
                "there is no preset",
                f"Set `model.preset`, or `tokenizer` to {default!r}",
            )
        elif self.hub is not None:
            check_tokenizer(self.hub, kind, self.vocabulary_size, "model.tokenizer")
        elif kind != "bytes" or self.vocabulary_size is not None:
            refuse(
                "this package's own decoder reads bytes",
                "Set `model.hub` to a KerasHub family, or delete them",
            )

    def _refuse_dimensions(self) -> None:
        for name in ("hub", *_DIMENSIONS):
            if getattr(self, name) is not None:
                raise fields.ConfigError(
                    f"`model.{name}` cannot be given together with model.preset="
                    f"{self.preset!r}, which decides it. Received: {self.told(name)}. "
                    f"Delete `{name}`, or `preset`."
                )

    def _check_heads(self) -> None:
        if self.model_dim % (2 * self.num_heads):
            raise fields.ConfigError(
                "`model.model_dim` must be a multiple of 2 × model.num_heads, because "
                "rotary embeddings rotate pairs. Received: "
                f"{self.told('model_dim', 'num_heads')}. Set `model_dim` to "
                f"{fields.nearest_multiple(self.model_dim, 2 * self.num_heads)}."
            )
        key_value_heads = self.num_key_value_heads or self.num_heads
        if self.num_heads % key_value_heads:
            raise fields.ConfigError(
                f"`model.num_key_value_heads` must divide model."
                f"{self.told('num_heads')}. Received: "
                f"{self.told('num_key_value_heads')}. Set `num_key_value_heads` to "
                f"one of {fields.divisors(self.num_heads)}."
            )

    @property
    def of_hub(self) -> bool:
        """bool, whether the models are KerasHub's."""
        return self.hub is not None or self.preset is not None

    @property
    def budget(self) -> Budget:
        """`Budget` of the narrow model; empty if its width is given."""
        limits = self.target_parameters, self.target_bytes, self.target_flops
        try:
            return Budget(*limits, self.target_dtype)
        except ArgumentError as error:
            raise fields.ConfigError(f"[model] {error}") from None

    def width_at_end(self, hidden_dim: int) -> int:
        """The neurons of each FFN at the end, without a budget.

        Args:
            hidden_dim: int, neurons of each FFN at the start.

        Returns:
            int.

        Raises:
            ConfigError: if there is nothing to prune.
        """
        width = self.target_dim
        if isinstance(width, float):
            width = target_width(width, hidden_dim, self.round_to)
        if width >= hidden_dim:
            known = self.told("hidden_dim")
            if self.hidden_dim is None:
                known = f"hidden_dim={hidden_dim} of the preset"
            raise fields.ConfigError(
                f"`model.target_dim` must be below model.{known}: pruning makes the "
                f"FFNs narrower. Received: {self.told('target_dim')}. Lower "
                "`target_dim`"
                + (", or raise `hidden_dim`." if self.hidden_dim is not None else ".")
            )
        return width


def _refuse_tokenizer(
    kind: str, vocabulary_size: int | None, reason: str, cure: str
) -> NoReturn:
    size = "" if vocabulary_size is None else f", vocabulary_size={vocabulary_size}"
    raise fields.ConfigError(
        f"`model.tokenizer` does not fit: {reason}. Received: tokenizer={kind!r}{size}"
        f". {cure}."
    )
