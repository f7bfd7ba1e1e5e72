"""Tables and time series: MLPs with embeddings, gates and normalizations."""

import keras
import numpy as np
from keras import layers, ops

from benchmarks.examples.example import Built, chain, example, integers, normal
from benchmarks.examples.vit import PlaceEmbedding

DIM, KINDS = 8, 5


def table(categories=2, numbers=2):
    """Inputs of a table: a dict of integers and numbers, each without an axis."""
    x = {f"kind_{i}": integers(KINDS) for i in range(categories)}
    return x | {f"number_{i}": normal() for i in range(numbers)}


def inputs_of(x):
    """An Input for each column."""
    return {
        name: keras.Input((), name=name, dtype=str(values.dtype))
        for name, values in x.items()
    }


def encoded(inputs, dim=DIM):
    """Embeddings of the categories, and the numbers as they are."""
    return [
        layers.Embedding(KINDS, dim)(column)
        if name.startswith("kind")
        else ops.expand_dims(column, -1)
        for name, column in inputs.items()
    ]


@example("structured_data/wide_deep_cross_networks", pairs=1)
def wide_deep_cross():
    """A deep branch beside a cross branch, concatenated before the outputs."""
    x = table()
    inputs = inputs_of(x)
    x0 = layers.concatenate(encoded(inputs))
    cross = x0
    for _ in range(2):
        cross = x0 * layers.Dense(cross.shape[-1])(cross) + cross
    cross, deep = layers.BatchNormalization()(cross), x0
    for units in (32, 24):
        deep = layers.BatchNormalization()(layers.Dense(units)(deep))
        deep = layers.Dropout(0.1)(layers.ReLU()(deep))
    outputs = layers.Dense(3, activation="softmax")(layers.concatenate([cross, deep]))
    return Built(keras.Model(inputs, outputs), x)


def normalized_mlp(units, activation, normalization, name):
    """A Sequential: normalization, Dense, Dropout for each of `units`."""
    inner = []
    for width in units:
        inner += [normalization(), layers.Dense(width, activation=activation)]
        inner.append(layers.Dropout(0.2))
    return keras.Sequential(inner, name=name)


@example("structured_data/tabtransformer", pairs=2)
def tabtransformer():
    """Categories as a sequence, two blocks, an MLP of two hidden layers."""
    x = table(3, 2)
    inputs = inputs_of(x)
    columns = encoded(inputs)
    kinds = ops.stack(columns[:3], axis=1)
    for i in range(2):
        attended = layers.MultiHeadAttention(2, DIM, dropout=0.1)(kinds, kinds)
        h = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([attended, kinds]))
        ffn = normalized_mlp([DIM], "gelu", layers.LayerNormalization, f"ffn_{i}")
        kinds = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([ffn(h), h]))
    numbers = layers.LayerNormalization(epsilon=1e-6)(layers.concatenate(columns[3:]))
    h = layers.concatenate([layers.Flatten()(kinds), numbers])
    h = normalized_mlp([52, 26], "selu", layers.BatchNormalization, "MLP")(h)
    outputs = layers.Dense(1, activation="sigmoid")(h)
    model = keras.Model(inputs, outputs)
    return Built(model, x)


class GatedLinearUnit(layers.Layer):
    """A product of two Dense layers."""

    def __init__(self, units):
        super().__init__()
        self.linear = layers.Dense(units)
        self.sigmoid = layers.Dense(units, activation="sigmoid")

    def call(self, inputs):
        return self.linear(inputs) * self.sigmoid(inputs)


class GatedResidualNetwork(layers.Layer):
    """One number, `units`, for five Dense layers, one of which may never be called."""

    def __init__(self, units, dropout_rate):
        super().__init__()
        self.units = units
        self.elu_dense = layers.Dense(units, activation="elu")
        self.linear_dense = layers.Dense(units)
        self.dropout = layers.Dropout(dropout_rate)
        self.gated_linear_unit = GatedLinearUnit(units)
        self.layer_norm = layers.LayerNormalization()
        self.project = layers.Dense(units)

    def call(self, inputs):
        x = self.dropout(self.linear_dense(self.elu_dense(inputs)))
        if inputs.shape[-1] != self.units:
            inputs = self.project(inputs)
        return self.layer_norm(inputs + self.gated_linear_unit(x))


