"""The picture of a run shows what it should."""

import matplotlib.figure

from keras_idea._lm.report.curves import Curve
from keras_idea._lm.report.picture import _draw_loss


def test_all_losses_but_the_first_are_in_the_picture():
    bits = [9.0, *[2.5] * 9, 1.5]
    columns = {"step": range(11), "bits_per_byte": bits, "validation": bits}
    axis = matplotlib.figure.Figure().subplots()
    _draw_loss(axis, [Curve("pruned", columns)], teacher=1.0)
    low, high = axis.get_ylim()
    assert 0.5 < low < 1.0 and 2.5 < high < 3.0
