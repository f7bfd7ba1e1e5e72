"""A layer copied as the object that it is. Seen with Keras 3.15.1.

No constructor of its class runs and no config is read: what a layer computes with is in
its attributes, and a config may hold less, or, for a `keras.Model` without a
`get_config`, the defaults of its constructor.
"""

from collections.abc import Callable
from typing import Any

import keras

from keras_idea.keras_private.layers import own_attributes, unlocked
from keras_idea.keras_private.models import Functional

#: What a user can set on any layer after it is made.
_FLAGS = (
    *("_trainable", "_remat_mode", "rematerialized_call", "activity_regularizer"),
    *("_dtype_policy", "autocast", "supports_jit", "_supports_masking"),
)
#: What Keras gives each layer, and a copy takes over as it is.
KEPT = (
    *_FLAGS,
    *("_allow_non_tensor_positional_args", "_build_shapes_dict", "_call_context_args"),
    *("_call_has_context_arg", "_call_has_mask_arg", "_call_has_training_arg"),
    *("_call_signature", "_called", "_convert_input_args", "_input_spec"),
    *("_parent_path", "_path", "built", "call_signature_parameters"),
    *("_run_eagerly", "_jit_compile"),
    *("steps_per_execution", "_compute_loss_has_training_arg", "_input_shape_arg"),
)
_STORES = (
    *("trainable_variables", "non_trainable_variables", "layers"),
    *("metrics", "seed_generators"),
)


def bare_copy(layer: keras.layers.Layer) -> keras.layers.Layer:
    """A layer of the same class, name and dtype that holds nothing of its own yet."""
    copy = _new(layer)
    framework = keras.Model if isinstance(layer, keras.Model) else keras.layers.Layer
    framework.__init__(copy, name=layer.name, dtype=layer.dtype_policy)
    held = vars(layer)
    # Not by `setattr`: `trainable` would reach into sublayers.
    vars(copy).update({name: held[name] for name in KEPT if name in held})
    _take_config(layer, copy)
    return copy


def bare_graph(model: keras.Model, plain: keras.Model) -> keras.Model:
    """A model of a class derived from `Functional`, around the graph of a plain one."""
    copy = _new(model)
    inputs, outputs = plain._inputs_struct, plain._outputs_struct
    Functional.__init__(copy, inputs, outputs, name=model.name)
    _take_config(model, copy)
    return copy


def bare_sequence(
    model: keras.Model, layers: list[keras.layers.Layer]
) -> keras.Sequential:
    """A `Sequential`, or one of a class derived from it, of other layers."""
    copy = _new(model)
    keras.Sequential.__init__(copy, layers, name=model.name)
    _take_config(model, copy)
    return copy


def hand_on_flags(layer: keras.layers.Layer, copy: keras.layers.Layer) -> None:
    """Sets on a copy what a user can set on any layer."""
    vars(copy).update(_flags_of(layer))  # see `bare_copy`


def settings_of(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns what can be set on any layer, and what its class has set."""
    return _flags_of(layer) | own_attributes(layer)


def give_setting(layer: keras.layers.Layer, name: str, value: Any) -> None:
    """Sets on a copy one of the settings of its layer."""
    if name in _FLAGS:
        vars(layer)[name] = value
    else:
        unlocked(layer, set_attribute, name, value)


def _flags_of(layer: keras.layers.Layer) -> dict[str, Any]:
    return {name: vars(layer)[name] for name in _FLAGS if name in vars(layer)}


def set_attribute(layer: keras.layers.Layer, name: str, value: Any) -> None:
    """Sets an attribute as Keras does, whatever the layer's own class does then."""
    framework = keras.Model if isinstance(layer, keras.Model) else keras.layers.Layer
    framework.__setattr__(layer, name, value)


def mirror_state(
    layer: keras.layers.Layer, copy: keras.layers.Layer, copied: Callable[[Any], Any]
) -> None:
    """Has a copy track the copies of what its layer tracks, in the same order."""
    for store in _STORES:
        held = layer._tracker.config[store][1]
        mirrored = [copied(value) for value in held]
        copy._tracker.config[store][1][:] = mirrored
        copy._tracker.stored_ids[store] = set(map(id, mirrored))
    if layer._tracker.locked:
        copy._lock_state()


def variable_like(variable: keras.Variable) -> keras.Variable:
    """A variable with the same value and settings, that trains by itself."""
    copy = keras.Variable(
        # On jax two variables that share an array cannot both be donated to a step.
        keras.ops.copy(variable.value),
        dtype=variable.dtype,
        trainable=variable.trainable,
        autocast=variable._autocast,
        aggregation=variable.aggregation,
        name=variable.name,
    )
    copy._path = variable.path
    hand_on_training(variable, copy)
    return copy


def hand_on_training(variable: keras.Variable, copy: keras.Variable) -> None:
    """Sets on a copy of a variable how that is trained."""
    copy.trainable = variable.trainable
    copy.regularizer, copy.constraint = variable.regularizer, variable.constraint
    copy.overwrite_with_gradient = variable.overwrite_with_gradient


def _new(layer: keras.layers.Layer) -> Any:
    cls: Any = type(layer)
    return cls.__new__(cls)


def _take_config(layer: keras.layers.Layer, copy: keras.layers.Layer) -> None:
    """Has a copy say what its layer's constructor was given, where Keras notes that."""
    noted = getattr(layer, "_auto_config", None)
    # A dict of its own: it is changed when the layer is narrowed.
    vars(copy)["_auto_config"] = noted and type(noted)(**noted.config)
