"""The room on disk that a run still needs when its models are trained."""

from keras_idea.files import weights_bytes
from keras_idea.lm.runs.models.footprint import footprint
from keras_idea.lm.runs.train.run import Run

# A step's line in metrics.csv, of two trainings, in the old file and the new one.
_PER_STEP = 4 * 100
# A token in the files of a tokenizer; the picture, tables and text.
_PER_TOKEN, _REST = 64, 1_000_000


def results_bytes(run: Run) -> int:
    """Bytes of the narrow model and of all else that a run writes at its end.

    With [elastic], of the full model and of each width as if it were as large.

    An estimate that is rather too high.
    """
    sizes = run.timeline.narrow
    narrow = footprint(run.config, run.outline, sizes, pruned=True)
    variables = len(run.outline.make(sizes).variables)
    size = weights_bytes(narrow.parameters, variables)
    if run.models.saved_as.endswith(".keras"):  # with its optimizer
        size = weights_bytes(narrow.checkpoint // 4, 3 * variables)
    if run.config.model.uses_keras_hub:
        size += _PER_TOKEN * run.models.vocabulary.vocabulary_size
    size *= max(1, len(run.timeline.widths))
    return size + _PER_STEP * run.timeline.total + _REST
