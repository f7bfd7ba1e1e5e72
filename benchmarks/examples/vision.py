"""Images without transformers: points, rays, captions, bags, teachers, experts."""

import keras
from keras import layers, ops

from benchmarks.examples.example import (
    Built,
    Holder,
    chain,
    example,
    images,
    integers,
    normal,
)

DIM, CLASSES = 16, 5


class Orthogonal(keras.regularizers.Regularizer):
    """How far a matrix of features is from a rotation."""

    def __init__(self, features, weight=0.001):
        self.features, self.weight = features, weight

    def __call__(self, x):
        x = ops.reshape(x, (-1, self.features, self.features))
        product = ops.matmul(x, ops.transpose(x, (0, 2, 1)))
        return ops.sum(self.weight * ops.square(product - ops.eye(self.features)))

    def get_config(self):
        return {"features": self.features, "weight": self.weight}


def conv_bn(x, filters):
    """A convolution of points, normalized."""
    x = layers.Conv1D(filters, 1, padding="valid")(x)
    return layers.Activation("relu")(layers.BatchNormalization(momentum=0.0)(x))


def dense_bn(x, filters):
    """A Dense layer, normalized."""
    x = layers.Dense(filters)(x)
    return layers.Activation("relu")(layers.BatchNormalization(momentum=0.0)(x))


def tnet(inputs, features):
    """A matrix made of all points, by which each is multiplied."""
    x = layers.GlobalMaxPooling1D()(conv_bn(conv_bn(inputs, 8), 24))
    x = dense_bn(dense_bn(x, 20), 12)
    x = layers.Dense(
        features * features,
        kernel_initializer="zeros",
        bias_initializer=keras.initializers.Constant(0.1),
        activity_regularizer=Orthogonal(features),
    )(x)
    matrix = layers.Reshape((features, features))(x)
    return layers.Dot(axes=(2, 1))([inputs, matrix])


@example("vision/pointnet", pairs=6)
def pointnet():
    """Two nets that make matrices, a head with Dropout."""
    inputs = keras.Input((12, 3))
    x = conv_bn(tnet(inputs, 3), 8)
    x = layers.GlobalMaxPooling1D()(conv_bn(tnet(x, 8), 24))
    x = layers.Dropout(0.3)(dense_bn(x, 20))
    x = layers.Dropout(0.3)(dense_bn(x, 12))
    model = keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))
    return Built(model, normal(12, 3))


@example("vision/nerf", pairs=5)
def nerf():
    """Six hidden layers; the inputs are appended after the third."""
    inputs = keras.Input((6, 9))
    x = inputs
    for i in range(6):
        x = layers.Dense(24, activation="relu")(x)
        if i % 4 == 2:
            x = layers.concatenate([x, inputs], axis=-1)
    inner = keras.Model(inputs, layers.Dense(4)(x))
    parts = [(inner, normal(6, 9))]
    return Built(Holder(nerf_model=inner), normal(3), parts)


