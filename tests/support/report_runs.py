"""Run folders as `keras-idea train` leaves them, written by hand."""

import dataclasses

import numpy as np

from keras_idea.lm.report.curves import metrics_csv
from keras_idea.lm.report.table import to_json, to_markdown
from keras_idea.plot import figure
from keras_idea.report import ResultRow, TrainingCurve

STEPS = 60
CONFIG = """
[model]
hidden_dim = 64
target_dim = 24

[pruning]
method = "{method}"

[data]
text = "a <b>bold</b> & quoted \\"text\\""
"""


def curve(name, floor):
    steps = np.arange(1, STEPS + 1)
    return TrainingCurve(
        name,
        steps,
        loss=floor + 4.0 * np.exp(-steps / 20),
        learning_rate=np.linspace(1e-3, 1e-5, STEPS),
        width=np.where(steps < 35, 64, 24),
        validation={30: floor + 0.5, 60: floor + 0.1},
    )


def write_run(folder, method="sensitivity", floor=2.0, sample="<script>x()</script>"):
    """A finished run; the pruned model ends at `floor + 0.1` bits per byte."""
    folder.mkdir(parents=True)
    rows = [
        ResultRow("wide before pruning", 5_000, floor + 0.5, 10.0, 900.0, 6.5),
        ResultRow("pruned", 1_234_567, floor + 0.1, 4.25, 1500.0, 4.5),
        ResultRow("narrow from scratch", 1_234_567, floor + 0.2, 4.25),
    ]
    facts = {"text": "a text & more", "backend": "jax", "machine": "Linux x86_64"}
    judged = dataclasses.replace(curve("pruned", floor), perplexity={30: 6.5, 60: 4.5})
    curves = [judged, curve("narrow from scratch", floor + 0.1)]
    (folder / "config.toml").write_text(CONFIG.format(method=method))
    (folder / "metrics.csv").write_text(metrics_csv(curves))
    (folder / "table.json").write_text(to_json(rows, facts))
    (folder / "table.md").write_text(to_markdown(rows))
    (folder / "sample.txt").write_text(sample)
    with figure(folder / "run.png", 4, 3, "", nrows=1, ncols=1) as axis:
        axis.plot(curves[0].steps, curves[0].loss)
    return folder


ELASTIC = """
[model]
hidden_dim = 64

[elastic]
widths = { small = 8, medium = 0.5 }
sample = "SAMPLE"
"""


def write_elastic_run(folder, sample="turn"):
    """A finished run of widths 64, 8 and 32, by turns; validated at 30 and 60."""
    write_run(folder)
    (folder / "config.toml").write_text(ELASTIC.replace("SAMPLE", sample))
    drawn = np.tile([64, 8, 32], STEPS // 3) if sample == "turn" else [64] * STEPS
    whole = dataclasses.replace(
        curve("all widths", 2.0),
        width=np.array(drawn),
        at_widths={"small": {30: 2.9, 60: 2.7}, "medium": {30: 2.6, 60: 2.4}},
    )
    (folder / "metrics.csv").write_text(metrics_csv([whole]))
    return folder
