"""Graphs: FFNs of normalization, Dropout and Dense; attention; messages."""

import keras
import numpy as np
from keras import layers, ops

from benchmarks.examples.example import (
    Built,
    backend_gelu,
    example,
    ffn,
    integers,
    normal,
)

NODES, FEATURES, CLASSES = 12, 6, 4
EDGES = np.random.default_rng(2).integers(0, NODES, (2, 30)).astype("int32")


def create_ffn(units, rate=0.2, name=None):
    """A Sequential: BatchNormalization, Dropout, Dense for each of `units`."""
    inner = []
    for width in units:
        inner += [layers.BatchNormalization(), layers.Dropout(rate)]
        inner.append(layers.Dense(width, activation=backend_gelu()))
    return keras.Sequential(inner, name=name)


@example("graph/gnn_citations: baseline", pairs=4)
def gnn_baseline():
    """Four blocks of two Dense layers each."""
    inputs = keras.Input((FEATURES,), name="input_features")
    x = create_ffn([24, 16], name="ffn_block1")(inputs)
    for i in range(3):
        y = create_ffn([24, 16], name=f"ffn_block{i + 2}")(x)
        x = layers.Add(name=f"skip_connection{i + 2}")([x, y])
    model = keras.Model(inputs, layers.Dense(CLASSES, name="logits")(x))
    return Built(model, normal(FEATURES))


class GraphConvLayer(layers.Layer):
    """Messages by an FFN, a mean over neighbors, an update by an FFN."""

    def __init__(self, hidden_units, dropout_rate=0.2, normalize=False, **kwargs):
        super().__init__(**kwargs)
        self.normalize = normalize
        self.ffn_prepare = create_ffn(hidden_units, dropout_rate)
        self.update_fn = create_ffn(hidden_units, dropout_rate)

    def call(self, inputs):
        nodes, edges, weights = inputs
        messages = self.ffn_prepare(ops.take(nodes, edges[1], axis=0))
        messages = messages * ops.expand_dims(weights, -1)
        found = ops.segment_sum(messages, edges[0], num_segments=NODES)
        found = self.update_fn(ops.concatenate([nodes, found], axis=1))
        return ops.normalize(found, axis=-1) if self.normalize else found


class GNNNodeClassifier(keras.Model):
    """Holds its graph; is called on indices of nodes."""

    def __init__(self, graph_info, num_classes, hidden_units, rate=0.2, **kwargs):
        super().__init__(**kwargs)
        nodes, edges, weights = graph_info
        self.nodes = ops.convert_to_tensor(nodes)
        self.edges = ops.convert_to_tensor(edges)
        self.edge_weights = ops.convert_to_tensor(weights / weights.sum())
        self.preprocess = create_ffn(hidden_units, rate, name="preprocess")
        self.conv1 = GraphConvLayer(hidden_units, rate, True, name="graph_conv1")
        self.conv2 = GraphConvLayer(hidden_units, rate, True, name="graph_conv2")
        self.postprocess = create_ffn(hidden_units, rate, name="postprocess")
        self.compute_logits = layers.Dense(num_classes, name="logits")

    def call(self, indices):
        x = self.preprocess(self.nodes)
        x = self.conv1((x, self.edges, self.edge_weights)) + x
        x = self.conv2((x, self.edges, self.edge_weights)) + x
        return self.compute_logits(ops.take(self.postprocess(x), indices, axis=0))


@example("graph/gnn_citations", pairs=6)
def gnn_citations():
    """Six FFNs of two Dense layers each."""
    rng = np.random.default_rng(0)
    nodes = rng.normal(size=(NODES, FEATURES)).astype("float32")
    graph = nodes, EDGES, np.ones(30, "float32")
    model = GNNNodeClassifier(graph, CLASSES, [24, 16], name="gnn_model")
    return Built(model, integers(NODES))


