"""A narrow model as a stock KerasHub task, and what it is to be compared with."""

import dataclasses

import keras
import numpy as np

from keras_idea.errors import ArgumentError, ExportRefused
from keras_idea.hub.families import is_backbone, is_task
from keras_idea.hub.inputs import text_inputs
from keras_idea.hub.rebuild import patch_get_config, rebuild_task
from keras_idea.keras_private.layers import walk
from keras_idea.lm.export.compare import Subject, model_subject, probe_length
from keras_idea.lm.export.hf.own_decoder import as_kerashub
from keras_idea.lm.export.load import reads_bytes
from keras_idea.lm.export.target import NO_TOKENIZER
from keras_idea.surgery import find_groups

_BYTES = (
    "There is no tokenizer in it: the decoder's token ids are the bytes of UTF-8 text."
)


@dataclasses.dataclass(frozen=True)
class Stock:
    """A model about to be exported.

    Args:
        lm: a stock KerasHub `CausalLM`.
        subject: `Subject`, the model that was given: what the export must equal.
        of_bytes: bool, whether its token ids are the bytes of UTF-8 text.
    """

    lm: keras.Model
    subject: Subject
    of_bytes: bool

    @property
    def name(self) -> str:
        """str, its class, and whether there is a tokenizer."""
        without = "" if self.tokenizer else " without a tokenizer"
        return f"{type(self.lm).__name__}{without}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Tuple of str, what the user should know."""
        if self.tokenizer is not None:
            return ()
        return (_BYTES if self.of_bytes else NO_TOKENIZER,)

    @property
    def vocabulary_size(self) -> int:
        """int, token ids that the model knows."""
        return self.lm.backbone.token_embedding.input_dim

    @property
    def probe_length(self) -> int:
        """int, tokens of the sequences that it is compared on."""
        return probe_length(self.lm.backbone)

    @property
    def tokenizer(self) -> keras.layers.Layer | None:
        """The KerasHub tokenizer, or None."""
        return getattr(self.lm.preprocessor, "tokenizer", None)


def stock(model: keras.Model, in_float32: bool = False) -> Stock:
    """Makes a narrow model ready to be exported by KerasHub.

    Args:
        model: a stock KerasHub `CausalLM`, or this package's compacted decoder,
            which is exported as the `CausalLM` that computes the same.
        in_float32: bool. Whether to export a copy in float32, and compare with it, if
            the model computes in another dtype. Defaults to False.

    Raises:
        ExportRefused: if the model is still prunable, takes more than text, or is
            neither of the two.
    """
    check_compacted(model)
    uses_keras_hub = is_task(model) or is_backbone(model)
    lm = model if uses_keras_hub else as_kerashub(model)
    import keras_hub

    if not isinstance(lm, keras_hub.models.CausalLM):
        raise ExportRefused(
            "Language models of KerasHub (`CausalLM`) can be exported. Received: "
            f"{type(lm).__name__}."
        )
    _check_not_quantized(lm)
    check_text_alone(lm)
    patch_get_config(lm.backbone)
    of_bytes = reads_bytes(model)
    if in_float32 and lm.backbone.dtype_policy.name != "float32":
        model = lm = copy_in_float32(lm)
    return Stock(lm, model_subject(model), of_bytes)


def check_text_alone(lm: keras.Model) -> None:
    """Refuses a task whose inputs, images for example, do not follow from token ids."""
    try:
        text_inputs(lm.input, np.zeros((1, 1), "int32"))
    except ArgumentError as error:
        raise ExportRefused(
            f"Models of text alone can be exported, so that it can be checked. {error}"
        ) from error


def _check_not_quantized(lm: keras.Model) -> None:
    for layer in walk(lm):
        mode = getattr(layer, "quantization_mode", None)
        if mode is not None:
            raise ExportRefused(
                f"'{layer.name}' of {type(lm).__name__} is quantized ({mode}). Export "
                "the model or the run that was quantized."
            )


def check_compacted(model: keras.Model) -> None:
    """Refuses a model with masked neurons, or with what pruning needs in its layers."""
    for ffn in find_groups(model):
        if ffn.masks_itself or ffn.width < ffn.hidden_dim:
            raise ExportRefused(
                f"{type(model).__name__} '{model.name}' is not compact: {ffn.name} "
                f"has {ffn.width} active {ffn.units} of {ffn.hidden_dim}. "
                "Export what `keras_idea.compact(model)` returns."
            )


def copy_in_float32(lm: keras.Model, prefix: str | None = None) -> keras.Model:
    """A copy of a stock task in float32, if asked for of a class that is its equal.

    Args:
        lm: a stock KerasHub `CausalLM`.
        prefix: str or None, of the copy's classes, `<prefix>Backbone` and
            `<prefix>CausalLM`. They must have the same arguments and variables.
            None: the same classes; the copy then keeps the preprocessor.
    """
    config = {**lm.backbone.get_config(), "dtype": "float32"}
    if prefix is None:
        backbone = type(lm.backbone).from_config(config)
        copy = rebuild_task(lm, backbone)
    else:
        import keras_hub

        backbone = getattr(keras_hub.models, f"{prefix}Backbone").from_config(config)
        task = getattr(keras_hub.models, f"{prefix}CausalLM")
        copy = task(backbone=backbone, preprocessor=None)
    for new, old in zip(copy.variables, lm.variables, strict=True):
        new.assign(old.value)
    return copy
