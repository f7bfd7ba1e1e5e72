"""How fast models train and generate, measured side by side."""

import itertools
import statistics
import time

import keras
import numpy as np

from keras_idea.hub.inputs import token_inputs
from keras_idea.models.generate import generate


class _Stopwatch(keras.callbacks.Callback):
    """Times steps from begin to end; Keras waits for each step's loss."""

    def on_train_begin(self, logs=None):
        self.seconds = []

    def on_train_batch_begin(self, batch, logs=None):
        self._start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.seconds.append(time.perf_counter() - self._start)


def step_times(models, batch, rounds=5, steps=6):
    """Median time of a training step of several models.

    The models take turns, so that a machine that is busy for a while slows all
    of them; the first step of each turn, which moves the state, is not counted.
    The models go on training: measure only those that are done with.

    Args:
        models: dict of name to compiled model.
        batch: pair of int arrays `(sequences, tokens)` that they all train on:
            tokens, and the token that follows each.
        rounds: int, turns of each model.
        steps: int >= 2, steps a turn.

    Returns:
        dict of name to milliseconds.
    """
    ids, targets = batch
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(rounds + 1):
        for name, model in models.items():
            x_and_y = (token_inputs(model, ids), targets)
            watch = _Stopwatch()
            keras.Model.fit(
                model,
                (x_and_y for _ in itertools.count()),
                steps_per_epoch=steps,
                shuffle=False,
                callbacks=[watch],
                verbose=0,
            )
            # The first turn compiles.
            if turn:
                seconds[name].extend(watch.seconds[1:])
    return {name: 1000 * statistics.median(times) for name, times in seconds.items()}


def generation_speeds(models, prompt, window, texts=16, tokens=24, rounds=3):
    """Tokens that several models generate a second, `texts` at once.

    Args:
        models: dict of name to model.
        prompt: int array `(tokens,)`.
        window: int, tokens the model sees at once.
        texts: int, texts written side by side.
        tokens: int, tokens added to each text in a turn.
        rounds: int, turns of each model; the median counts.

    Returns:
        dict of name to tokens a second.
    """
    prompts = np.tile(prompt, (texts, 1))
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(rounds + 1):
        for name, model in models.items():
            start = time.perf_counter()
            generate(model, prompts, tokens, window=window)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {
        name: texts * tokens / statistics.median(times)
        for name, times in seconds.items()
    }
