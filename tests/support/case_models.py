"""Tiny models for the table of cases, each with a way of its own to hold its units."""

import keras
import numpy as np
from keras import layers as L
from keras import ops
from keras import optimizers as o

import keras_idea as ki
from tests.support import conv_nets, helpers, hub_models, trained_only, ways_to_train
from tests.support.dense_ffns import dense_gated, dense_ungated

D = L.Dense


def is_hub(model):
    """Whether a model is KerasHub's, a task or a backbone."""
    return type(model).__module__.startswith("keras_hub")


def loss_of(model):
    """A loss that fits the outputs of a model."""
    if hasattr(model, "backbone"):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return "mse"


def outputs_of(model, x):
    """What a model makes of data, as symbolic tensors."""
    spec = keras.tree.map_structure(lambda a: keras.KerasTensor(a.shape, a.dtype), x)
    return model.compute_output_spec(spec)


def drawn(model):
    """Gives a model weights, and statistics, that are not zeros or ones."""
    rng = np.random.default_rng(2)
    for variable in model.weights:
        values = rng.normal(size=variable.shape, scale=0.3)
        if variable.path.endswith(("gamma", "variance")):
            values = values**2 + 0.5
        if variable.trainable or "moving" in variable.path:
            variable.assign(values)
    return model


def net(*layers, shape=(8,)):
    """A functional model of one layer after the other."""
    return conv_nets.of(shape, *layers)


def mlp(width=12, activation="relu", **arguments):
    """One FFN."""
    return net(D(width, activation, name="up", **arguments), D(3, name="out"))


def residual(ffn=dense_gated, **arguments):
    """Two residual FFNs, of 16 and 12 neurons."""
    return helpers.residual_model((16, 12), ffn=ffn, **arguments)


def biased():
    return residual(use_bias=True)


def ungated():
    return residual(dense_ungated)


def own_gated():
    return residual(ki.PrunableGatedFFN)


def own_ungated():
    return residual(ki.PrunableFFN, use_bias=True)


def own_plain():
    return residual(ki.GatedFFN)


def chain():
    """The middle layer reads neurons and makes others."""
    first, second = D(12, "tanh", name="a"), D(10, "elu", name="b")
    return net(first, L.LeakyReLU(), second, D(2, name="out"))


def einsum():
    up = L.EinsumDense("btd,df->btf", (5, 12), "gelu", bias_axes="f", name="up")
    return net(up, L.EinsumDense("btf,fd->btd", (5, 8), name="out"), shape=(5, 8))


def batch_norm():
    return net(D(12, name="up"), L.BatchNormalization(), L.ReLU(), D(6, name="out"))


def called_twice():
    inputs = keras.Input((5, 8))
    up, down = D(12, "gelu", name="up"), D(8, name="down")
    return keras.Model(inputs, D(1, name="out")(down(up(inputs + down(up(inputs))))))


def over_time():
    inputs = keras.Input((5, 8))
    ffn = keras.Sequential([keras.Input((8,)), D(12, "relu"), D(8)], name="ffn")
    return keras.Model(inputs, D(1, name="out")(L.TimeDistributed(ffn)(inputs)))


def frozen():
    model = biased()
    for name in ("up", "gate", "down"):
        model.get_layer(f"ffn_0_{name}").trainable = False
    return model


def frozen_beside():
    first, norm = D(8, name="first"), L.LayerNormalization(name="norm")
    first.trainable = norm.trainable = False
    return net(first, norm, D(12, "relu", name="up"), D(3, name="out"))


def nested():
    inner = net(D(12, "relu", name="up"), D(8, name="down"))
    return keras.Sequential(
        [keras.Input((8,)), inner, D(10, "relu", name="last"), D(2, name="out")]
    )


def two_towers():
    one, other = keras.Input((5,)), keras.Input((7,))
    ends = [
        D(4, name=f"{n}_down")(D(12, "relu", name=f"{n}_up")(x))
        for n, x in (("one", one), ("other", other))
    ]
    return keras.Model([one, other], L.Dot(1)(ends))


