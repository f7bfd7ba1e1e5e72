"""What becomes of the optimizer's moments when neurons are cut out, by experiment.

A state is a list with a dict for each FFN: "weights", a dict of "gate", "up" and
"down", and "moments", a dict of the same names whose values are pairs of arrays, or
None where the optimizer holds none. All arrays are `(neurons, dim)` and copies.
"""

import numpy as np

NAMES = ("gate", "up", "down")


def compare(before, after, later):
    """What a cut has done.

    Args:
        before: state right before neurons are pruned.
        after: state right after it, before the next step.
        later: state a few steps after it.

    Returns:
        dict: "moments", in words; "difference", the greatest among the moments of the
        surviving neurons, or None; "trained on", whether all weights went on to change.
    """
    pairs = list(zip(before, after, strict=True))
    words, difference = _words(pairs)
    return {
        "moments": words,
        "difference": difference,
        "trained on": _all_change(after, later),
    }


def _words(pairs):
    if any(values is None for _, new in pairs for values in new["moments"].values()):
        return "lost", None
    if all(_neurons(old) == _neurons(new) for old, new in pairs):
        stay = all(_are_there(new) for _, new in pairs)
        return f"nothing is cut, they {'stay' if stay else 'are reset'}", None
    difference = max(_difference(old, new) for old, new in pairs)
    return ("kept, exactly" if difference == 0 else "changed"), difference


def _neurons(state):
    return len(state["weights"]["gate"])


def _are_there(state):
    """Whether the moments of every matrix are others than zeros."""
    return all(
        np.any(moment != 0) for pair in state["moments"].values() for moment in pair
    )


def _difference(old, new):
    """The greatest difference between the moments of the same neurons."""
    survivors = _survivors(old["weights"], new["weights"])
    return max(
        float(np.abs(was[survivors] - now).max())
        for name in NAMES
        for was, now in zip(old["moments"][name], new["moments"][name], strict=True)
    )


def _survivors(old, new):
    """Which neurons are left, in the new order: those with the very same weights."""
    places = {_row(old, index): index for index in range(len(old["gate"]))}
    return [places[_row(new, index)] for index in range(len(new["gate"]))]


def _row(weights, index):
    return b"".join(weights[name][index].tobytes() for name in NAMES)


def _all_change(after, later):
    """Whether each matrix is another one after a few more steps."""
    return all(
        now["weights"][name].shape != then["weights"][name].shape
        or bool(np.any(now["weights"][name] != then["weights"][name]))
        for now, then in zip(after, later, strict=True)
        for name in NAMES
    )
