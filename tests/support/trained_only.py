"""Models that only their own `train_step` calls: no `call`, as many on keras.io."""

import keras
from keras import layers, ops

BACKEND = keras.backend.backend()
WIDTH = 12


def x_of(data):
    return keras.utils.unpack_x_y_sample_weight(data)[0]


class TrainedOnly(keras.Model):
    """A train step of `loss_of`, as it is written for each backend."""

    def __init__(self):
        super().__init__()
        if BACKEND != "tensorflow":
            self.built = True  # else `fit` calls the model to build it

    def loss_of(self, x):
        raise NotImplementedError

    def train_step(self, *arguments):
        return getattr(self, f"_{BACKEND}_step")(*arguments)

    def _jax_step(self, state, data):
        import jax

        trained, resting, slots, metrics = state
        variables = [*self.trainable_variables, *self.non_trainable_variables]

        def compute_loss_and_updates(trained):
            pairs = list(zip(variables, [*trained, *resting], strict=True))
            with keras.StatelessScope(pairs) as scope:
                loss = self.loss_of(x_of(data))
            held = self.non_trainable_variables
            return loss, [scope.get_current_value(v) for v in held]

        (loss, resting), gradients = jax.value_and_grad(
            compute_loss_and_updates, has_aux=True
        )(trained)
        trained, slots = self.optimizer.stateless_apply(slots, gradients, trained)
        return {"total": loss}, (trained, resting, slots, metrics)

    def _tensorflow_step(self, data):
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = self.loss_of(x_of(data))
        weights = self.trainable_weights
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        return {"total": loss}

    def _torch_step(self, data):
        import torch

        self.zero_grad()
        loss = self.loss_of(x_of(data))
        loss.backward()
        weights = self.trainable_weights
        with torch.no_grad():
            self.optimizer.apply([w.value.grad for w in weights], weights)
        return {"total": loss.detach()}


def net(inputs, outputs, name):
    stack = [
        keras.Input((inputs,)),
        layers.Dense(WIDTH, "relu"),
        layers.Dense(outputs),
    ]
    return keras.Sequential(stack, name=name)


