"""Keras's optimizers, each with options that give it further state."""

import keras

import keras_idea as ki

o = keras.optimizers
OPTIMIZERS = {
    "sgd": lambda: o.SGD(0.01),
    "momentum": lambda: o.SGD(0.01, momentum=0.9, nesterov=True),
    "adamw": lambda: o.AdamW(ki.CosineDecay(0.01, 0.001, 20, 2), clipnorm=1.0),
    "amsgrad": lambda: o.Adam(0.01, amsgrad=True, use_ema=True),
    "nadam": lambda: o.Nadam(0.01),
    "adamax": lambda: o.Adamax(0.01),
    "adagrad": lambda: o.Adagrad(0.01),
    "adadelta": lambda: o.Adadelta(0.01),
    "rmsprop": lambda: o.RMSprop(0.001, momentum=0.5, centered=True),
    "ftrl": lambda: o.Ftrl(0.01),
    "lion": lambda: o.Lion(0.001),
    "callable rate": lambda: o.Adam(lambda: 0.01),
    "accumulated": lambda: o.Adam(0.01, gradient_accumulation_steps=2),
    "loss scale": lambda: o.LossScaleOptimizer(o.Adam(0.01)),
}
if hasattr(o, "ScheduleFreeAdamW"):  # Keras 3.14 brought it
    OPTIMIZERS["schedule-free"] = lambda: o.ScheduleFreeAdamW(0.01)


# Their steps look at a whole matrix at once (its norm, an orthogonal factor): the
# zeros of dead neurons count in a wide one and are not there in a narrow one.
WHOLE_MATRIX = {
    "lamb": lambda: o.Lamb(0.01),
    "muon": lambda: o.Muon(0.001),
}
