"""What is known of Keras's insides: one small function each, and no other place.

Each says why the public interface does not do, and with which Keras it was seen. A
test of its own in `tests/laws/keras_private` fails by its name when Keras moves it.
"""
