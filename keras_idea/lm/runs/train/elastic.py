"""The training of a run with `[elastic]`: several widths of one model, and their files.

It leaves the full model with a record of the widths, of which `keras_idea.hub.load`
takes each; and a model of each width that needs no record.
"""

import pathlib
from collections.abc import Mapping

import keras

from keras_idea.callbacks import Monitor
from keras_idea.elastic import ElasticCallback, sliced
from keras_idea.elastic.draw import SANDWICH
from keras_idea.elastic.widths import FULL
from keras_idea.lm.report.curves import TrainingCurve
from keras_idea.lm.report.picture import draw_run
from keras_idea.lm.report.table import ResultRow
from keras_idea.lm.report.widths import curves_by_width
from keras_idea.lm.runs.config.elastic_table import ElasticConfig
from keras_idea.lm.runs.train.disk_estimate import results_bytes
from keras_idea.lm.runs.train.fitting import fit, monitor_of, recorder_of
from keras_idea.lm.runs.train.results import judged, where_it_lies
from keras_idea.lm.runs.train.run import Run
from keras_idea.models.decoder import compute_in
from keras_idea.surgery import compact
from keras_idea_cli.run_files import ELASTIC

#: Why the columns of speeds are empty.
NOT_TIMED = "Speeds are not measured in a run with [elastic]."
_WIDTHS = "widths"
_OF_THE_TEACHER = (
    "Training losses in metrics.csv and run.png have the share of elastic.teacher in "
    "them; the figures of the table are those of the text alone."
)


class DrawnWidth(keras.callbacks.Callback):
    """Adds `drawn_width` to the logs of a step: the neurons of its widest.

    Put it after what it looks at.
    """

    def __init__(self, elastic: ElasticCallback, widths: Mapping[str, int]) -> None:
        super().__init__()
        self._elastic, self._widths = elastic, widths

    def on_train_batch_end(
        self, batch: int, logs: dict[str, float] | None = None
    ) -> None:
        """Adds the width of the step."""
        if logs is not None:
            drawn = self._elastic.drawn
            # Not `width`: with that a pruning callback also tells the learning rate.
            logs["drawn_width"] = max(self._widths[name] for name in drawn)


def elastic_callback(
    settings: ElasticConfig, widths: Mapping[str, int]
) -> ElasticCallback:
    """The callback of a run; `widths` are the neurons at each, "full" among them."""
    return ElasticCallback(
        {name: neurons for name, neurons in widths.items() if name != FULL},
        begin_step=settings.begin_step,
        sample=settings.sample,
        teacher=settings.teacher,
        teacher_weight=settings.teacher_weight,
        seed=settings.seed,
    )


def train_widths(run: Run) -> dict[str, keras.Model]:
    """The trained models of each width, "full" first; they are saved."""
    widths = run.timeline.widths
    shown = ", ".join(f"{name} {neurons:,}" for name, neurons in widths.items())
    print(f"\nTraining several widths: FFN width {shown}", flush=True)
    keras.utils.set_random_seed(run.config.run.seed)
    model = run.models.wide()
    elastic = elastic_callback(run.config.elastic, widths)
    narrower = [name for name in widths if name != FULL]
    recorder = recorder_of(run, ELASTIC, run.timeline.wide, widths=narrower)
    monitor: Monitor | None = monitor_of(run, ELASTIC)
    after = [DrawnWidth(elastic, widths), *([] if monitor is None else [monitor])]
    # Before the recorder: it takes the losses of each width from the logs.
    fit(run, model, recorder, after, before=[elastic])
    # A stock preset in mixed precision is one that KerasHub 0.32 cannot read.
    models = {FULL: compute_in(compact(model), "float32")}
    for name in narrower:
        models[name] = compute_in(sliced(models[FULL], widths[name]), "float32")
    _save(run, models)
    return models


def _save(run: Run, models: Mapping[str, keras.Model]) -> None:
    folder, size = run.folder, results_bytes(run)
    as_preset = run.config.model.uses_keras_hub
    with folder.replacing(_WIDTHS, size) as path:
        path.mkdir()
        for name in models:
            if name != FULL:
                place = path / (name if as_preset else f"{name}.keras")
                run.models.save(models[name], place)
    with folder.replacing(run.models.saved_as, size) as path:
        run.models.save(models[FULL], path)
    print(f"\n{where_it_lies(run, models[FULL])}", flush=True)
    names = ", ".join(name for name in models if name != FULL)
    print(
        f"The narrower ones ({names}) are in {pathlib.Path(folder.shown) / _WIDTHS}/.",
        flush=True,
    )


def notes(run: Run) -> list[str]:
    """What is to be said beside the table."""
    taught = run.config.elastic.teacher is not None
    return [_OF_THE_TEACHER] if taught else []


def width_rows(run: Run, models: Mapping[str, keras.Model]) -> list[ResultRow]:
    """A row of the table for each width: parameters and the figures at the end."""
    curve = run.recorders[0].curve()
    at_end = {FULL: curve.validation, **curve.at_widths}
    return [
        judged(
            run,
            ResultRow(name, model.count_params()),
            name,
            at_end[name].get(run.timeline.total),
        )
        for name, model in models.items()
    ]


def draw_widths(run: Run, teacher: float | None) -> None:
    """Draws the picture of a run into its folder; `teacher`: its bits per byte."""
    timeline = run.timeline
    shown = ", ".join(f"{name} {n:,}" for name, n in timeline.widths.items())
    taught = run.config.elastic.teacher is not None
    with run.folder.replacing("run.png") as path:
        draw_run(
            path,
            curves_of_widths(run),
            [],
            timeline.stages,
            title=f"FFN width {shown}, in one fit"
            + ("; training losses with the teacher's" if taught else ""),
            rate=run.recorders[0].curve(),
            widths=timeline.widths,
            teacher=teacher,
        )


def curves_of_widths(run: Run) -> list[TrainingCurve]:
    """The run's curve taken apart, by width: for the picture."""
    sandwich = run.config.elastic.sample == SANDWICH
    return curves_by_width(run.recorders[0].curve(), run.timeline.widths, sandwich)
