"""Models that generate: VAEs and GANs."""

import keras
from keras import layers, ops

from benchmarks.examples.example import (
    BATCH,
    Built,
    Part,
    compiled,
    example,
    images,
    normal,
)
from benchmarks.examples.steps import descend, own_step

LATENT = 3


class Sampling(layers.Layer):
    """Draws from a normal distribution."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_var = inputs
        drawn = keras.random.normal(ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_var) * drawn


def divergence(mean, log_var):
    """Of a normal distribution from the standard one."""
    return -0.5 * ops.mean(1 + log_var - ops.square(mean) - ops.exp(log_var))


class VAE(keras.Model):
    """A functional encoder and decoder, trackers, a train step; no `call`."""

    train_step = own_step

    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.decoder = encoder, decoder
        self.total_loss_tracker = keras.metrics.Mean(name="total_loss")

    def objective(self, data):
        mean, log_var, z = self.encoder(data)
        made = self.decoder(z)
        return ops.mean(ops.square(data - made)) + divergence(mean, log_var)


@example(
    "generative/vae",
    "subclassed Model with train_step and without call, of two functional models, "
    "which are saved; the encoder has three outputs, one of them random",
    pairs=1,
    others="means and variances are outputs; the decoder's becomes an image (Reshape)",
    backend="tensorflow",
)
def vae():
    """Convolutions and a hidden layer that two Dense layers read."""
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(8, 3, 2, "same", activation="relu")(inputs)
    x = layers.Dense(16, activation="relu")(layers.Flatten()(x))
    mean, log_var = (layers.Dense(LATENT, name=n)(x) for n in ("z_mean", "z_log_var"))
    z = Sampling()([mean, log_var])
    encoder = keras.Model(inputs, [mean, log_var, z], name="encoder")
    inputs = keras.Input((LATENT,))
    x = layers.Reshape((4, 4, 4))(layers.Dense(64, activation="relu")(inputs))
    x = layers.Conv2DTranspose(3, 3, 2, "same", activation="sigmoid")(x)
    decoder = keras.Model(inputs, x, name="decoder")
    parts = {
        "encoder": Part(encoder, (images()[:BATCH],)),
        "decoder": Part(decoder, (normal(LATENT)[:BATCH],)),
    }
    return Built(compiled(VAE(encoder, decoder)), images(), parts=parts)


class GraphConv(layers.Layer):
    """Relational graph convolution, by a kernel of its own."""

    def __init__(self, units=8, activation="relu", **kwargs):
        super().__init__(**kwargs)
        self.units, self.activation = units, keras.activations.get(activation)

    def build(self, shape):
        shape = (shape[0][1], shape[1][2], self.units)
        self.kernel = self.add_weight(shape=shape, name="W")

    def call(self, inputs):
        adjacency, features = inputs
        x = ops.matmul(adjacency, features[:, None, :, :])
        return self.activation(ops.sum(ops.matmul(x, self.kernel), axis=1))


ATOMS, BONDS, KINDS = 4, 2, 3


def graph_decoder(units, name):
    """Dense layers with tanh, then an adjacency and features, by softmax."""
    inputs = keras.Input((LATENT,))
    x = inputs
    for width in units:
        x = layers.Dropout(0.2)(layers.Dense(width, activation="tanh")(x))
    adjacency = layers.Dense(BONDS * ATOMS * ATOMS)(x)
    adjacency = layers.Reshape((BONDS, ATOMS, ATOMS))(adjacency)
    adjacency = (adjacency + ops.transpose(adjacency, (0, 1, 3, 2))) / 2
    adjacency = layers.Softmax(axis=1)(adjacency)
    features = layers.Reshape((ATOMS, KINDS))(layers.Dense(ATOMS * KINDS)(x))
    outputs = [adjacency, layers.Softmax(axis=2)(features)]
    return keras.Model(inputs, outputs, name=name)


def molecules():
    """Adjacency and features of random molecules."""
    adjacency = (normal(BONDS, ATOMS, ATOMS) > 0).astype("float32")
    return [adjacency, (normal(ATOMS, KINDS) > 0).astype("float32")]


class MoleculeGenerator(keras.Model):
    """As the VAE, with a `call` of five outputs and a property of its own."""

    train_step = own_step

    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.decoder = encoder, decoder
        self.property_prediction_layer = layers.Dense(1)
        self.sampling = Sampling()

    def call(self, inputs):
        mean, log_var = self.encoder(inputs)
        made = self.decoder(self.sampling([mean, log_var]))
        return mean, log_var, self.property_prediction_layer(mean), *made

    def objective(self, data):
        graph = data[0]
        mean, log_var, predicted, *made = self(graph, training=True)
        gaps = [ops.mean(ops.square(a - b)) for a, b in zip(graph, made, strict=True)]
        return sum(gaps) + divergence(mean, log_var) + ops.mean(ops.square(predicted))


@example(
    "generative/molecule_generation",
    "subclassed Model with train_step and a call of five outputs, of two functional "
    "models with two inputs or outputs",
    pairs=4,
    others="they give the latent space, or become matrices (Reshape)",
)
def molecule_generation():
    """One hidden layer in the encoder, three in the decoder."""
    inputs = [keras.Input((BONDS, ATOMS, ATOMS)), keras.Input((ATOMS, KINDS))]
    x = layers.GlobalAveragePooling1D()(GraphConv(9)(inputs))
    x = layers.Dropout(0.0)(layers.Dense(32, activation="relu")(x))
    ends = [layers.Dense(LATENT, name=name)(x) for name in ("z_mean", "log_var")]
    encoder = keras.Model(inputs, ends, name="encoder")
    decoder = graph_decoder((12, 16, 32), "decoder")
    model = compiled(MoleculeGenerator(encoder, decoder))
    first = [x[:BATCH] for x in molecules()]
    parts = {
        "encoder": Part(encoder, (first,)),
        "decoder": Part(decoder, (normal(LATENT)[:BATCH],)),
    }
    return Built(model, molecules(), normal(1), parts)


class Adversarial(keras.Model):
    """Two optimizers, passed to a `compile` of its own; no `call`."""

    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator, self.generator = discriminator, generator

    def compile(self, d_optimizer, g_optimizer):
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer

    def train_step(self, data):
        noise = keras.random.normal((BATCH, LATENT))
        score = self.discriminator

        def of_discriminator():
            made = keras.tree.map_structure(ops.stop_gradient, self.generator(noise))
            return ops.mean(score(made)) - ops.mean(score(data))

        def of_generator():
            return -ops.mean(score(self.generator(noise)))

        weights = score.trainable_weights
        d_loss = descend(self.d_optimizer, weights, of_discriminator)
        weights = self.generator.trainable_weights
        return {
            "d_loss": d_loss,
            "g_loss": descend(self.g_optimizer, weights, of_generator),
        }


def adversarial(discriminator, generator, real):
    """A GAN, whose two models are saved."""
    model = Adversarial(discriminator, generator)
    model.compile(keras.optimizers.Adam(1e-3), keras.optimizers.Adam(1e-3))
    first = keras.tree.map_structure(lambda array: array[:BATCH], real)
    parts = {
        "discriminator": Part(discriminator, (first,)),
        "generator": Part(generator, (normal(LATENT)[:BATCH],)),
    }
    return Built(model, real, parts=parts)


@example(
    "generative/wgan-graphs",
    "subclassed Model with a train_step and a compile of its own that takes two "
    "optimizers, without call; two functional models, which are saved",
    pairs=5,
    others="they become matrices (Reshape), or give a score",
    backend="tensorflow",
)
def wgan_graphs():
    """Three hidden layers in the generator, two in the discriminator."""
    generator = graph_decoder((12, 16, 32), "Generator")
    inputs = [keras.Input((BONDS, ATOMS, ATOMS)), keras.Input((ATOMS, KINDS))]
    x = layers.GlobalAveragePooling1D()(GraphConv(12)(inputs))
    for units in (32, 32):
        x = layers.Dropout(0.2)(layers.Dense(units, activation="relu")(x))
    discriminator = keras.Model(inputs, layers.Dense(1)(x), name="Discriminator")
    return adversarial(discriminator, generator, molecules())


@example(
    "generative/dcgan_overriding_train_step",
    "as the GAN of graphs: two optimizers, no call; two Sequentials of convolutions",
    pairs=0,
    others="the generator's becomes an image (Reshape); the discriminator's is a score",
    backend="tensorflow",
)
def dcgan():
    """A Dense layer at the beginning of one, and at the end of the other."""
    discriminator = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 4, 2, "same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    generator = keras.Sequential(
        [
            keras.Input((LATENT,)),
            layers.Dense(4 * 4 * 4),
            layers.Reshape((4, 4, 4)),
            layers.Conv2DTranspose(3, 4, 2, "same", activation="sigmoid"),
        ]
    )
    return adversarial(discriminator, generator, images())
