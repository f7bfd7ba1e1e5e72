"""What the functions of a training hand on to each other, as one record."""

import dataclasses
import functools

import keras
import numpy as np

from keras_idea.errors import TextError
from keras_idea.lm.data.tokens import Batch
from keras_idea.lm.distribution import Distribution
from keras_idea.lm.runs.config import RunConfig
from keras_idea.lm.runs.config.timeline import Timeline
from keras_idea.lm.runs.models.build import RunModels
from keras_idea.lm.runs.models.outlines import Outlines, outlines
from keras_idea.lm.runs.run_folder import RunFolder
from keras_idea.lm.runs.train.recorder import LossUnits, Recorder
from keras_idea.validation import plural
from keras_idea_cli.run_files import TRAININGS

#: The models that a run tells of.
NARROW, PRUNED_WITHOUT_TEACHER, SCRATCH = TRAININGS
WIDE, CUT, TEACHER = "wide before pruning", "pruned, not recovered", "teacher"


@dataclasses.dataclass(frozen=True)
class Run:
    """A run while it is carried out."""

    config: RunConfig
    models: RunModels
    timeline: Timeline
    folder: RunFolder
    teacher: keras.Model | None = None  # that is followed besides the text
    distribution: Distribution | None = None  # of a mesh
    # One a training so far.
    recorders: list[Recorder] = dataclasses.field(default_factory=list)

    @functools.cached_property
    def validation(self) -> Batch:
        """Arrays `(windows, length)`: what every validation reads."""
        batch_size = self.config.data.batch_size
        arrays = self.models.corpus.held_out_windows(
            self.length, self.config.data.validation_batches * batch_size
        )
        # Whole batches: a shorter last one would be compiled for itself; of the whole
        # text, if that is less, as many as the devices can share.
        count = len(arrays[0])
        whole = count - count % batch_size
        whole = whole or count - count % self.config.distribution.size[0]
        if not whole:
            raise TextError(
                f"The validation text has {plural(count, 'sequence')}, fewer than the "
                f"{self.config.distribution.size[0]} devices along the data axis of "
                "the mesh. Received: "
                f"{self.config.data.describe('validation_fraction')}. "
                "Give more text, or set a larger `data.validation_fraction`."
            )
        return tuple(array[:whole] for array in arrays)

    @property
    def length(self) -> int:
        """int, tokens of a sequence."""
        return self.config.model.sequence_length

    @property
    def passes(self) -> float:
        """float, how often a training of the run reads its whole text."""
        tokens = self.config.data.batch_size * self.length
        return self.timeline.total * tokens / len(self.models.corpus.train)

    @functools.cached_property
    def outline(self) -> Outlines:
        """`Outlines` of its models."""
        return outlines(self.config, self.models.vocabulary.vocabulary_size)

    @functools.cached_property
    def loss_units(self) -> LossUnits:
        """`LossUnits`, from the losses of this run's tokens."""
        corpus = self.models.corpus
        _, following, *weights = self.validation
        counts = weights[0] > 0 if weights else np.ones(following.shape, bool)
        return LossUnits(
            train=corpus.train_bytes_per_token(),
            validation=corpus.bytes_per_token(following[counts]),
            train_counted=corpus.counted,
            validation_counted=float(counts.mean()),
        )