class AutoEncoder(TrainedOnly):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = net(8, 4, "encoder"), net(4, 8, "decoder")

    def loss_of(self, x):
        return ops.mean(ops.square(self.decoder(self.encoder(x)) - x))


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Sampling(layers.Layer):
    """Draws from what the encoder says, as in the VAE of keras.io."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seeds = keras.random.SeedGenerator(7)

    def call(self, inputs):
        mean, log_var = inputs
        noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
        return mean + ops.exp(0.5 * log_var) * noise


class VAE(TrainedOnly):
    def __init__(self):
        super().__init__()
        inputs = keras.Input((8,))
        hidden = layers.Dense(WIDTH, "relu")(inputs)
        told = layers.Dense(4, name="mean")(hidden), layers.Dense(4)(hidden)
        outputs = [*told, Sampling()(told)]
        self.encoder = keras.Model(inputs, outputs, name="encoder")
        self.decoder = net(4, 8, "decoder")

    def loss_of(self, x):
        mean, log_var, drawn = self.encoder(x)
        kl = ops.mean(1 + log_var - ops.square(mean) - ops.exp(log_var))
        return ops.mean(ops.square(self.decoder(drawn) - x)) - 0.01 * kl


class Patches(layers.Layer):
    """Numbers of one place, made features and given a place; has weights."""

    def __init__(self):
        super().__init__()
        self.projection = layers.Dense(8)

    def build(self, shape):
        self.projection.build((*shape[:-1], 2))
        self.places = self.add_weight(shape=(4, 8))

    def call(self, x):
        patches = ops.reshape(x, (-1, 4, 2))
        return patches, self.projection(patches) + self.places


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Mixer(layers.Layer):
    """A residual FFN in a class of the user's own."""

    def __init__(self, width=WIDTH, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.norm = layers.LayerNormalization()
        self.up, self.down = layers.Dense(width, "gelu"), layers.Dense(8)

    def call(self, x):
        return x + self.down(self.up(self.norm(x)))

    def get_config(self):
        return {**super().get_config(), "width": self.width}


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Attention(layers.Layer):
    """Grouped queries with rotated positions; as many key heads as features of one."""

    def __init__(self, head_dim=4, num_heads=8, num_kv_heads=4, **kwargs):
        super().__init__(**kwargs)
        self.head_dim, self.num_heads = head_dim, num_heads
        self.num_kv_heads = num_kv_heads

    def build(self, shape):
        features, groups = (
            heads * self.head_dim for heads in (self.num_heads, self.num_kv_heads)
        )
        self.q, self.o = (
            layers.Dense(size, name=name)
            for name, size in (("q", features), ("o", shape[-1]))
        )
        self.k, self.v = (layers.Dense(groups, name=name) for name in "kv")
        for part in (self.q, self.k, self.v):
            part.build(shape)
        self.o.build((*shape[:-1], features))

    def rotated(self, x):
        steps = ops.cast(ops.arange(ops.shape(x)[1]), "float32")[:, None, None]
        angles = steps / 2.0 ** ops.arange(self.head_dim // 2, dtype="float32")
        some, others = ops.split(x, 2, axis=-1)
        sines, cosines = ops.sin(angles), ops.cos(angles)
        parts = [some * cosines - others * sines, others * cosines + some * sines]
        return ops.concatenate(parts, axis=-1)

    def call(self, x):
        batch, length, _ = ops.shape(x)
        groups = (batch, length, self.num_kv_heads, self.head_dim)
        queries = (batch, length, self.num_heads, self.head_dim)
        q = self.rotated(ops.reshape(self.q(x), queries))
        k, v = self.rotated(ops.reshape(self.k(x), groups)), self.v(x)
        times = self.num_heads // self.num_kv_heads
        k, v = (ops.repeat(z, times, axis=2) for z in (k, ops.reshape(v, groups)))
        scores = ops.einsum("bqnh,bknh->bnqk", q, k) / self.head_dim**0.5
        y = ops.einsum("bnqk,bknh->bqnh", ops.softmax(scores), v)
        return x + self.o(ops.reshape(y, (batch, length, -1)))

    def get_config(self):
        names = ("head_dim", "num_heads", "num_kv_heads")
        numbers = {name: getattr(self, name) for name in names}
        return {**super().get_config(), **numbers}


class MaskedAutoEncoder(TrainedOnly):
    """Half of the patches are hidden from the encoder, and the decoder makes them."""

    def __init__(self):
        super().__init__()
        self.patches = Patches()
        self.patches(ops.zeros((2, 8)))
        inputs = keras.Input((4, 8))
        self.encoder = keras.Model(inputs, Mixer()(inputs), name="encoder")
        layers_of_decoder = [keras.Input((4, 8)), Mixer(), layers.Dense(2)]
        self.decoder = keras.Sequential(layers_of_decoder, name="decoder")

    def calculate_loss(self, x):
        patches, features = self.patches(x)
        seen = ops.reshape(ops.convert_to_tensor([1.0, 0.0, 1.0, 0.0]), (1, 4, 1))
        given = self.encoder(features * seen) * seen
        made = self.decoder(given + ops.mean(given, axis=1, keepdims=True))
        return ops.mean((1 - seen) * ops.square(made - patches))

    def loss_of(self, x):
        return self.calculate_loss(x)


class SimSiam(TrainedOnly):
    """An encoder called on two views, and a head on each."""

    def __init__(self):
        super().__init__()
        self.encoder, self.predictor = net(8, 6, "encoder"), net(6, 6, "predictor")

    def loss_of(self, x):
        ones, others = self.encoder(x), self.encoder(ops.flip(x, axis=1))
        return self._apart(ones, others) + self._apart(others, ones)

    def _apart(self, ones, others):
        made, given = self.predictor(ones), ops.stop_gradient(others)
        return -ops.mean(ops.normalize(made) * ops.normalize(given))


MODELS = {cls.__name__: cls for cls in (VAE, MaskedAutoEncoder, SimSiam, AutoEncoder)}


class GAN(TrainedOnly):
    """Two optimizers; `shared`: the generator's is the one of `compile`."""

    def __init__(self, shared=False):
        super().__init__()
        self.generator, self.critic = net(8, 8, "generator"), net(8, 1, "critic")
        first = keras.optimizers.SGD(0.05)
        self.compile(**({"optimizer": first} if shared else {}))
        self.g_optimizer = first
        self.d_optimizer = keras.optimizers.SGD(0.05)

    def _both(self, x):
        made = self.generator(ops.flip(x, axis=1))
        true, false = self.critic(x), self.critic(made)
        return ops.mean(ops.square(true - 1) + ops.square(false)), ops.mean(
            ops.square(false - 1)
        )

    def train_step(self, data):
        x = x_of(data)
        pairs = [(self.critic, self.d_optimizer), (self.generator, self.g_optimizer)]
        for place, (part, optimizer) in enumerate(pairs):
            weights = part.trainable_weights
            if BACKEND == "tensorflow":
                import tensorflow as tf

                with tf.GradientTape() as tape:
                    loss = self._both(x)[place]
                gradients = tape.gradient(loss, weights)
                optimizer.apply(gradients, weights)
            else:
                import torch

                self.zero_grad()
                loss = self._both(x)[place]
                loss.backward()
                with torch.no_grad():
                    optimizer.apply([w.value.grad for w in weights], weights)
        return {"total": keras.ops.stop_gradient(loss)}
