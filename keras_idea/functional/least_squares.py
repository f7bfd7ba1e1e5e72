"""The rows of a kernel after some of them are cut out, by ridge least squares.

Shapes: n samples (tokens), R rows of the kernel, K of them kept, D outputs. All is
computed in float64, with NumPy.
"""

from collections.abc import Callable

import numpy as np


def refit_rows(
    gram: np.ndarray, kernel: np.ndarray, kept: np.ndarray, ridge: float
) -> np.ndarray:
    r"""The kept rows of a kernel that do best what all of its rows did.

    $$W' = \arg\min_{W'} \lVert H W - H_K W' \rVert^2
    + \lambda s \lVert W' - W_K \rVert^2, \qquad
    s = \tfrac1K \operatorname{tr}(H_K^\top H_K)$$

    $$W' = W_K + (H_K^\top H_K + \lambda s I)^{-1} H_K^\top H_P W_P$$

    `H` is `(n, R)`, what the kernel `W` reads; `K` are the kept columns of it, `P` the
    others. So a large `ridge` leaves the kept rows as they are.

    Args:
        gram: float array `(R, R)`. `H^T H`.
        kernel: float array `(R, D)`. `W`.
        kept: int array `(K,)`. The rows that stay.
        ridge: float > 0. The `lambda` of the equation, in units of the mean square.

    Returns:
        float64 array `(K, D)`.

    Raises:
        numpy.linalg.LinAlgError: If the system has no solution, as the kept columns are
            all zero.

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
    r"""The squared error of the outputs, as a function of the kept rows alone.

    $$\lVert H W - H_K W' \rVert^2 = \operatorname{tr}(\Delta^\top H^\top H \Delta)$$

    `Delta` is `W`, less `W'` in its kept rows. What does not depend on `W'` is computed
    once.

    Args:
        gram: float array `(R, R)`. `H^T H`, of samples that need not be those that
            the rows were fitted on.
        kernel: float array `(R, D)`. `W`.
        kept: int array `(K,)`. The rows that stay.

    Returns:
        function of `W'`, float array `(K, D)`, that returns a float, at least zero up
        to rounding.

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