class VariableSelection(layers.Layer):
    """A gated network for each column, and one that weighs them; dicts of layers."""

    def __init__(self, kinds, numbers, units, dropout_rate):
        super().__init__()
        self.embeddings = {name: layers.Embedding(KINDS, units) for name in kinds}
        self.projections = {name: layers.Dense(units) for name in numbers}
        self.grns = [
            GatedResidualNetwork(units, dropout_rate) for _ in (*kinds, *numbers)
        ]
        self.grn_concat = GatedResidualNetwork(units, dropout_rate)
        self.softmax = layers.Dense(len(self.grns), activation="softmax")

    def call(self, inputs):
        columns = [
            self.embeddings[name](column)
            if name in self.embeddings
            else self.projections[name](ops.expand_dims(column, -1))
            for name, column in inputs.items()
        ]
        weights = self.softmax(self.grn_concat(layers.concatenate(columns)))
        found = [grn(x) for grn, x in zip(self.grns, columns, strict=True)]
        return ops.sum(ops.stack(found, axis=1) * weights[..., None], axis=1)


@example("structured_data/classification_with_grn_and_vsn", pairs=8)
def grn_vsn():
    """Three columns: four gated residual networks, two hidden layers in each."""
    x = table(1, 2)
    inputs = inputs_of(x)
    kinds, numbers = ("kind_0",), ("number_0", "number_1")
    features = VariableSelection(kinds, numbers, 12, 0.15)(inputs)
    outputs = layers.Dense(1, activation="sigmoid")(features)
    model = keras.Model(inputs, outputs)
    return Built(model, x)


@example("structured_data/movielens_recommendations_transformers", pairs=2)
def movielens_transformer():
    """A sequence of movies and their ratings, one block, two hidden layers."""
    x = {
        "sequence": integers(KINDS, 4),
        "target": integers(KINDS, 1),
        "ratings": normal(4),
    }
    inputs = {
        name: keras.Input(v.shape[1:], name=name, dtype=str(v.dtype))
        for name, v in x.items()
    }
    embedding, processor = layers.Embedding(KINDS, DIM), layers.Dense(DIM, "relu")
    movies = processor(embedding(inputs["sequence"]))
    target = processor(embedding(inputs["target"]))
    movies = movies + PlaceEmbedding(4)(movies)
    movies = layers.Multiply()([movies, ops.expand_dims(inputs["ratings"], -1)])
    one_by_one = [ops.expand_dims(m, 1) for m in ops.unstack(movies, 4, axis=1)]
    h = layers.concatenate([*one_by_one, target], axis=1)
    attended = layers.MultiHeadAttention(3, DIM, dropout=0.1)(h, h)
    h = layers.LayerNormalization()(layers.Add()([h, layers.Dropout(0.1)(attended)]))
    y = layers.Dropout(0.1)(layers.Dense(h.shape[-1])(layers.LeakyReLU()(h)))
    h = layers.Flatten()(layers.LayerNormalization()(layers.Add()([h, y])))
    for units in (32, 24):
        h = layers.BatchNormalization()(layers.Dense(units)(h))
        h = layers.Dropout(0.1)(layers.LeakyReLU()(h))
    model = keras.Model(inputs, layers.Dense(1)(h))
    return Built(model, x)


