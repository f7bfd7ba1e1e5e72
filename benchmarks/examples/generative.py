"""Models that generate: VAEs and GANs."""

import keras
from keras import layers, ops

from benchmarks.examples.example import Built, Holder, chain, example, images, normal

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


@example("generative/vae", pairs=1)
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
    parts = [(encoder, images()), (decoder, normal(LATENT))]
    return Built(Holder(encoder=encoder, decoder=decoder), images(), parts)


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

    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.decoder = encoder, decoder
        self.property_prediction_layer = layers.Dense(1)
        self.sampling = Sampling()

    def call(self, inputs):
        mean, log_var = self.encoder(inputs)
        made = self.decoder(self.sampling([mean, log_var]))
        return mean, log_var, self.property_prediction_layer(mean), *made


@example("generative/molecule_generation", pairs=4)
def molecule_generation():
    """One hidden layer in the encoder, three in the decoder."""
    inputs = [keras.Input((BONDS, ATOMS, ATOMS)), keras.Input((ATOMS, KINDS))]
    x = layers.GlobalAveragePooling1D()(GraphConv(9)(inputs))
    x = layers.Dropout(0.0)(layers.Dense(32, activation="relu")(x))
    ends = [layers.Dense(LATENT, name=name)(x) for name in ("z_mean", "log_var")]
    encoder = keras.Model(inputs, ends, name="encoder")
    decoder = graph_decoder((12, 16, 32), "decoder")
    model = MoleculeGenerator(encoder, decoder)
    parts = [(encoder, molecules()), (decoder, normal(LATENT))]
    return Built(model, molecules(), parts)


def adversarial(discriminator, generator, real):
    """A GAN, whose two models are saved."""
    model = Holder(discriminator=discriminator, generator=generator)
    parts = [(discriminator, real), (generator, normal(LATENT))]
    return Built(model, real, parts)


@example("generative/wgan-graphs", pairs=5)
def wgan_graphs():
    """Three hidden layers in the generator, two in the discriminator."""
    generator = graph_decoder((12, 16, 32), "Generator")
    inputs = [keras.Input((BONDS, ATOMS, ATOMS)), keras.Input((ATOMS, KINDS))]
    x = layers.GlobalAveragePooling1D()(GraphConv(12)(inputs))
    for units in (32, 32):
        x = layers.Dropout(0.2)(layers.Dense(units, activation="relu")(x))
    discriminator = keras.Model(inputs, layers.Dense(1)(x), name="Discriminator")
    return adversarial(discriminator, generator, molecules())


@example("generative/dcgan_overriding_train_step", pairs=0)
def dcgan():
    """A Dense layer at the beginning of one, and at the end of the other."""
    discriminator = chain(
        keras.Input((8, 8, 3)),
        layers.Conv2D(4, 4, 2, "same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Flatten(),
        layers.Dropout(0.2),
        layers.Dense(1, activation="sigmoid"),
    )
    generator = chain(
        keras.Input((LATENT,)),
        layers.Dense(4 * 4 * 4),
        layers.Reshape((4, 4, 4)),
        layers.Conv2DTranspose(3, 4, 2, "same", activation="sigmoid"),
    )
    return adversarial(discriminator, generator, images())
