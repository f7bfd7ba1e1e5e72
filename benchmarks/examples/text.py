"""Texts: transformers, as most readers write their first."""

import keras
from keras import layers, ops

from benchmarks.examples.example import BATCH, Built, example, ffn, integers

WORDS, LENGTH, DIM = 20, 6, 16


class TextBlock(layers.Layer):
    """Attention and a Sequential of two Dense layers; no get_config."""

    def __init__(self, embed_dim, num_heads, ff_dim, rate=0.1):
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.ffn = ffn(ff_dim, embed_dim)
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1, self.dropout2 = layers.Dropout(rate), layers.Dropout(rate)

    def call(self, inputs):
        x = self.layernorm1(inputs + self.dropout1(self.att(inputs, inputs)))
        return self.layernorm2(x + self.dropout2(self.ffn(x)))


class TokenAndPosition(layers.Layer):
    """Tokens and places, by ops.arange; no get_config."""

    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.token_emb = layers.Embedding(vocab_size, embed_dim)
        self.pos_emb = layers.Embedding(maxlen, embed_dim)

    def call(self, x):
        places = ops.arange(start=0, stop=ops.shape(x)[-1], step=1)
        return self.token_emb(x) + self.pos_emb(places)


def head(x):
    """The mean over places, a hidden layer, two classes."""
    x = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(x))
    x = layers.Dropout(0.1)(layers.Dense(20, activation="relu")(x))
    return layers.Dense(2, activation="softmax")(x)


@example("nlp/text_classification_with_transformer", pairs=2)
def text_transformer():
    """One block, and a hidden layer in the head."""
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = TokenAndPosition(LENGTH, WORDS, DIM)(inputs)
    model = keras.Model(inputs, head(TextBlock(DIM, 2, 32)(x)))
    return Built(model, integers(WORDS, LENGTH))


class Router(layers.Layer):
    """Sends each token to one expert, of a fixed capacity."""

    def __init__(self, num_experts, expert_capacity):
        super().__init__()
        self.num_experts, self.expert_capacity = num_experts, expert_capacity
        self.route = layers.Dense(num_experts)

    def call(self, inputs):
        gates = ops.softmax(self.route(inputs), axis=-1)
        gate, index = ops.top_k(gates, k=1)
        mask = ops.one_hot(ops.squeeze(index, -1), self.num_experts)
        share = ops.mean(mask, axis=0) * ops.mean(gates, axis=0)
        self.add_loss(ops.mean(share) * self.num_experts**2)
        place = ops.cast(ops.cumsum(mask, axis=0) * mask, "int32")
        mask = mask * ops.cast(place < self.expert_capacity, "float32")
        places = ops.one_hot(place, self.expert_capacity)
        combined = (gate * mask)[..., None] * places
        return ops.cast(combined > 0, "float32"), combined


class Switch(layers.Layer):
    """Experts for all tokens of a batch side by side: its size is a constant."""

    def __init__(self, num_experts, embed_dim, ff_dim, num_tokens, capacity_factor=2):
        super().__init__()
        self.num_experts, self.embed_dim = num_experts, embed_dim
        self.num_tokens = num_tokens
        self.experts = [ffn(ff_dim, embed_dim) for _ in range(num_experts)]
        self.capacity = capacity_factor * num_tokens // num_experts
        self.router = Router(num_experts, self.capacity)

    def call(self, inputs):
        batch, length = ops.shape(inputs)[0], ops.shape(inputs)[1]
        x = ops.reshape(inputs, (self.num_tokens, self.embed_dim))
        dispatch, combine = self.router(x)
        found = ops.einsum("ab,acd->cdb", x, dispatch)
        shape = (self.num_experts, self.capacity, self.embed_dim)
        given = ops.unstack(ops.reshape(found, shape), self.num_experts, axis=0)
        made = [expert(x) for expert, x in zip(self.experts, given, strict=True)]
        made = ops.einsum("abc,xba->xc", ops.stack(made, axis=1), combine)
        return ops.reshape(made, (batch, length, self.embed_dim))


class SwitchBlock(layers.Layer):
    """A block that is given its FFN."""

    def __init__(self, embed_dim, num_heads, ffn, rate=0.1):
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.ffn = ffn
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1, self.dropout2 = layers.Dropout(rate), layers.Dropout(rate)

    def call(self, inputs, training=False):
        attended = self.dropout1(self.att(inputs, inputs), training=training)
        x = self.layernorm1(inputs + attended)
        return self.layernorm2(x + self.dropout2(self.ffn(x), training=training))


@example("nlp/text_classification_with_switch_transformer", pairs=4)
def switch_transformer():
    """Three experts and a hidden layer in the head."""
    switch = Switch(3, DIM, 24, BATCH * LENGTH)
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = TokenAndPosition(LENGTH, WORDS, DIM)(inputs)
    model = keras.Model(inputs, head(SwitchBlock(DIM, 2, switch)(x)))
    return Built(model, integers(WORDS, LENGTH))


def causal_mask(inputs, batch):
    """What a place may look at: itself and those before."""
    length = ops.shape(inputs)[1]
    mask = ops.cast(ops.arange(length)[:, None] >= ops.arange(length), "int32")
    return ops.tile(ops.reshape(mask, (1, length, length)), (batch, 1, 1))