def two_outputs():
    inputs = keras.Input((8,))
    hidden = D(12, "relu", name="up")(inputs)
    return keras.Model(inputs, [D(2, name="a")(hidden), D(3, name="b")(hidden)])


def in_blocks():
    blocks = trained_only.Mixer(name="one"), trained_only.Mixer(16, name="two")
    return net(*blocks, D(1, name="out"), shape=(4, 8))


def lora_beside():
    model = net(D(8, name="beside"), D(12, "relu", name="up"), D(3, name="out"))
    model.get_layer("beside").enable_lora(2)
    return model


def own_step():
    return ways_to_train.model_of(dense_ungated, cls=ways_to_train.Clipped)


def own_subclass():
    model = helpers.Subclassed()
    model(np.zeros((1, 5, 8), "float32"))
    return model


def undropped(make):
    """A model without its dropout, which draws other numbers when narrow."""
    model = make()
    for layer in model._flatten_layers():
        if isinstance(layer, L.Dropout):
            layer.rate = 0.0
    return model


def heads(names=("grouped", "single")):
    """Grouped queries without biases, then a head for each key, with them."""
    inputs = x = keras.Input((5, 8))
    for name in names:
        layer = L.MultiHeadAttention(4, 6, name=name)
        if name == "grouped":
            layer = L.GroupQueryAttention(4, 8, 4, use_bias=False, name=name)
        x = L.Add()([x, layer(x, x)])
        x = L.Add()([x, D(8, name=f"{name}_down")(D(12, "gelu", name=f"{name}_up")(x))])
    return keras.Model(inputs, D(2, name="out")(x))


def users_attention():
    layers = trained_only.Attention(name="attention"), D(3, name="out")
    return net(*layers, shape=(5, 8))


def packed_attention(heads=4, size=3):
    """One Dense for queries, keys and values, in a graph of Keras's operations."""
    inputs = keras.Input((5, 8))
    packed = L.Reshape((5, 3, heads, size))(D(3 * heads * size, name="qkv")(inputs))
    q, k, v = (packed[:, :, i] for i in range(3))
    scores = L.Softmax()(ops.einsum("bthd,bshd->bhts", q, k) * size**-0.5)
    y = ops.transpose(ops.matmul(scores, ops.transpose(v, (0, 2, 1, 3))), (0, 2, 1, 3))
    y = D(8, name="o")(ops.reshape(y, (-1, 5, heads * size)))
    return keras.Model(inputs, D(3, name="out")(L.Add()([inputs, y])))


def normed_channels():
    inputs = keras.Input((7, 7, 2))
    x = L.Conv2D(8, 3, use_bias=False, name="first")(inputs)
    x = L.ReLU()(L.BatchNormalization(name="normal")(x))
    y = L.Conv2D(6, 3, activation="relu", name="second")(x)
    pooled = [L.GlobalAveragePooling2D()(part) for part in (y, x)]
    return keras.Model(inputs, D(3, name="out")(L.Concatenate()(pooled)))


def conv_net(name):
    """One of `conv_nets`, without its dropout."""
    return undropped(conv_nets.MODELS[name][0])


def hub(name, **overrides):
    """A task of KerasHub, or a backbone that has none."""
    if name in hub_models.MODELS:
        return hub_models.tiny_lm(name, **overrides)
    import keras_hub

    row = hub_models.ENCODERS[name]
    model = getattr(keras_hub.models, row.backbone)(**{**row.arguments, **overrides})
    return hub_models.randomize(model, row.scale)


def excluded():
    """AdamW that does not decay biases, and one kernel."""
    optimizer = o.AdamW(0.01, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias", "ffn_1_up"])
    return optimizer


def calibration():
    """Samples for `Activation`."""
    return np.random.default_rng(5).normal(size=(8, 5, 8)).astype("float32")