class CaptionEncoder(layers.Layer):
    """One Dense layer and attention, beside a residual sum."""

    def __init__(self, embed_dim, dense_dim, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.embed_dim, self.dense_dim = embed_dim, dense_dim
        self.attention_1 = layers.MultiHeadAttention(num_heads, embed_dim)
        self.layernorm_1 = layers.LayerNormalization()
        self.layernorm_2 = layers.LayerNormalization()
        self.dense_1 = layers.Dense(embed_dim, activation="relu")

    def call(self, inputs, training=None, mask=None):
        x = self.dense_1(self.layernorm_1(inputs))
        return self.layernorm_2(x + self.attention_1(x, x, x, training=training))


class CaptionDecoder(layers.Layer):
    """Embeds tokens, looks at the image, and gives the words' probabilities."""

    def __init__(self, embed_dim, ff_dim, num_heads, words=11, length=6, **kwargs):
        super().__init__(**kwargs)
        self.embed_dim, self.ff_dim, self.num_heads = embed_dim, ff_dim, num_heads
        self.tokens = layers.Embedding(words, embed_dim)
        self.places = layers.Embedding(length, embed_dim)
        self.attention_1 = layers.MultiHeadAttention(num_heads, embed_dim, dropout=0.1)
        self.attention_2 = layers.MultiHeadAttention(num_heads, embed_dim, dropout=0.1)
        self.ffn_layer_1 = layers.Dense(ff_dim, activation="relu")
        self.ffn_layer_2 = layers.Dense(embed_dim)
        self.norms = [layers.LayerNormalization() for _ in range(3)]
        self.out = layers.Dense(words, activation="softmax")
        self.dropout_1, self.dropout_2 = layers.Dropout(0.3), layers.Dropout(0.5)
        self.supports_masking = True

    def call(self, inputs, encoder_outputs, training=None, mask=None):
        length = ops.shape(inputs)[1]
        x = self.tokens(inputs) + self.places(ops.arange(0, length))
        causal = ops.arange(length)[:, None] >= ops.arange(length)
        causal = ops.broadcast_to(causal[None], (ops.shape(inputs)[0], length, length))
        y = self.attention_1(x, x, x, attention_mask=causal, training=training)
        x = self.norms[0](x + y)
        y = self.attention_2(x, encoder_outputs, encoder_outputs, training=training)
        x = self.norms[1](x + y)
        y = self.dropout_1(self.ffn_layer_1(x), training=training)
        x = self.norms[2](self.ffn_layer_2(y) + x)
        return self.out(self.dropout_2(x, training=training))


@example("vision/image_captioning", pairs=1)
def image_captioning():
    """A feature map, an encoder, a decoder of words."""
    cnn_model = chain(
        keras.Input((8, 8, 3)),
        layers.Conv2D(DIM, 3, 4, activation="relu"),
        layers.Reshape((-1, DIM)),
    )
    encoder, decoder = CaptionEncoder(DIM, 32, 1), CaptionDecoder(DIM, 32, 2)
    image, tokens = keras.Input((8, 8, 3)), keras.Input((5,), dtype="int32")
    captions = keras.Model([image, tokens], decoder(tokens, encoder(cnn_model(image))))
    words = integers(11, 6)
    inputs = [images(), words[:, :-1]]
    model = Holder(cnn_model=cnn_model, encoder=encoder, decoder=decoder)
    return Built(model, images(), [(captions, inputs)])


class BagAttention(layers.Layer):
    """A weight for each instance of a bag, by kernels of its own."""

    def __init__(self, weight_params_dim, use_gated=True, **kwargs):
        super().__init__(**kwargs)
        self.weight_params_dim, self.use_gated = weight_params_dim, use_gated

    def build(self, shape):
        shape = (shape[0][1], self.weight_params_dim)
        self.v = self.add_weight(shape=shape, name="v")
        self.w = self.add_weight(shape=(self.weight_params_dim, 1), name="w")
        self.u = self.add_weight(shape=shape, name="u")

    def call(self, inputs):
        def score(x):
            gate = ops.sigmoid(ops.matmul(x, self.u))
            return ops.matmul(ops.tanh(ops.matmul(x, self.v)) * gate, self.w)

        weights = ops.softmax(ops.stack([score(x) for x in inputs]), 0)
        return [weights[i] for i in range(len(inputs))]


@example("vision/attention_mil_classification", pairs=1)
def attention_mil():
    """Bags of three images; attention over them; a product and a concatenation."""
    inputs = [keras.Input((8, 8)) for _ in range(3)]
    shared_1 = layers.Dense(32, activation="relu")
    shared_2 = layers.Dense(DIM, activation="relu")
    embeddings = [shared_2(shared_1(layers.Flatten()(one))) for one in inputs]
    alphas = BagAttention(12, name="alpha")(embeddings)
    weighted = [
        layers.multiply([a, e]) for a, e in zip(alphas, embeddings, strict=True)
    ]
    outputs = layers.Dense(2, activation="softmax")(
        layers.concatenate(weighted, axis=1)
    )
    bag = normal(8, 8)
    return Built(keras.Model(inputs, outputs), [bag, bag / 2, -bag])


class Distiller(keras.Model):
    """A student, which is called, and a teacher."""

    def __init__(self, student, teacher):
        super().__init__()
        self.student, self.teacher = student, teacher

    def call(self, x):
        return self.student(x)


@example("vision/knowledge_distillation", pairs=1)
def knowledge_distillation():
    """Convolutions, Flatten, a hidden layer, classes."""

    def small(filters, name):
        return chain(
            keras.Input((8, 8, 3)),
            layers.Conv2D(filters, 3, 2),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Flatten(),
            layers.Dense(4 * filters, activation="relu"),
            layers.Dense(CLASSES),
            name=name,
        )

    student, teacher = small(4, "student"), small(8, "teacher")
    teacher.trainable = False
    model = Distiller(student, teacher)
    parts = [(student, images())]
    return Built(model, images(), parts)


class LinearExperts(layers.Layer):
    """Dense experts of the outputs' width, weighted by a Dense gate."""

    def __init__(self, hidden_size, num_experts=3, top_k=2):
        super().__init__()
        self.num_experts, self.top_k = num_experts, top_k
        self.experts = [layers.Dense(hidden_size) for _ in range(num_experts)]
        self.gating_network = layers.Dense(num_experts)

    def call(self, x):
        gates = ops.softmax(self.gating_network(x))
        best, places = ops.top_k(gates, self.top_k)
        found = ops.stack([expert(x) for expert in self.experts], axis=1)
        found = ops.take_along_axis(found, places[..., None], axis=1)
        return ops.sum(found * best[..., None], axis=1)


class MoEModel(keras.Model):
    """Convolutions, then experts."""

    def __init__(self, num_classes):
        super().__init__()
        self.conv_block = chain(
            layers.Conv2D(4, 3, 2, activation="relu"), layers.Flatten()
        )
        self.moe_classifier = LinearExperts(num_classes)
        self.softmax = layers.Softmax()

    def call(self, inputs, training=False):
        return self.softmax(self.moe_classifier(self.conv_block(inputs)))


@example("vision/mnist_moe", pairs=0)
def mnist_moe():
    """Three experts, two of which are chosen."""
    return Built(MoEModel(CLASSES), images())