class GptBlock(TextBlock):
    """As the text block, with a causal mask."""

    def call(self, inputs):
        mask = causal_mask(inputs, ops.shape(inputs)[0])
        attended = self.att(inputs, inputs, attention_mask=ops.cast(mask, "bool"))
        x = self.layernorm1(inputs + self.dropout1(attended))
        return self.layernorm2(x + self.dropout2(self.ffn(x)))


@example("generative/text_generation_with_miniature_gpt", pairs=1)
def miniature_gpt():
    """Logits and hidden states; `feed_forward_dim` equals `embed_dim`."""
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = GptBlock(DIM, 2, DIM)(TokenAndPosition(LENGTH, WORDS, DIM)(inputs))
    model = keras.Model(inputs, [layers.Dense(WORDS)(x), x])
    tokens = integers(WORDS, LENGTH)
    return Built(model, tokens)


class MaskedLanguageModel(keras.Model):
    """A functional model of its own class."""


def bert(inputs, dropout=0.1):
    """Two layers of BERT, written with functions."""
    x = layers.Embedding(WORDS, DIM, name="word_embedding")(inputs)
    for i in range(2):
        attention = layers.MultiHeadAttention(2, 8, name=f"encoder_{i}_attention")
        y = layers.Dropout(dropout)(attention(x, x, x))
        x = layers.LayerNormalization(epsilon=1e-6)(x + y)
        inner = ffn(32, DIM, name=f"encoder_{i}_ffn")
        x = layers.LayerNormalization(epsilon=1e-6)(
            x + layers.Dropout(dropout)(inner(x))
        )
    return x


@example("nlp/masked_language_modeling", pairs=2)
def masked_language_modeling():
    """Two layers of BERT and the words."""
    inputs = keras.Input((LENGTH,), dtype="int32")
    words = layers.Dense(WORDS, name="mlm_cls", activation="softmax")(bert(inputs))
    model = MaskedLanguageModel(inputs, words, name="masked_bert_model")
    tokens = integers(WORDS, LENGTH)
    return Built(model, tokens)


@example("nlp/text_extraction_with_bert", pairs=2)
def text_extraction():
    """Where an answer begins and ends."""
    ids = keras.Input((LENGTH,), dtype="int32")
    encoder = keras.Model(ids, bert(ids), name="bert")
    inputs = [keras.Input((LENGTH,), dtype="int32") for _ in range(2)]
    x = encoder(inputs[0]) * ops.cast(inputs[1], "float32")[..., None]
    ends = [
        layers.Activation("softmax")(
            layers.Flatten()(layers.Dense(1, use_bias=False, name=name)(x))
        )
        for name in ("start_logit", "end_logit")
    ]
    model = keras.Model(inputs, ends)
    x = [integers(WORDS, LENGTH), integers(2, LENGTH)]
    return Built(model, x)


@example("nlp/semantic_similarity_with_bert", pairs=0)
def semantic_similarity():
    """Features of a frozen encoder."""
    ids = keras.Input((LENGTH,), dtype="int32")
    encoder = keras.Model(ids, bert(ids), name="bert")
    encoder.trainable = False
    inputs = keras.Input((LENGTH,), dtype="int32")
    lstm = layers.Bidirectional(layers.LSTM(6, return_sequences=True))
    x = lstm(encoder(inputs))
    pools = [layers.GlobalAveragePooling1D()(x), layers.GlobalMaxPooling1D()(x)]
    x = layers.Dropout(0.3)(layers.concatenate(pools))
    model = keras.Model(inputs, layers.Dense(3, activation="softmax")(x))
    return Built(model, integers(WORDS, LENGTH))


class NerModel(keras.Model):
    """A subclassed Model around a block, with a hidden layer of its own."""

    def __init__(self, num_tags, vocab_size, maxlen=6, embed_dim=16, ff_dim=24):
        super().__init__()
        self.embedding_layer = TokenAndPosition(maxlen, vocab_size, embed_dim)
        self.transformer_block = TextBlock(embed_dim, 2, ff_dim)
        self.dropout1, self.dropout2 = layers.Dropout(0.1), layers.Dropout(0.1)
        self.ff = layers.Dense(ff_dim, activation="relu")
        self.ff_final = layers.Dense(num_tags, activation="softmax")

    def call(self, inputs, training=False):
        x = self.transformer_block(self.embedding_layer(inputs))
        x = self.dropout1(x, training=training)
        return self.ff_final(self.dropout2(self.ff(x), training=training))


@example("nlp/ner_transformers", pairs=2)
def ner():
    """A tag for each token."""
    model = NerModel(4, WORDS)
    return Built(model, integers(WORDS, LENGTH))


@example("nlp/text_classification_from_scratch", pairs=1)
def text_from_scratch():
    """A hidden layer between Dropout and a sigmoid."""
    inputs = keras.Input((None,), dtype="int32")
    x = layers.Dropout(0.5)(layers.Embedding(WORDS, DIM)(inputs))
    x = layers.Conv1D(12, 3, padding="same", activation="relu")(x)
    x = layers.Dense(24, activation="relu")(layers.GlobalMaxPooling1D()(x))
    x = layers.Dense(1, activation="sigmoid")(layers.Dropout(0.5)(x))
    model = keras.Model(inputs, x)
    return Built(model, integers(WORDS, LENGTH))
