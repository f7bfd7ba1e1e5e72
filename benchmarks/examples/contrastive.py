"""Images without labels: views, projections, distances."""

import keras
from keras import layers, ops

from benchmarks.examples.example import (
    BATCH,
    SPARSE,
    Built,
    Part,
    compiled,
    example,
    images,
    integers,
    normal,
    of_logits,
)
from benchmarks.examples.steps import own_step

DIM, CLASSES = 16, 5


def encoder_of_images(name="encoder"):
    """Convolutions and a mean, as all of these examples have."""
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(8, 3, 2, activation="relu")(inputs)
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(DIM, 3, activation="relu")(x))
    return keras.Model(inputs, x, name=name)


def cosine(one, other):
    """The mean of the cosines of rows."""
    one, other = ops.normalize(one, axis=-1), ops.normalize(other, axis=-1)
    return ops.mean(ops.sum(one * other, axis=-1))


class SimSiam(keras.Model):
    """Two views, an encoder and a predictor; no `call`."""

    train_step = own_step

    def __init__(self, encoder, predictor):
        super().__init__()
        self.encoder, self.predictor = encoder, predictor

    def objective(self, data):
        z1, z2 = self.encoder(data), self.encoder(data + 0.1)
        p1, p2 = self.predictor(z1), self.predictor(z2)
        stop = ops.stop_gradient
        return -(cosine(p1, stop(z2)) + cosine(p2, stop(z1))) / 2


@example(
    "vision/simsiam",
    "subclassed Model with train_step and without call, of two functional models, "
    "which are saved; Dense without bias, BatchNormalization, ReLU layers",
    pairs=2,
    others="the projector's last goes through BatchNormalization to the outputs",
    backend="tensorflow",
)
def simsiam():
    """A projector behind the encoder, a predictor with a bottleneck."""
    inputs = keras.Input((8, 8, 3))
    x = encoder_of_images("backbone")(inputs)
    x = layers.Dense(32, use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.BatchNormalization()(layers.Dense(DIM, use_bias=False)(x))
    encoder = keras.Model(inputs, x, name="encoder")
    predictor = keras.Sequential(
        [
            keras.Input((DIM,)),
            layers.Dense(8, use_bias=False),
            layers.ReLU(),
            layers.BatchNormalization(),
            layers.Dense(DIM),
        ]
    )
    parts = {
        "encoder": Part(encoder, (images()[:BATCH],)),
        "predictor": Part(predictor, (normal(DIM)[:BATCH],)),
    }
    return Built(compiled(SimSiam(encoder, predictor)), images(), parts=parts)


class BarlowTwins(keras.Model):
    """The correlation of two views' features; no `call`."""

    train_step = own_step

    def __init__(self, encoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder

    def objective(self, data):
        z1, z2 = self.encoder(data), self.encoder(data + 0.1)
        matrix = ops.matmul(ops.transpose(z1), z2) / BATCH
        return ops.mean(ops.square(matrix - ops.eye(DIM)))


@example(
    "vision/barlow_twins",
    "subclassed Model with train_step and without call; Dense, BatchNormalization and "
    "ReLU in a row",
    pairs=2,
    others="the last is an output",
    backend="tensorflow",
)
def barlow_twins():
    """A projector of three Dense layers."""
    inputs = keras.Input((8, 8, 3))
    x = encoder_of_images("backbone")(inputs)
    for _ in range(2):
        x = layers.Dense(32, use_bias=False)(x)
        x = layers.Activation("relu")(layers.BatchNormalization()(x))
    encoder = keras.Model(inputs, layers.Dense(DIM, use_bias=False)(x))
    parts = {"encoder": Part(encoder, (images()[:BATCH],))}
    return Built(compiled(BarlowTwins(encoder)), images(), parts=parts)


class Contrastive(keras.Model):
    """Makes its encoder, projection head and linear probe; no `call`."""

    train_step = own_step

    def __init__(self, temperature=0.1):
        super().__init__()
        self.temperature = temperature
        self.encoder = encoder_of_images()
        self.projection_head = keras.Sequential(
            [
                keras.Input((DIM,)),
                layers.Dense(24, activation="relu"),
                layers.Dense(DIM),
            ],
            name="projection_head",
        )
        self.linear_probe = keras.Sequential(
            [keras.Input((DIM,)), layers.Dense(CLASSES)], name="linear_probe"
        )

    def objective(self, data):
        x, y = data
        z = [self.projection_head(self.encoder(view)) for view in (x, x + 0.1)]
        z1, z2 = (ops.normalize(one, axis=-1) for one in z)
        scores = ops.matmul(z1, ops.transpose(z2)) / self.temperature
        features = ops.stop_gradient(self.encoder(x))
        loss = of_logits()
        return loss(ops.arange(BATCH), scores) + loss(y, self.linear_probe(features))


def contrastive(model):
    """Its three parts, as they are saved."""
    features = normal(DIM)[:BATCH]
    parts = {
        "encoder": Part(model.encoder, (images()[:BATCH],)),
        "head": Part(model.projection_head, (features,)),
        "probe": Part(model.linear_probe, (features,)),
    }
    return Built(compiled(model), images(), integers(CLASSES), parts)


PROBE = "the probe and the projection's last are outputs"


@example(
    "vision/semisupervised_simclr",
    "subclassed Model with train_step and without call, which makes its parts; those "
    "are saved",
    pairs=1,
    others=PROBE,
    backend="tensorflow",
)
def simclr():
    """A projection head and a linear probe."""
    return contrastive(Contrastive())


class Nearest(Contrastive):
    """As SimCLR, with a queue of features: a weight that no gradient reaches."""

    def __init__(self):
        super().__init__()
        self.queue = self.add_weight(
            shape=(8, DIM), initializer="random_normal", trainable=False
        )

    def objective(self, data):
        x, y = data
        z = ops.normalize(self.projection_head(self.encoder(x)), axis=-1)
        place = ops.argmax(ops.matmul(z, ops.transpose(self.queue)), axis=1)
        near = ops.take(ops.convert_to_tensor(self.queue), place, axis=0)
        scores = ops.matmul(ops.stop_gradient(near), ops.transpose(z))
        self.queue.assign(ops.concatenate([ops.stop_gradient(z), self.queue[:-BATCH]]))
        loss = of_logits()
        features = ops.stop_gradient(self.encoder(x))
        probed = loss(y, self.linear_probe(features))
        return loss(ops.arange(BATCH), scores / self.temperature) + probed


@example(
    "vision/nnclr",
    "as SimCLR, with a queue: add_weight without a name, assigned in train_step",
    pairs=1,
    others=PROBE,
    backend="tensorflow",
)
def nnclr():
    """The nearest neighbor in a queue is the other view."""
    return contrastive(Nearest())


@example(
    "vision/supervised-contrastive-learning",
    "functional, two models around one encoder: the classifier, after the encoder was "
    "frozen",
    pairs=1,
    others="the last gives the outputs",
)
def supervised_contrastive():
    """A frozen encoder, Dropout, a hidden layer, classes."""
    encoder = encoder_of_images()
    for layer in encoder.layers:
        layer.trainable = False
    inputs = keras.Input((8, 8, 3))
    x = layers.Dropout(0.5)(encoder(inputs))
    x = layers.Dropout(0.5)(layers.Dense(32, activation="relu")(x))
    model = keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))
    return Built(compiled(model, SPARSE), images(), integers(CLASSES))


