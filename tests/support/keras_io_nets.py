"""Convolutional networks of keras.io's code examples, as they are written there, small.

The text of each names the example; widths and images are smaller.
"""

import keras
from keras import layers, ops


def unet(size=16, classes=3):
    """Image segmentation with a U-Net-like architecture."""
    inputs = keras.Input((size, size, 3))
    x = layers.Conv2D(8, 3, strides=2, padding="same")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    previous = x
    for filters in (12, 16):
        x = layers.Activation("relu")(x)
        x = layers.SeparableConv2D(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.Activation("relu")(x)
        x = layers.SeparableConv2D(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        residual = layers.Conv2D(filters, 1, strides=2, padding="same")(previous)
        x = layers.add([x, residual])
        previous = x
    for filters in (16, 12, 8):
        x = layers.Activation("relu")(x)
        x = layers.Conv2DTranspose(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.Activation("relu")(x)
        x = layers.Conv2DTranspose(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.UpSampling2D(2)(x)
        residual = layers.UpSampling2D(2)(previous)
        residual = layers.Conv2D(filters, 1, padding="same")(residual)
        x = layers.add([x, residual])
        previous = x
    x = layers.Conv2D(classes, 3, activation="softmax", padding="same")(x)
    return keras.Model(inputs, x)


def _classifier():
    inputs = keras.Input((16, 16, 3))
    x = layers.Rescaling(1 / 255)(inputs)
    for filters in (8, 12):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(16, 3, activation="relu", name="last_conv")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(5, activation="softmax")(x))


def cam():
    """Grad-CAM class activation visualization: the maps are an output too."""
    model = _classifier()
    last = model.get_layer("last_conv")
    return keras.Model(model.inputs, [last.output, model.output])


class DepthToSpace(layers.Layer):
    def __init__(self, block_size, **kwargs):
        super().__init__(**kwargs)
        self.block_size = block_size

    def call(self, x):
        batch, height, width, depth = ops.shape(x)
        depth = depth // (self.block_size**2)
        size = self.block_size
        x = ops.reshape(x, [batch, height, width, size, size, depth])
        x = ops.transpose(x, [0, 1, 3, 2, 4, 5])
        return ops.reshape(x, [batch, height * size, width * size, depth])

    def get_config(self):
        return {**super().get_config(), "block_size": self.block_size}


def super_resolution(upscale=2, channels=1):
    """Image super-resolution using an efficient sub-pixel CNN."""
    how = {
        "activation": "tanh",
        "kernel_initializer": "orthogonal",
        "padding": "same",
    }
    inputs = keras.Input((None, None, channels))
    x = layers.Conv2D(16, 5, **how)(inputs)
    x = layers.Conv2D(16, 3, **how)(x)
    x = layers.Conv2D(8, 3, **how)(x)
    x = layers.Conv2D(channels * upscale**2, 3, name="shuffled", **how)(x)
    return keras.Model(inputs, DepthToSpace(upscale)(x))


def euclidean_distance(pair):
    x, y = pair
    total = ops.sum(ops.square(x - y), axis=1, keepdims=True)
    return ops.sqrt(ops.maximum(total, keras.backend.epsilon()))


def siamese():
    """Image similarity estimation using a Siamese network with a contrastive loss."""
    given = keras.Input((14, 14, 1))
    x = layers.BatchNormalization()(given)
    x = layers.Conv2D(4, 5, activation="tanh")(x)
    x = layers.AveragePooling2D(pool_size=(2, 2))(x)
    x = layers.Conv2D(8, 3, activation="tanh")(x)
    x = layers.AveragePooling2D(pool_size=(2, 2))(x)
    x = layers.Flatten()(x)
    x = layers.BatchNormalization()(x)
    x = layers.Dense(10, activation="tanh")(x)
    embedding = keras.Model(given, x)
    left, right = keras.Input((14, 14, 1)), keras.Input((14, 14, 1))
    merge = layers.Lambda(euclidean_distance, output_shape=(1,))
    x = layers.BatchNormalization()(merge([embedding(left), embedding(right)]))
    return keras.Model([left, right], layers.Dense(1, activation="sigmoid")(x))


def autoencoder():
    """Convolutional autoencoder for image denoising."""
    inputs = keras.Input((12, 12, 1))
    x = layers.Conv2D(8, 3, activation="relu", padding="same")(inputs)
    x = layers.MaxPooling2D(2, padding="same")(x)
    x = layers.Conv2D(8, 3, activation="relu", padding="same")(x)
    x = layers.MaxPooling2D(2, padding="same")(x)
    how = {"strides": 2, "activation": "relu", "padding": "same"}
    x = layers.Conv2DTranspose(8, 3, **how)(x)
    x = layers.Conv2DTranspose(8, 3, **how)(x)
    x = layers.Conv2D(1, 3, activation="sigmoid", padding="same")(x)
    return keras.Model(inputs, x)


def discriminator():
    """DCGAN to generate face images: the discriminator."""
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Conv2D(8, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(12, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(16, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(1, activation="sigmoid"),
        ]
    )


def generator():
    """DCGAN to generate face images: the generator."""
    return keras.Sequential(
        [
            keras.Input((8,)),
            layers.Dense(4 * 4 * 8),
            layers.Reshape((4, 4, 8)),
            layers.Conv2DTranspose(8, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2DTranspose(16, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(3, 5, padding="same", activation="sigmoid"),
        ]
    )


def dense_net():
    """A DenseNet: normalization before each convolution, and transitions."""
    inputs = keras.Input((12, 12, 3))
    x = layers.Conv2D(8, 3, padding="same", use_bias=False)(inputs)
    for block in range(2):
        for _ in range(2):
            y = layers.Activation("relu")(layers.BatchNormalization()(x))
            y = layers.Conv2D(16, 1, use_bias=False)(y)
            y = layers.Activation("relu")(layers.BatchNormalization()(y))
            y = layers.Conv2D(4, 3, padding="same", use_bias=False)(y)
            x = layers.Concatenate()([x, y])
        if block == 0:
            x = layers.Activation("relu")(layers.BatchNormalization()(x))
            x = layers.Conv2D(8, 1, use_bias=False)(x)
            x = layers.AveragePooling2D(2)(x)
    x = layers.Activation("relu")(layers.BatchNormalization()(x))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(4, activation="softmax")(x))


def speaker():
    """Speaker recognition: residual blocks of Conv1D on a spectrum."""

    def residual_block(x, filters, number):
        s = layers.Conv1D(filters, 1, padding="same")(x)
        for _ in range(number - 1):
            x = layers.Conv1D(filters, 3, padding="same")(x)
            x = layers.Activation("relu")(x)
        x = layers.Conv1D(filters, 3, padding="same")(x)
        x = layers.Activation("relu")(layers.Add()([x, s]))
        return layers.MaxPool1D(pool_size=2, strides=2)(x)

    inputs = keras.Input((48, 1))
    x = residual_block(inputs, 4, 2)
    x = residual_block(x, 8, 2)
    x = residual_block(x, 12, 3)
    x = layers.AveragePooling1D(pool_size=3, strides=3)(x)
    x = layers.Flatten()(x)
    x = layers.Dense(16, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(3, activation="softmax")(x))


def ct_scan():
    """3D image classification from CT scans."""
    inputs = keras.Input((24, 24, 16, 1))
    x = inputs
    for filters in (4, 4, 8):
        x = layers.Conv3D(filters, 3, padding="same", activation="relu")(x)
        x = layers.MaxPool3D(pool_size=2)(x)
        x = layers.BatchNormalization()(x)
    x = layers.GlobalAveragePooling3D()(x)
    x = layers.Dense(8, activation="relu")(x)
    x = layers.Dropout(0.3)(x)
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))


def detector(classes=3, anchors=2):
    """Object detection with RetinaNet: a pyramid, and heads that its levels share."""
    inputs = keras.Input((32, 32, 3))
    levels, x = [], inputs
    for filters in (8, 12, 16):
        x = layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        levels.append(x)
    sides = [layers.Conv2D(8, 1, padding="same")(level) for level in levels[1:]]
    fine = layers.Add()([sides[0], layers.UpSampling2D(2)(sides[1])])
    pyramid = [layers.Conv2D(8, 3, padding="same")(level) for level in (fine, sides[1])]
    outputs = []
    for numbers in (anchors * classes, anchors * 4):
        head = keras.Sequential([keras.Input((None, None, 8))])
        for _ in range(2):
            head.add(layers.Conv2D(8, 3, padding="same"))
            head.add(layers.ReLU())
        head.add(layers.Conv2D(numbers, 3, padding="same"))
        each = [head(level) for level in pyramid]
        last = numbers // anchors
        each = [layers.Reshape((-1, last))(one) for one in each]
        outputs.append(layers.Concatenate(axis=1)(each))
    return keras.Model(inputs, layers.Concatenate()(outputs))


def conv_mixer():
    """Image classification with ConvMixer."""

    def activation_block(x):
        return layers.BatchNormalization()(layers.Activation("gelu")(x))

    inputs = keras.Input((16, 16, 3))
    x = layers.Rescaling(scale=1.0 / 255)(inputs)
    x = activation_block(layers.Conv2D(12, kernel_size=2, strides=2)(x))
    for _ in range(2):
        before = x
        x = layers.DepthwiseConv2D(kernel_size=3, padding="same")(x)
        x = layers.Add()([activation_block(x), before])
        x = activation_block(layers.Conv2D(12, kernel_size=1)(x))
    x = layers.GlobalAvgPool2D()(x)
    return keras.Model(inputs, layers.Dense(4, activation="softmax")(x))


def captcha():
    """OCR model for reading captchas: columns are read by a recurrent layer."""
    inputs = keras.Input((24, 12, 1))
    how = {"activation": "relu", "padding": "same"}
    x = layers.MaxPooling2D()(layers.Conv2D(8, 3, **how)(inputs))
    x = layers.MaxPooling2D()(layers.Conv2D(12, 3, name="read", **how)(x))
    x = layers.Reshape(target_shape=(6, 3 * 12))(x)
    x = layers.Dense(16, activation="relu")(x)
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
    return keras.Model(inputs, layers.Dense(5, activation="softmax")(x))


EXAMPLES = {
    make.__name__: make
    for make in (
        unet,
        cam,
        super_resolution,
        siamese,
        autoencoder,
        discriminator,
        generator,
        dense_net,
        speaker,
        ct_scan,
        detector,
        conv_mixer,
        captcha,
    )
}
