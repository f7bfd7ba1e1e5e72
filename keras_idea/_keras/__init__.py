"""What is known of Keras's insides: one small function each, and no other place.

Each says why the public interface does not do, and with which Keras it was seen. Most
have a test of their own in `tests/laws/keras_private` or `tests/backend`, which fails
by its name when Keras moves it.
"""
