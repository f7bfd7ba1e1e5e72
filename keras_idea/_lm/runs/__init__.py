"""Whole runs: the configuration of a run, and the code that carries it out."""
