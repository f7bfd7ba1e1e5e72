"""Which figures belong to which table, as data."""

import dataclasses
import types
from collections.abc import Callable, Mapping

from benchmarks.paper.paper_figures import (
    Curve,
    draw_curves,
    draw_heat_map,
    draw_sizes,
)
from benchmarks.paper.paper_table import SeededRow, paired_difference
from benchmarks.paper.tables import IDEA, SAME_TOKENS, TABLES


@dataclasses.dataclass(frozen=True)
class Drawing:
    """What there is to draw of one table.

    Attributes:
        rows: dict of name to `SeededRow`.
        results: dict of name to (dict of seed to result).
    """

    rows: dict[str, SeededRow]
    results: dict[str, dict]

    def curve(self, name: str) -> Curve | None:
        """The curve of a row's first seed; None: it is not finished."""
        result = next(iter(self.results[name].values()), None)
        if result is None:
            return None
        lasts = [stage["last"] for stage in result["stages"]]
        points = (result["curve"][key] for key in ("step", "loss", "learning_rate"))
        return Curve(name, *points, lasts)

    def difference(self, name: str):
        """`Estimate` of a row against its reference, or None."""
        row = self.rows[name]
        return paired_difference(row, self.rows.get(row.reference, row))


def _curves(title, *names):
    def draw(path, drawing):
        curves = [curve for curve in map(drawing.curve, names) if curve is not None]
        if len(curves) < 2:
            return False
        draw_curves(path, curves, title)
        return True

    return draw


def _over(number, field, title, label, chosen, baseline=""):
    """Bits per byte over a field of the cells of the rows that are `chosen(name)`."""
    rows = [row for row in TABLES[number].rows if chosen(row.name)]

    def draw(path, drawing):
        points = [
            (getattr(row.cell, field), drawing.rows[row.name])
            for row in rows
            if drawing.rows[row.name].values
        ]
        if not points:
            return False
        points.sort(key=lambda point: point[0])
        draw_sizes(path, points, drawing.rows.get(baseline), title, label, baseline)
        return True

    return draw


def _heat_map(start, place, title, row_label="", column_label=""):
    """Differences of the rows whose names begin so, each at its `place(cell)`."""
    places = {
        place(row.cell): row.name
        for row in TABLES[6].rows
        if row.name.startswith(start)
    }

    def draw(path, drawing):
        grid = {at: drawing.difference(name) for at, name in places.items()}
        if not any(grid.values()):
            return False
        draw_heat_map(path, grid, title, row_label, column_label)
        return True

    return draw


def _pairs(ones, others):
    return [f"{one}, {other}" for one in ones for other in others]


_PIPELINES = ("naive", "integrated")
#: table: name of the figure to `draw(path, drawing)`, which returns whether there
#: was anything to draw.
FIGURES: Mapping[int, dict[str, Callable]] = types.MappingProxyType(
    {
        1: {
            "curves": _curves(
                "Naive pipelines and the integrated one",
                *(SAME_TOKENS, "activation, naive", "learned mask, naive", IDEA),
            )
        },
        2: {
            "curves": _curves(
                "Initialisation and learning rate",
                *_pairs(
                    ("pruned from intermediate", "pruned from decayed"),
                    ("resumed", "restarted"),
                ),
            )
        },
        3: {
            "curves": _curves(
                "Naive and integrated", *_pairs(("random", "sensitivity"), _PIPELINES)
            )
        },
        5: {
            "sizes": _over(
                5,
                "hidden",
                "Size of the enlarged model",
                "neurons of the enlarged FFN, in units of the target",
                lambda name: name != SAME_TOKENS,
                SAME_TOKENS,
            )
        },
        6: {
            "stages": _heat_map(
                "enlarged",
                lambda cell: (f"{cell.enlarge_share:.0%}", f"{cell.prune_share:.0%}"),
                "Stages: difference from f1 = mean, f2 = max at 50 % and 50 %",
                "enlarged, share of all steps",
                "pruning, share of the rest",
            ),
            "reductions": _heat_map(
                "f1",
                lambda cell: (f"f1 = {cell.row_reduce}", f"f2 = {cell.matrix_reduce}"),
                "f1 and f2: difference from mean and max",
            ),
            "lambda": _over(
                6,
                "ema_decay",
                "The moving average's coefficient",
                "lambda, the weight of the past",
                lambda name: name.startswith("lambda"),
            ),
        },
        9: {
            "curves": _curves(
                "Cosine, and warm-up, stable, decay",
                *_pairs(("cosine", "warm-up, stable, decay"), _PIPELINES),
            )
        },
    }
)