class NeuralDecisionTree(keras.Model):
    """Decisions by one Dense layer; weights without a name; constants."""

    def __init__(self, depth, num_features, used, num_classes):
        super().__init__()
        self.depth, self.num_leaves = depth, 2**depth
        chosen = np.random.default_rng(0).choice(num_features, used, replace=False)
        self.mask = ops.convert_to_tensor(np.eye(num_features)[chosen], "float32")
        self.pi = self.add_weight(
            shape=(self.num_leaves, num_classes), initializer="random_normal"
        )
        self.decision_fn = layers.Dense(self.num_leaves, "sigmoid", name="decision")

    def call(self, features):
        batch = ops.shape(features)[0]
        chosen = ops.matmul(features, ops.transpose(self.mask))
        decisions = ops.expand_dims(self.decision_fn(chosen), axis=2)
        decisions = layers.concatenate([decisions, 1 - decisions], axis=2)
        mu, begin = ops.ones((batch, 1, 1)), 1
        for level in range(self.depth):
            mu = ops.tile(ops.reshape(mu, (batch, -1, 1)), (1, 1, 2))
            mu = mu * decisions[:, begin : begin + 2**level, :]
            begin += 2**level
        mu = ops.reshape(mu, (batch, self.num_leaves))
        return ops.matmul(mu, ops.softmax(self.pi))


class NeuralDecisionForest(keras.Model):
    """The mean of some trees, in a list."""

    def __init__(self, trees, depth, num_features, num_classes):
        super().__init__()
        self.num_classes = num_classes
        self.ensemble = [
            NeuralDecisionTree(depth, num_features, num_features // 2, num_classes)
            for _ in range(trees)
        ]

    def call(self, inputs):
        outputs = ops.zeros((ops.shape(inputs)[0], self.num_classes))
        for tree in self.ensemble:
            outputs += tree(inputs)
        return outputs / len(self.ensemble)


@example("structured_data/deep_neural_decision_forests", pairs=0)
def decision_forests():
    """Two trees behind a BatchNormalization."""
    x = table()
    inputs = inputs_of(x)
    features = layers.BatchNormalization()(layers.concatenate(encoded(inputs)))
    outputs = NeuralDecisionForest(2, 2, features.shape[1], 3)(features)
    return Built(keras.Model(inputs, outputs), x)


@example("structured_data/structured_data_classification_with_feature_space", pairs=1)
def feature_space():
    """Encoded features, 32 neurons, a sigmoid."""
    inputs = keras.Input((12,))
    x = layers.Dropout(0.5)(layers.Dense(32, activation="relu")(inputs))
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
    return Built(model, normal(12))


@example("structured_data/imbalanced_classification", pairs=3)
def imbalanced():
    """Dense and Dropout in turn."""
    model = chain(
        keras.Input((12,)),
        layers.Dense(32, activation="relu"),
        layers.Dense(32, activation="relu"),
        layers.Dropout(0.3),
        layers.Dense(32, activation="relu"),
        layers.Dropout(0.3),
        layers.Dense(1, activation="sigmoid"),
    )
    return Built(model, normal(12))


@example("timeseries/timeseries_classification_transformer", pairs=1)
def timeseries_transformer():
    """Two blocks whose FFNs are Conv1D; one hidden layer in the head."""
    inputs = keras.Input((10, 1))
    x = inputs
    for _ in range(2):
        y = layers.MultiHeadAttention(2, 8, dropout=0.25)(x, x)
        x = layers.LayerNormalization(epsilon=1e-6)(layers.Dropout(0.25)(y)) + x
        y = layers.Dropout(0.25)(layers.Conv1D(4, 1, activation="relu")(x))
        y = layers.Conv1D(inputs.shape[-1], 1)(y)
        x = layers.LayerNormalization(epsilon=1e-6)(y) + x
    x = layers.GlobalAveragePooling1D(data_format="channels_last")(x)
    x = layers.Dropout(0.4)(layers.Dense(24, activation="relu")(x))
    model = keras.Model(inputs, layers.Dense(3, activation="softmax")(x))
    return Built(model, normal(10, 1))


@example("timeseries/eeg_signal_classification", pairs=3)
def eeg_signals():
    """Flatten, then a funnel of Dense layers with L2 regularizers."""
    inputs = keras.Input((16, 1))
    x = layers.Conv1D(4, 3, 2, "same", activation="relu")(inputs)
    x = layers.Flatten()(layers.BatchNormalization()(x))
    for units in (40, 24, 16):
        x = layers.Dense(units, kernel_regularizer=keras.regularizers.L2())(x)
        x = layers.Dropout(0.2)(layers.LeakyReLU()(x))
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
    return Built(model, normal(16, 1))