class Distances(layers.Layer):
    """Distances of an anchor to two others."""

    def call(self, anchor, positive, negative):
        return (
            ops.sum(ops.square(anchor - positive), -1),
            ops.sum(ops.square(anchor - negative), -1),
        )


class Siamese(keras.Model):
    """Wraps the functional model of distances, with a margin."""

    train_step = own_step

    def __init__(self, siamese_network, margin=0.5):
        super().__init__()
        self.siamese_network, self.margin = siamese_network, margin

    def call(self, inputs):
        return self.siamese_network(inputs)

    def objective(self, data):
        near, far = self.siamese_network(data[0])
        return ops.mean(ops.maximum(near - far + self.margin, 0.0))


@example(
    "vision/siamese_network",
    "subclassed Model with train_step and call, around a functional model that calls "
    "the embedding three times; Dense and BatchNormalization in a row",
    pairs=2,
    others="the last is compared with others of its kind",
)
def siamese_network():
    """Three images, one embedding; two hidden layers, normalized after ReLU."""
    inputs = keras.Input((8, 8, 3))
    x = layers.Flatten()(layers.Conv2D(8, 3, 2, activation="relu")(inputs))
    x = layers.BatchNormalization()(layers.Dense(32, activation="relu")(x))
    x = layers.BatchNormalization()(layers.Dense(24, activation="relu")(x))
    embedding = keras.Model(inputs, layers.Dense(DIM)(x), name="Embedding")
    triple = [keras.Input((8, 8, 3), name=n) for n in ("a", "positive", "negative")]
    outputs = Distances()(*[embedding(one) for one in triple])
    model = Siamese(keras.Model(triple, outputs))
    x = [images(), images()[::-1], images()[::-1] / 2]
    parts = {"embedding": Part(embedding, (images()[:BATCH],))}
    return Built(compiled(model), x, integers(2), parts)
