"""Where the stock models of a run of KerasHub's come from."""

import contextlib
import dataclasses
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import keras

from keras_idea.errors import (
    ArgumentError,
    ConfigError,
    LoadRefused,
    MissingPackage,
)
from keras_idea.finding.find_heads import find_heads
from keras_idea.hub.families import HEAD_ARGUMENTS, HUB_FAMILIES
from keras_idea.hub.ffn import hub_ffns
from keras_idea.hub.folder import task_class
from keras_idea.hub.loading import check_not_quantized, load, outline
from keras_idea.hub.rebuild import patch_get_config
from keras_idea.keras_private.variables import without_parameters, without_values
from keras_idea.lm.runs.config.model_table import ModelConfig
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.validation import require


@dataclasses.dataclass(frozen=True)
class HubSource:
    """Stock models of a class of KerasHub's, of any sizes."""

    task: type[keras.Model]  # a `keras_hub.models.CausalLM`
    backbone: type[keras.Model]
    arguments: dict[str, Any]  # the backbone's at the sizes of the start
    widths: dict[str, int]  # those of them that set the width: what a neuron takes
    prunes_heads: bool  # whether the numbers of heads change
    dtype: str  # the policy that they compute in
    preset: str | None = None  # where the wide model's weights come from

    @property
    def at_start(self) -> Sizes:
        """`Sizes` of the wide model."""
        name, per_neuron = next(iter(self.widths.items()))
        neurons = self.arguments[name] // per_neuron
        if not self.prunes_heads:
            return Sizes(neurons)
        return Sizes(neurons, self.arguments[self._heads[1]])

    @property
    def _heads(self) -> tuple[str, str, str]:
        return HEAD_ARGUMENTS[self.backbone.__name__]

    def wide(self) -> keras.Model:
        """The wide model, not compiled."""
        if self.preset is None:
            return self.stock(self.at_start)
        with loading(self.preset):
            model: Any = load(self.preset, self.dtype)
        model.preprocessor = None  # it trains on tokens
        return model

    def stock(self, sizes: Sizes) -> keras.Model:
        """A stock model with fresh weights, of given sizes."""
        return self._around(self._backbone(sizes))

    def outline(self, sizes: Sizes) -> keras.Model:
        """As `stock`, its variables without values."""
        with without_values():
            backbone = self._backbone(sizes)
        with without_parameters():
            return self._around(backbone)  # which makes an optimizer, with a value

    def _backbone(self, sizes: Sizes) -> keras.Model:
        arguments = dict(self.arguments)
        for name, per_neuron in self.widths.items():
            arguments[name] = sizes.neurons * per_neuron
        if sizes.kv_groups is not None:
            queries, keys_and_values, head_dim = self._heads
            heads = arguments[queries]
            arguments[head_dim] = (
                arguments[head_dim] or arguments["hidden_dim"] // heads
            )
            arguments[queries] = heads // arguments[keys_and_values] * sizes.kv_groups
            arguments[keys_and_values] = sizes.kv_groups
        return self.backbone.from_config(arguments)

    def _around(self, backbone: keras.Model) -> keras.Model:
        # By keyword: Gemma 3 has them in another order.
        return self.task(backbone=backbone, preprocessor=None)


def source_of_family(
    shape: ModelConfig, family: str, vocabulary_size: int, dtype: str
) -> HubSource:
    """The models of a family, `model.hub`, of the run's dimensions."""
    hub = keras_hub()
    row = HUB_FAMILIES[family]
    arguments = {
        "vocabulary_size": vocabulary_size,
        "num_layers": shape.num_layers,
        "num_query_heads": shape.num_heads,
        "num_key_value_heads": _key_value_heads(
            shape, row.from_nothing.key_value_heads
        ),
        "hidden_dim": shape.model_dim,
        "intermediate_dim": shape.hidden_dim * row.ffns.per_neuron,
        "dtype": dtype,
    }
    heads = "kv_groups" in shape.pruned_kinds
    if row.from_nothing.needs_head_dim or heads:
        arguments["head_dim"] = shape.model_dim // shape.num_heads
    source = HubSource(
        task=getattr(hub.models, f"{row.prefix}CausalLM"),
        backbone=getattr(hub.models, f"{row.prefix}Backbone"),
        arguments=arguments,
        widths={"intermediate_dim": row.ffns.per_neuron},
        prunes_heads=heads,
        dtype=dtype,
    )
    return _checked(source, f"model.hub={family!r}")


