"""Models of keras.io's examples, to find things in."""