class GraphAttention(layers.Layer):
    """Attention along edges, by kernels of its own."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[0][-1], self.units), name="kernel")
        self.attention = self.add_weight(shape=(2 * self.units, 1), name="attention")

    def call(self, inputs):
        states, edges = inputs
        z = ops.matmul(states, self.kernel)
        targets, sources = edges[0], edges[1]
        near = ops.take(z, sources, axis=0)
        both = ops.concatenate([ops.take(z, targets, axis=0), near], axis=-1)
        scores = ops.leaky_relu(ops.squeeze(ops.matmul(both, self.attention), -1))
        scores = ops.exp(ops.clip(scores, -2, 2))
        total = ops.segment_sum(scores, targets, num_segments=NODES)
        scores = scores / (ops.take(total, targets, axis=0) + 1e-8)
        return ops.segment_sum(near * scores[:, None], targets, num_segments=NODES)


class MultiHeadGraphAttention(layers.Layer):
    """Heads in a list, concatenated."""

    def __init__(self, units, num_heads=2, **kwargs):
        super().__init__(**kwargs)
        self.heads = [GraphAttention(units) for _ in range(num_heads)]

    def call(self, inputs):
        return ops.relu(ops.concatenate([head(inputs) for head in self.heads], axis=-1))


class GraphAttentionNetwork(keras.Model):
    """Holds its graph; is called on indices."""

    def __init__(self, states, edges, units, heads, num_layers, outputs, **kwargs):
        super().__init__(**kwargs)
        self.states = ops.convert_to_tensor(states)
        self.edges = ops.convert_to_tensor(edges)
        self.preprocess = layers.Dense(units * heads, activation="relu")
        self.attention = [
            MultiHeadGraphAttention(units, heads) for _ in range(num_layers)
        ]
        self.output_layer = layers.Dense(outputs)

    def call(self, indices, training=False):
        x = self.preprocess(self.states)
        for layer in self.attention:
            x = layer([x, self.edges]) + x
        return ops.take(self.output_layer(x), indices, axis=0)


@example("graph/gat_node_classification", pairs=0)
def gat():
    """Two layers of two heads."""
    nodes = np.random.default_rng(0).normal(size=(NODES, FEATURES)).astype("float32")
    model = GraphAttentionNetwork(nodes, EDGES, 8, 2, 2, CLASSES)
    return Built(model, integers(NODES))


class EdgeNetwork(layers.Layer):
    """A matrix for each bond, by a kernel of its own."""

    def build(self, shape):
        self.atom_dim = shape[0][-1]
        shape = (shape[1][-1], self.atom_dim**2)
        self.kernel = self.add_weight(shape=shape, name="kernel")
        self.built = True

    def call(self, inputs):
        atoms, bonds = inputs
        matrices = ops.matmul(bonds, self.kernel)
        shape = (-1, *bonds.shape[1:3], self.atom_dim, self.atom_dim)
        return ops.einsum("bijde,bje->bid", ops.reshape(matrices, shape), atoms)


class MessagePassing(layers.Layer):
    """Edge network and GRU cell, called again and again, made in `build`."""

    def __init__(self, units, steps=2, **kwargs):
        super().__init__(**kwargs)
        self.units, self.steps = units, steps

    def build(self, shape):
        self.pad = max(0, self.units - shape[0][-1])
        self.message_step = EdgeNetwork()
        self.update_step = layers.GRUCell(shape[0][-1] + self.pad)
        self.built = True

    def call(self, inputs):
        atoms, bonds = inputs
        atoms = ops.pad(atoms, ((0, 0), (0, 0), (0, self.pad)))
        for _ in range(self.steps):
            found = self.message_step([atoms, bonds])
            flat = ops.reshape(found, (-1, self.units))
            new, _ = self.update_step(flat, [ops.reshape(atoms, (-1, self.units))])
            atoms = ops.reshape(new, ops.shape(found))
        return atoms


class TransformerReadout(layers.Layer):
    """An encoder layer and a mean over atoms; no get_config."""

    def __init__(self, num_heads=2, embed_dim=16, dense_dim=32, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(num_heads, embed_dim)
        self.dense_proj = ffn(dense_dim, embed_dim)
        self.layernorm_1 = layers.LayerNormalization()
        self.layernorm_2 = layers.LayerNormalization()
        self.average_pooling = layers.GlobalAveragePooling1D()

    def call(self, inputs):
        mask = ops.any(ops.not_equal(inputs, 0.0), axis=-1)[:, None, None, :]
        x = self.attention(inputs, inputs, attention_mask=mask)
        x = self.layernorm_1(inputs + x)
        return self.average_pooling(self.layernorm_2(x + self.dense_proj(x)))


@example("graph/mpnn-molecular-graphs", pairs=2)
def mpnn():
    """Messages between atoms, a transformer readout, a hidden layer."""
    inputs = [keras.Input((5, 6)), keras.Input((5, 5, 3))]
    x = MessagePassing(16)(inputs)
    x = TransformerReadout(2, 16, 32)(x)
    x = layers.Dense(32, activation="relu")(x)
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
    return Built(model, [normal(5, 6), normal(5, 5, 3)])
