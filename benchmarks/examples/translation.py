"""Translation and speech: encoders and decoders."""

import keras
from keras import layers, ops

from benchmarks.examples.example import Built, chain, example, ffn, integers, normal
from benchmarks.examples.text import (
    DIM,
    LENGTH,
    WORDS,
    TextBlock,
    TokenAndPosition,
    causal_mask,
)


class Configured:
    """A get_config of the numbers that the constructor was given."""

    NUMBERS: tuple[str, ...] = ()

    def get_config(self):
        mine = {name: getattr(self, name) for name in self.NUMBERS}
        return {**super().get_config(), **mine}


@keras.saving.register_keras_serializable("examples")
class TranslationEncoder(Configured, layers.Layer):
    """With masks and a get_config."""

    NUMBERS = ("embed_dim", "dense_dim", "num_heads")

    def __init__(self, embed_dim, dense_dim, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.embed_dim, self.dense_dim = embed_dim, dense_dim
        self.num_heads = num_heads
        self.attention = layers.MultiHeadAttention(num_heads, embed_dim)
        self.dense_proj = ffn(dense_dim, embed_dim)
        self.layernorm_1 = layers.LayerNormalization()
        self.layernorm_2 = layers.LayerNormalization()
        self.supports_masking = True

    def call(self, inputs, mask=None):
        padding = None if mask is None else ops.cast(mask[:, None, :], "int32")
        attended = self.attention(inputs, inputs, inputs, attention_mask=padding)
        x = self.layernorm_1(inputs + attended)
        return self.layernorm_2(x + self.dense_proj(x))


@keras.saving.register_keras_serializable("examples")
class PositionalEmbedding(Configured, layers.Layer):
    """Tokens and places; makes a mask."""

    NUMBERS = ("sequence_length", "vocab_size", "embed_dim")

    def __init__(self, sequence_length, vocab_size, embed_dim, **kwargs):
        super().__init__(**kwargs)
        self.sequence_length, self.vocab_size = sequence_length, vocab_size
        self.embed_dim = embed_dim
        self.token_embeddings = layers.Embedding(vocab_size, embed_dim)
        self.position_embeddings = layers.Embedding(sequence_length, embed_dim)

    def call(self, inputs):
        places = ops.arange(0, ops.shape(inputs)[-1], 1)
        return self.token_embeddings(inputs) + self.position_embeddings(places)

    def compute_mask(self, inputs, mask=None):
        return ops.not_equal(inputs, 0)


@keras.saving.register_keras_serializable("examples")
class TranslationDecoder(Configured, layers.Layer):
    """Looks at the encoder's outputs too: a second argument of its call."""

    NUMBERS = ("embed_dim", "latent_dim", "num_heads")

    def __init__(self, embed_dim, latent_dim, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.embed_dim, self.latent_dim = embed_dim, latent_dim
        self.num_heads = num_heads
        self.attention_1 = layers.MultiHeadAttention(num_heads, embed_dim)
        self.attention_2 = layers.MultiHeadAttention(num_heads, embed_dim)
        self.dense_proj = ffn(latent_dim, embed_dim)
        self.layernorm_1 = layers.LayerNormalization()
        self.layernorm_2 = layers.LayerNormalization()
        self.layernorm_3 = layers.LayerNormalization()
        self.supports_masking = True

    def call(self, inputs, encoder_outputs, mask=None):
        causal = causal_mask(inputs, ops.shape(inputs)[0])
        y = self.attention_1(inputs, inputs, inputs, attention_mask=causal)
        x = self.layernorm_1(inputs + y)
        y = self.attention_2(x, encoder_outputs, encoder_outputs)
        x = self.layernorm_2(x + y)
        return self.layernorm_3(x + self.dense_proj(x))


def translator(encoder, latent):
    """A functional encoder and decoder, and a functional model of both."""
    source = keras.Input((None,), dtype="int32", name="encoder_inputs")
    x = PositionalEmbedding(LENGTH, WORDS, DIM)(source)
    encoded = encoder(x)
    target = keras.Input((None,), dtype="int32", name="decoder_inputs")
    given = keras.Input((None, DIM), name="decoder_state_inputs")
    x = PositionalEmbedding(LENGTH, WORDS, DIM)(target)
    x = layers.Dropout(0.5)(TranslationDecoder(DIM, latent, 2)(x, given))
    x = layers.Dense(WORDS, activation="softmax")(x)
    decoder = keras.Model([target, given], x, name="decoder")
    model = keras.Model([source, target], decoder([target, encoded]))
    x = {
        "encoder_inputs": 1 + integers(WORDS - 1, LENGTH),
        "decoder_inputs": 1 + integers(WORDS - 1, LENGTH)[::-1],
    }
    return Built(model, x)


@example("nlp/neural_machine_translation_with_transformer", pairs=2)
def translation():
    """An encoder layer and a decoder layer, of different FFN widths."""
    return translator(TranslationEncoder(DIM, 24, 2), 32)


class FourierEncoder(layers.Layer):
    """A Fourier transform in place of attention; no get_config."""

    def __init__(self, embed_dim, dense_dim, **kwargs):
        super().__init__(**kwargs)
        self.embed_dim, self.dense_dim = embed_dim, dense_dim
        self.dense_proj = ffn(dense_dim, embed_dim)
        self.layernorm_1 = layers.LayerNormalization()
        self.layernorm_2 = layers.LayerNormalization()

    def call(self, inputs):
        real, _ = ops.fft2((inputs, ops.zeros_like(inputs)))
        x = self.layernorm_1(inputs + real)
        return self.layernorm_2(x + self.dense_proj(x))


@example("nlp/text_generation_fnet", pairs=2)
def fnet_generation():
    """An FNet encoder and a decoder with cross-attention."""
    return translator(FourierEncoder(DIM, 32), 32)


class SpeechDecoder(layers.Layer):
    """`call(enc_out, target)`: the features come first; no get_config."""

    def __init__(self, embed_dim, num_heads, feed_forward_dim, dropout_rate=0.1):
        super().__init__()
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm3 = layers.LayerNormalization(epsilon=1e-6)
        self.self_att = layers.MultiHeadAttention(num_heads, embed_dim)
        self.enc_att = layers.MultiHeadAttention(num_heads, embed_dim)
        self.self_dropout = layers.Dropout(0.5)
        self.enc_dropout, self.ffn_dropout = layers.Dropout(0.1), layers.Dropout(0.1)
        self.ffn = ffn(feed_forward_dim, embed_dim)

    def call(self, enc_out, target):
        mask = ops.cast(causal_mask(target, ops.shape(target)[0]), "bool")
        attended = self.self_att(target, target, attention_mask=mask)
        x = self.layernorm1(target + self.self_dropout(attended))
        x = self.layernorm2(self.enc_dropout(self.enc_att(x, enc_out)) + x)
        return self.layernorm3(x + self.ffn_dropout(self.ffn(x)))


class SpeechTransformer(keras.Model):
    """Layers set by `setattr`; a list of two inputs."""

    def __init__(self, num_hid=16, num_head=2, num_feed_forward=32, num_classes=20):
        super().__init__()
        self.num_classes = num_classes
        self.features = layers.Conv1D(num_hid, 3, 2, "same", activation="relu")
        self.dec_input = TokenAndPosition(LENGTH, num_classes, num_hid)
        self.encoder = chain(
            self.features, TextBlock(num_hid, num_head, num_feed_forward)
        )
        for i in range(2):
            layer = SpeechDecoder(num_hid, num_head, num_feed_forward)
            setattr(self, f"dec_layer_{i}", layer)
        self.classifier = layers.Dense(num_classes)

    def call(self, inputs):
        source, target = inputs
        found, y = self.encoder(source), self.dec_input(target)
        for i in range(2):
            y = getattr(self, f"dec_layer_{i}")(found, y)
        return self.classifier(y)


@example("audio/transformer_asr", pairs=3)
def transformer_asr():
    """Speech features, an encoder layer, two decoder layers."""
    model = SpeechTransformer()
    source, target = normal(8, 5), integers(WORDS, LENGTH + 1)
    return Built(model, [source, target[:, :-1]])


@example("audio/ctc_asr", pairs=1)
def ctc_asr():
    """Spectrograms, recurrent layers, characters."""
    inputs = keras.Input((8, 6))
    x = layers.Reshape((-1, 6, 1))(inputs)
    x = layers.Conv2D(4, 3, padding="same", use_bias=False)(x)
    x = layers.Reshape((-1, 24))(layers.ReLU()(layers.BatchNormalization()(x)))
    x = layers.Bidirectional(layers.GRU(8, return_sequences=True))(x)
    x = layers.Dropout(0.5)(layers.ReLU()(layers.Dense(20)(x)))
    model = keras.Model(inputs, layers.Dense(7, activation="softmax")(x))
    return Built(model, normal(8, 6))
