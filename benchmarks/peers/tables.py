"""Tables of what was measured, from the JSON alone."""

from benchmarks.peers.registry import PEERS
from benchmarks.peers.task import SHAPES, Shape

TIMES = (
    "peer",
    "waiting / wide",
    "pruning / wide",
    "pruning stage / wide",
    "after / narrow",
    "whole run, s",
    "/ wide",
    "/ narrow",
    "last loss",
    "wide",
    "narrow",
)
OUTCOMES = (
    "peer",
    "neurons asked",
    "arrays got",
    "living",
    "zeros",
    "half way at",
    "narrow at",
    "moments",
    "trained on",
    "lines",
)
WAYS = ("peer", "how")
TIMES_NOTES = (
    "Ratios of process time, one thread, each peer against a plain script in its own "
    "framework, in turns in one process: the median step of each turn, without the "
    "first turn of a stage; median and 95 % bootstrap interval over the turns. Steps "
    "of the three stages; then the whole pruning stage with every pause and "
    "compilation; then the whole run, process time (wall time) with all compilations, "
    "and its ratio to the plain wide and the born narrow one. Last: the mean loss of "
    "the last 20 steps, the peer's and its two baselines'."
)
OUTCOMES_NOTES = (
    "Living: neurons with weights in gate, up and down. Zeros: part of the FFNs' "
    "weights. Half way, narrow: the first step after which the arrays are so small (to "
    "within a neuron). Moments: of the surviving neurons, right after a cut against "
    "right before it. Trained on: whether all FFN weights change in later steps. "
    "Lines: what a user adds to the plain script, counted in benchmarks/peers."
)
WAYS_NOTES = "Each peer's versions and dates are in the JSON."


def make_tables(results):
    """The tables, as benchmarks/record.py prints and writes them.

    Args:
        results: dict of peer to dict of shape to what the peer's script wrote, or a
            dict of "error".
    """
    shapes = [s for s in SHAPES if any(s in found for found in results.values())]
    tables = [_times(results, shape) for shape in shapes]
    for shape in shapes[:1]:
        tables += [_outcomes(results, shape), _ways(results, shape)]
    return tables


def _times(results, shape):
    return {
        "title": f"Times, {shape}: {_describe(results, shape)}",
        "columns": TIMES,
        "rows": _rows(results, shape, _time_cells, len(TIMES)),
        "notes": TIMES_NOTES,
    }


def _outcomes(results, shape):
    return {
        "title": f"What becomes of the model, {shape}",
        "columns": OUTCOMES,
        "rows": _rows(results, shape, _outcome_cells, len(OUTCOMES)),
        "notes": OUTCOMES_NOTES,
    }


def _ways(results, shape):
    rows = [
        [f"{title_of(name, result)}: {label}", row["how"]]
        for name, result in _of_shape(results, shape)
        for label, row in result.get("rows", {}).items()
    ]
    return {
        "title": "What was done",
        "columns": WAYS,
        "rows": rows,
        "notes": WAYS_NOTES,
    }


def _of_shape(results, shape):
    return [(name, found[shape]) for name, found in results.items() if shape in found]


def _describe(results, shape):
    """The shape as it was measured, which `--turns` may have shortened."""
    for _, result in _of_shape(results, shape):
        if "shape" in result:
            return str(Shape(**result["shape"]))
    return str(SHAPES[shape])


def _rows(results, shape, cells, columns):
    rows = []
    for name, result in _of_shape(results, shape):
        if "error" in result:
            title = PEERS[name].title + PEERS[name].variant
            rows.append(_error_row(title, result["error"], columns))
        for label, row in result.get("rows", {}).items():
            title = f"{title_of(name, result)}: {label}"
            if "error" in row:
                rows.append(_error_row(title, row["error"], columns))
            else:
                rows.append([title, *cells(result, row)])
    return rows


def title_of(name, result):
    """A peer's title with its version and backend."""
    peer = PEERS[name]
    return f"{peer.title} {result['versions'][peer.package]}{peer.variant}"


def _error_row(title, error, columns):
    said = error.replace("|", "/")
    return [title, f"error: {said}", *[""] * (columns - 2)]


def _time_cells(result, row):
    run = {name: row["whole run"][name]["cpu"] for name in row["whole run"]}
    ratios = row["ratios"]
    return [
        _ratio(ratios["waiting / wide"]),
        _ratio(ratios["pruning / wide"]),
        f"{row['stages / wide']['prune']:.2f}",
        _ratio(ratios["afterwards / narrow"]),
        f"{run['peer']:.1f} ({row['whole run']['peer']['wall']:.1f})",
        f"{run['peer'] / run['wide']:.2f}",
        f"{run['peer'] / run['narrow']:.2f}",
        f"{row['last loss']:.3f}",
        f"{result['plain']['wide']['last loss']:.3f}",
        f"{result['plain']['narrow']['last loss']:.3f}",
    ]


def _outcome_cells(result, row):
    moments = row["moments"]
    return [
        str(result["shape"]["target_dim"]),
        _all(row["widths"]),
        _all(row["living"]),
        f"{100 * sum(row['zeros']) / len(row['zeros']):.0f} %",
        _step(row["half way at step"]),
        _step(row["narrow at step"]),
        moments["moments"],
        _trained_on(moments),
        str(row["lines"]),
    ]


def _ratio(ratio):
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _all(numbers):
    return ", ".join(str(number) for number in numbers)


def _step(step):
    return "never" if step is None else str(step)


def _trained_on(moments):
    words = "yes" if moments["trained on"] else "no"
    old = moments.get("with the old optimizer")
    if old is not None and not old["trained on"]:
        return f"{words}; silently no without a new optimizer"
    return words
