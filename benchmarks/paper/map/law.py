"""Loss from the average number of parameters and the tokens, fitted and tested.

    L(N, D) = E + A N^-a + B D^-b

with N the parameters averaged over the tokens of a run: "The Journey Matters" (arXiv
2501.12486), after "Training Compute-Optimal Large Language Models" (arXiv 2203.15556).
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Law:
    """The constants; N and D are in units of `unit_N` and `unit_D`."""

    E: float
    A: float
    a: float
    B: float
    b: float
    unit_N: float
    unit_D: float

    def __call__(self, N, D):
        """Predicted loss, of the shape of N and D."""
        N, D = np.asarray(N) / self.unit_N, np.asarray(D) / self.unit_D
        return self.E + self.A * N**-self.a + self.B * D**-self.b


def fit(N, D, loss) -> Law:
    """The law with the least sum of squared errors, of many beginnings.

    Args:
        N: array (n,), average parameters.
        D: array (n,), tokens.
        loss: array (n,), n >= 6.

    Returns:
        `Law`.
    """
    from scipy.optimize import least_squares

    N, D, loss = (np.asarray(values, float) for values in (N, D, loss))
    unit_N, unit_D = np.exp(np.log(N).mean()), np.exp(np.log(D).mean())
    n, d = np.log(N / unit_N), np.log(D / unit_D)

    def error(x):
        E, A, a, B, b = x
        return E + np.exp(A - a * n) + np.exp(B - b * d) - loss

    begins = [
        (share * loss.min(), np.log(0.3), a, np.log(0.3), b)
        for share in (0.3, 0.6, 0.9)
        for a in (0.2, 0.5, 1.0)
        for b in (0.2, 0.5, 1.0)
    ]
    low, high = (0.0, -9.0, 0.01, -9.0, 0.01), (loss.min(), 3.0, 4.0, 3.0, 4.0)
    fits = [least_squares(error, x, bounds=(low, high)) for x in begins]
    E, A, a, B, b = min(fits, key=lambda found: found.cost).x
    return Law(E, float(np.exp(A)), a, float(np.exp(B)), b, unit_N, unit_D)
