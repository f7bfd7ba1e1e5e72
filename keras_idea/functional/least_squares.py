"""Fits the rows of a kernel after some of them are cut out, by ridge least squares.

Shapes: n samples (tokens), R rows of the kernel, K of them kept, D outputs. All is
computed in float64, with NumPy. `gram` is `H^T H`, `(R, R)`, of what the kernel reads,
`H` of shape `(n, R)`; `kernel` is `W`, `(R, D)`; `kept` are the rows that stay.
"""

from collections.abc import Callable

import numpy as np


def refit_rows(
    gram: np.ndarray, kernel: np.ndarray, kept: np.ndarray, ridge: float
) -> np.ndarray:
    r"""Returns the rows `(K, D)` that do best what all rows of a kernel did.

    $$W' = \arg\min_{W'} \lVert H W - H_K W' \rVert^2
    + \lambda s \lVert W' - W_K \rVert^2, \qquad
    s = \tfrac1K \operatorname{tr}(H_K^\top H_K)$$

    $$W' = W_K + (H_K^\top H_K + \lambda s I)^{-1} H_K^\top H_P W_P$$

    `P` are the rows that go. A large `ridge`, `lambda` > 0, leaves the kept rows as
    they are. Raises `numpy.linalg.LinAlgError` if the kept columns of `H` are all zero.

    Example:
    >>> gram = np.array([[2.0, 2.0], [2.0, 2.0]])  # two columns that are equal
    >>> refit_rows(gram, np.array([[1.0], [3.0]]), np.array([0]), 1e-9).round(6)
    array([[4.]])

    Source: GRAIL (arXiv 2602.23795) compensates a cut by a ridge regression likewise.
    """
    gram, kernel = np.asarray(gram, "float64"), np.asarray(kernel, "float64")
    cut = np.setdiff1d(np.arange(len(kernel)), kept)
    within = gram[np.ix_(kept, kept)]
    penalty = ridge * np.trace(within) / len(kept)
    moved = gram[np.ix_(kept, cut)] @ kernel[cut]
    return kernel[kept] + np.linalg.solve(within + penalty * np.eye(len(kept)), moved)


def output_error(
    gram: np.ndarray, kernel: np.ndarray, kept: np.ndarray
) -> Callable[[np.ndarray], float]:
    r"""Returns the squared error of the outputs as a function of the kept rows `W'`.

    $$\lVert H W - H_K W' \rVert^2 = \operatorname{tr}(\Delta^\top H^\top H \Delta)$$

    `Delta` is `W`, less `W'` in its kept rows. What does not depend on `W'` is computed
    once. The samples of `gram` need not be those that the rows were fitted on.

    Example:
    >>> output_error(np.eye(2), np.array([[1.0], [3.0]]), np.array([0]))([[1.0]])
    9.0
    """
    gram, kernel = np.asarray(gram, "float64"), np.asarray(kernel, "float64")
    cut = np.setdiff1d(np.arange(len(kernel)), kept)
    lost = gram[:, cut] @ kernel[cut]  # (R, D): H^T of the outputs that go
    of_cut = float(np.sum(kernel[cut] * lost[cut]))
    within, across = gram[np.ix_(kept, kept)], lost[kept]

    def error(rows: np.ndarray) -> float:
        change = kernel[kept] - rows
        return of_cut + float(np.sum(change * (2.0 * across + within @ change)))

    return error
