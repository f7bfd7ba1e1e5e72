"""Models of keras.io's examples: are they found, pruned, saved and compacted?"""
