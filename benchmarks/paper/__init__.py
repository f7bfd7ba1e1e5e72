"""The paper's tables, in kind: cells as data, one function that carries out any."""
