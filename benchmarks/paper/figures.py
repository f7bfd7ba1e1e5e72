"""Which figures belong to which table, as data."""

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping

from benchmarks.paper.paper_figures import (
    Curve,
    draw_curves,
    draw_heat_map,
    draw_sizes,
)
from benchmarks.paper.paper_table import paired_difference
from benchmarks.paper.tables import (
    IDEA,
    SAME_TOKENS,
    TABLES,
)


@dataclasses.dataclass(frozen=True)
class Drawing:
    """What there is to draw of one table.

    Attributes:
        rows: dict of name to `SeededRow`.
        results: dict of name to (dict of seed to result).
    """

    rows: dict
    results: dict

    def curve(self, name):
        """`Curve` of a row's first seed, or None if it is not finished."""
        result = next(iter(self.results[name].values()), None)
        if result is None:
            return None
        curve = result["curve"]
        return Curve(
            name,
            curve["step"],
            curve["loss"],
            curve["learning_rate"],
            [stage["last"] for stage in result["stages"]],
        )

    def difference(self, name):
        """`Estimate` of a row against its reference, or None."""
        row = self.rows[name]
        against = self.rows.get(row.reference, row)
        return paired_difference(row, against)


def _curves(names, title, path, drawing):
    curves = [curve for curve in map(drawing.curve, names) if curve is not None]
    if len(curves) < 2:
        return False
    draw_curves(path, curves, title)
    return True


def _over(number, field, title, label, path, drawing, baseline=None):
    """Bits per byte over a field of the cells."""
    rows = {row.name: row for row in TABLES[number].rows}
    points = [
        (getattr(rows[name].cell, field), row)
        for name, row in drawing.rows.items()
        if name != baseline and row.values
    ]
    if not points:
        return False
    points.sort(key=lambda point: point[0])
    draw_sizes(path, points, drawing.rows.get(baseline), title, label, baseline)
    return True


def _heat_map(cells, title, row_label, column_label, path, drawing):
    """A heat map of the rows that `cells(cell)` gives a place."""
    grid = {}
    for row in TABLES[6].rows:
        place = cells(row.name, row.cell)
        if place is not None:
            grid[place] = drawing.difference(row.name)
    if not any(grid.values()):
        return False
    draw_heat_map(path, grid, title, row_label, column_label)
    return True


def _share_place(name, cell):
    if not name.startswith("enlarged"):
        return None
    return f"{cell.enlarge_share:.0%}", f"{cell.prune_share:.0%}"


def _reduction_place(name, cell):
    if not name.startswith("f1"):
        return None
    return f"f1 = {cell.row_reduce}", f"f2 = {cell.matrix_reduce}"


def _lambda(path, drawing):
    rows = {row.name: row for row in TABLES[6].rows if row.name.startswith("lambda")}
    points = [
        (row.cell.ema_decay, drawing.rows[name])
        for name, row in rows.items()
        if drawing.rows[name].values
    ]
    if not points:
        return False
    title = "The moving average's coefficient"
    draw_sizes(path, points, None, title, "lambda, the weight of the past", "")
    return True


#: table: name of the figure to `draw(path, drawing)`, which returns whether there
#: was anything to draw.
FIGURES: Mapping[int, dict[str, Callable]] = types.MappingProxyType(
    {
        1: {
            "curves": functools.partial(
                _curves,
                (SAME_TOKENS, "activation, naive", "learned mask, naive", IDEA),
                "Naive pipelines and the integrated one",
            )
        },
        2: {
            "curves": functools.partial(
                _curves,
                [
                    f"pruned from {start}, {rate}"
                    for start in ("intermediate", "decayed")
                    for rate in ("resumed", "restarted")
                ],
                "Initialisation and learning rate",
            )
        },
        3: {
            "curves": functools.partial(
                _curves,
                [
                    f"{method}, {pipeline}"
                    for method in ("random", "sensitivity")
                    for pipeline in ("naive", "integrated")
                ],
                "Naive and integrated",
            )
        },
        5: {
            "sizes": functools.partial(
                _over,
                5,
                "hidden",
                "Size of the enlarged model",
                "neurons of the enlarged FFN, in units of the target",
                baseline=SAME_TOKENS,
            )
        },
        6: {
            "stages": functools.partial(
                _heat_map,
                _share_place,
                "Stages: difference from f1 = mean, f2 = max at 50 % and 50 %",
                "enlarged, share of all steps",
                "pruning, share of the rest",
            ),
            "reductions": functools.partial(
                _heat_map,
                _reduction_place,
                "f1 and f2: difference from mean and max",
                "",
                "",
            ),
            "lambda": _lambda,
        },
        9: {
            "curves": functools.partial(
                _curves,
                [
                    f"{schedule}, {pipeline}"
                    for schedule in ("cosine", "warm-up, stable, decay")
                    for pipeline in ("naive", "integrated")
                ],
                "Cosine, and warm-up, stable, decay",
            )
        },
    }
)
