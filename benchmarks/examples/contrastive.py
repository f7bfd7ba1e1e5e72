"""Images without labels: views, projections, distances."""

import keras
from keras import layers, ops

from benchmarks.examples.example import Built, Holder, chain, example, images, normal

DIM, CLASSES = 16, 5


def encoder_of_images(name="encoder"):
    """Convolutions and a mean, as all of these examples have."""
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(8, 3, 2, activation="relu")(inputs)
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(DIM, 3, activation="relu")(x))
    return keras.Model(inputs, x, name=name)


@example("vision/simsiam", pairs=2)
def simsiam():
    """A projector behind the encoder, a predictor with a bottleneck."""
    inputs = keras.Input((8, 8, 3))
    x = encoder_of_images("backbone")(inputs)
    x = layers.Dense(32, use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.BatchNormalization()(layers.Dense(DIM, use_bias=False)(x))
    encoder = keras.Model(inputs, x, name="encoder")
    predictor = chain(
        keras.Input((DIM,)),
        layers.Dense(8, use_bias=False),
        layers.ReLU(),
        layers.BatchNormalization(),
        layers.Dense(DIM),
    )
    parts = [(encoder, images()), (predictor, normal(DIM))]
    return Built(Holder(encoder=encoder, predictor=predictor), images(), parts)


@example("vision/barlow_twins", pairs=2)
def barlow_twins():
    """A projector of three Dense layers."""
    inputs = keras.Input((8, 8, 3))
    x = encoder_of_images("backbone")(inputs)
    for _ in range(2):
        x = layers.Dense(32, use_bias=False)(x)
        x = layers.Activation("relu")(layers.BatchNormalization()(x))
    encoder = keras.Model(inputs, layers.Dense(DIM, use_bias=False)(x))
    parts = [(encoder, images())]
    return Built(Holder(encoder=encoder), images(), parts)


class Contrastive(keras.Model):
    """Makes its encoder, projection head and linear probe; no `call`."""

    def __init__(self, temperature=0.1):
        super().__init__()
        self.temperature = temperature
        self.encoder = encoder_of_images()
        self.projection_head = chain(
            keras.Input((DIM,)),
            layers.Dense(24, activation="relu"),
            layers.Dense(DIM),
            name="projection_head",
        )
        self.linear_probe = chain(
            keras.Input((DIM,)), layers.Dense(CLASSES), name="linear_probe"
        )


def contrastive(model):
    """Its three parts, as they are saved."""
    features = normal(DIM)
    parts = [
        (model.encoder, images()),
        (model.projection_head, features),
        (model.linear_probe, features),
    ]
    return Built(model, images(), parts)


@example("vision/semisupervised_simclr", pairs=1)
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


@example("vision/nnclr", pairs=1)
def nnclr():
    """The nearest neighbor in a queue is the other view."""
    return contrastive(Nearest())


@example("vision/supervised-contrastive-learning", pairs=1)
def supervised_contrastive():
    """A frozen encoder, Dropout, a hidden layer, classes."""
    encoder = encoder_of_images()
    for layer in encoder.layers:
        layer.trainable = False
    inputs = keras.Input((8, 8, 3))
    x = layers.Dropout(0.5)(encoder(inputs))
    x = layers.Dropout(0.5)(layers.Dense(32, activation="relu")(x))
    model = keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))
    return Built(model, images())


class Distances(layers.Layer):
    """Distances of an anchor to two others."""

    def call(self, anchor, positive, negative):
        return (
            ops.sum(ops.square(anchor - positive), -1),
            ops.sum(ops.square(anchor - negative), -1),
        )


class Siamese(keras.Model):
    """Wraps the functional model of distances, with a margin."""

    def __init__(self, siamese_network, margin=0.5):
        super().__init__()
        self.siamese_network, self.margin = siamese_network, margin

    def call(self, inputs):
        return self.siamese_network(inputs)


@example("vision/siamese_network", pairs=2)
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
    parts = [(embedding, images())]
    return Built(model, x, parts)