def _checked(source: HubSource, received: str) -> HubSource:
    """`source` itself, if its attention layers can lose the heads that they are to."""
    if not source.prunes_heads:
        return source
    name = source.backbone.__name__
    cure = f'Received: {received}. Delete "kv_groups" from [model]'
    if name not in HEAD_ARGUMENTS:
        able = [row.removesuffix("Backbone") for row in HEAD_ARGUMENTS]
        if source.preset is None:
            rows = HUB_FAMILIES.items()
            able = [hub for hub, row in rows if row.backbone in HEAD_ARGUMENTS]
        raise ConfigError(
            f"The key/value heads of a {name} cannot be pruned, because its config "
            "cannot say how wide a head is: no stock model has fewer of the same width."
            f" {cure}, or take one of {', '.join(able)}."
        )
    for path, why_not in find_heads(source.outline(source.at_start)).left_out.items():
        raise ConfigError(
            f"The key/value heads of '{path}' cannot be pruned: {why_not}. {cure}."
        )
    return source


def _key_value_heads(shape: ModelConfig, own: int | None) -> int:
    """As many as the run says, or the family has."""
    return shape.num_key_value_heads or own or shape.num_heads


def source_of_preset(shape: ModelConfig, dtype: str) -> HubSource:
    """The models of a preset; its weights are not read yet.

    Raises:
        ConfigError: if keras_hub is missing, or there is no such model to prune.
    """
    hub, preset = keras_hub(), shape.preset
    with loading(preset):
        check_not_quantized(str(preset))
        backbone: Any = outline(str(preset), dtype)
        patch_get_config(backbone)
        ffns = hub_ffns(backbone)
        if any(ffn.layout.experts for ffn in ffns):
            raise ArgumentError(
                "A mixture of experts adds the loss of its router to that of the text, "
                "which a run would count as bits. Prune it in a script, with "
                "`keras_idea.IdeaPruneCallback`."
            )
        task = task_class(hub.models.CausalLM, type(backbone))
        if task is None:
            name = type(backbone).__name__
            raise ArgumentError(f"KerasHub has no CausalLM of a {name}.")
    source = HubSource(
        task=task,
        backbone=type(backbone),
        arguments=backbone.get_config(),
        widths={ffn.width_argument: ffn.layout.per_neuron for ffn in ffns},
        prunes_heads="kv_groups" in shape.pruned_kinds,
        dtype=dtype,
        preset=preset,
    )
    return _checked(source, f"model.preset={preset!r}")


@contextlib.contextmanager
def loading(preset: str | None) -> Iterator[None]:
    """Turns each error of the block into a `ConfigError` about the preset."""
    try:
        yield
    except MissingPackage:
        raise
    except LoadRefused as error:
        raise ConfigError(
            f"`model.preset` gives no model to prune: {error} Received: "
            f"preset={preset!r}."
        ) from error
    # From many places: no such folder, no such handle, no network, no FFN to prune.
    except Exception as error:
        raise ConfigError(
            f"`model.preset` gives no model to prune: {' '.join(str(error).split())} "
            f"Received: preset={preset!r}. Set `model.preset` to a language model with "
            "its tokenizer: a KerasHub preset, a Hugging Face folder or a GGUF file."
        ) from error


def keras_hub() -> ModuleType:
    """The module `keras_hub`, imported only now: it brings TensorFlow along."""
    try:
        return require("keras_hub", "A KerasHub model", "hub")
    except MissingPackage as error:
        raise ConfigError(
            f"{error}. Or delete the line `hub` (or `preset`) from [model] to train "
            "this package's own decoder."
        ) from None
