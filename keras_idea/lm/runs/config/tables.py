"""The tables of a run's description but `[model]`: one frozen dataclass each.

What a key means stands in `demo.toml`, and here what its lines have no room for. It
also spells out the defaults, which stand in the fields; a test holds the two equal.
"""

import dataclasses
from collections.abc import Mapping

from keras_idea.functional.importance import Reduction
from keras_idea.functional.milestones import COMPACT, Compact
from keras_idea.lm.runs.config import fields
from keras_idea.methods import METHODS

_MIXED = ("mixed_bfloat16", "mixed_float16")
_DTYPES = ("float32", "bfloat16", "float16", *_MIXED)


@dataclasses.dataclass(frozen=True)
class DataConfig(fields.Table):
    """`[data]`: the text, held in memory (`[corpus]` is for more), and how it is cut.

    A relative path counts from the working directory. A folder of text must not hold
    the run folder.
    """

    table = "data"
    text: str = fields.checked("stdlib", fields.check_text)
    batch_size: int = fields.integer(32, minimum=1)
    validation_fraction: float = fields.number(0.05, minimum=0.001, maximum=0.5)
    validation_batches: int = fields.integer(32, minimum=1)
    max_megabytes: float = fields.number(16.0, minimum=0.001)


@dataclasses.dataclass(frozen=True)
class BudgetConfig(fields.Table):
    """`[budget]`: optimizer steps of each stage.

    The learning rate is planned for the first three. In the steps of the extension it
    stays what it is at the end of the plan, so that the steps before are those of a run
    without one. A run with `[elastic]` has no such stages, but `steps`.
    """

    table = "budget"
    enlarge_steps: int = fields.integer(500, minimum=0)
    prune_steps: int = fields.integer(250, minimum=1)
    recover_steps: int = fields.integer(250, minimum=0)
    extend_steps: int = fields.integer(0, minimum=0)
    steps: int | None = fields.optional(fields.whole())

    @property
    def planned_steps(self) -> int:
        """int, the optimizer steps without the extension."""
        if self.steps is not None:
            return self.steps
        return self.enlarge_steps + self.prune_steps + self.recover_steps

    @property
    def total_steps(self) -> int:
        """int, the optimizer steps of the whole run."""
        return self.planned_steps + self.extend_steps


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(fields.Table):
    """`[optimizer]`: which one, under one warm-up and one cosine over the whole run.

    Muon leaves embeddings and logits to AdamW. Lion wants about a tenth of AdamW's
    rate, Adafactor ten times it. `rewarm` puts a second cosine over the steps from the
    pruning on: `keras_idea.lm.runs.models.learning_rate`.
    """

    table = "optimizer"
    name: str = fields.choice("adamw", "adamw", "lion", "muon", "adafactor")
    peak_learning_rate: float = fields.number(3e-3, minimum=0.0)
    end_learning_rate: float = fields.number(3e-5, minimum=0.0)
    warmup_steps: int = fields.integer(50, minimum=0)
    rewarm: float = fields.number(0.0, minimum=0.0, maximum=1.0)
    weight_decay: float = fields.number(0.01, minimum=0.0)
    global_clipnorm: float | None = fields.optional(fields.above_zero())
    gradient_accumulation_steps: int = fields.integer(1, minimum=1)

    def _check_together(self) -> None:
        if self.end_learning_rate > self.peak_learning_rate:
            raise fields.ConfigError(
                "`optimizer.end_learning_rate` must be at most optimizer."
                f"{self.describe('peak_learning_rate')}. Received: "
                f"{self.describe('end_learning_rate')}. Set `end_learning_rate` to "
                f"{self.peak_learning_rate / 100:.3g}, or raise `peak_learning_rate`."
            )
        if 0.0 < self.rewarm * self.peak_learning_rate < self.end_learning_rate:
            raise fields.ConfigError(
                "`optimizer.rewarm` times optimizer."
                f"{self.describe('peak_learning_rate')} must be 0, or at least "
                f"optimizer.{self.describe('end_learning_rate')}. Received: "
                f"{self.describe('rewarm')}. "
                "Set `rewarm` to 1.0, or lower `end_learning_rate`."
            )


@dataclasses.dataclass(frozen=True)
class DistillationConfig(fields.Table):
    """`[distillation]`: a teacher whose logits are followed besides the text.

    The loss is `(1 - weight) * cross entropy + weight * temperature**2 * KL`, of the
    teacher's and the student's distributions at that temperature; with `top_k` both are
    over the teacher's likeliest tokens alone. `features` adds the error of each block's
    output to the KL. Of a preset `teacher_dtype` is also what its weights are held in.
    """

    table = "distillation"
    teacher: str | None = fields.optional(fields.check_text)
    temperature: float = fields.checked(1.0, fields.above_zero())
    weight: float = fields.checked(0.5, fields.above_zero(below=1.0))
    top_k: int | None = fields.optional(fields.whole())
    features: bool = fields.checked(False, fields.check_bool)
    teacher_dtype: str | None = fields.optional(fields.one_of(*_DTYPES))
    compare_without: bool = fields.checked(False, fields.check_bool)

    def _check_together(self) -> None:
        if self.compare_without and self.teacher is None:
            raise fields.ConfigError(
                "`distillation.compare_without` compares with a run without the "
                "teacher, but there is no teacher. Received: compare_without=True. Set "
                "`distillation.teacher`, or delete the line."
            )


@dataclasses.dataclass(frozen=True)
class PruningConfig(fields.Table):
    """`[pruning]`: which neurons go, and when the model becomes narrow."""

    table = "pruning"
    method: str = fields.choice("sensitivity", *METHODS)
    ema_decay: float = fields.number(
        0.4, minimum=0.0, maximum=1.0, exclude_maximum=True
    )
    row_reduce: Reduction = fields.choice("mean", "mean", "max")
    matrix_reduce: Reduction = fields.choice("max", "mean", "max")
    update_every: int = fields.integer(1, minimum=1)
    compact: Compact = fields.choice("end", *COMPACT)
    by_weights: bool = fields.checked(False, fields.check_bool)
    refit_windows: int = fields.integer(0, minimum=0)

    def _check_together(self) -> None:
        if self.by_weights and self.method != "activation":
            raise fields.ConfigError(
                "`pruning.by_weights` weighs the activations of the method "
                f"'activation'. Received: {self.describe('method')}, "
                f"{self.describe('by_weights')}. Set `method` to 'activation', or "
                "delete the line."
            )
        if self.refit_windows and self.method not in ("activation", "random"):
            raise fields.ConfigError(
                "`pruning.refit_windows` fits layers when all neurons go at once, "
                "which the methods 'activation' and 'random' do. Received: "
                f"{self.describe('method')}, {self.describe('refit_windows')}. Set "
                "`method` to 'activation', or delete the line."
            )


@dataclasses.dataclass(frozen=True)
class DistributionConfig(fields.Table):
    """`[distribution]`: the devices of a run, on jax, in one process or several.

    The mesh's axes, each 1 by default, multiply to all devices of all processes.
    Without a mesh Keras uses one device.
    """

    table = "distribution"
    mesh: Mapping[str, int] | None = fields.optional(fields.check_mesh)

    @property
    def size(self) -> tuple[int, int]:
        """Pair of int, the devices of the mesh's axes data and model."""
        mesh = self.mesh or {}
        return mesh.get("data", 1), mesh.get("model", 1)


@dataclasses.dataclass(frozen=True)
class SampleConfig(fields.Table):
    """`[sample]`: the text that the narrow model writes at the end.

    A temperature of 0 takes the likeliest token each time. A `top_k` of more tokens
    than there are draws among all.
    """

    table = "sample"
    prompt: str | None = fields.optional(fields.check_text)
    tokens: int = fields.integer(320, minimum=1)
    temperature: float = fields.number(0.8, minimum=0.0)
    top_k: int = fields.integer(40, minimum=1)


@dataclasses.dataclass(frozen=True)
class RunSettings(fields.Table):
    """`[run]`: where the results go and what is measured.

    The output is `runs/` and the config's name by default. The seed is that of the
    weights, the batches and the sample. Weights and the optimizer's state are float32
    with any `dtype`. To rematerialize takes about a third more time. `validate_every`
    divides `budget.enlarge_steps`: the wide model is judged right before pruning.
    A run that is killed loses at most `checkpoint_every` steps. To measure takes at
    most a tenth of the training's time, or 30 seconds if that is longer.
    """

    table = "run"
    output: str = fields.checked("runs/demo", fields.check_text)
    seed: int = fields.integer(0, minimum=0, maximum=2**31 - 1)
    dtype: str = fields.choice("float32", "float32", *_MIXED)
    rematerialize: bool = fields.checked(False, fields.check_bool)
    jit_compile: bool | None = fields.optional(fields.check_bool)
    validate_every: int = fields.integer(100, minimum=1)
    checkpoint_every: int | None = fields.optional(fields.whole())
    keep_checkpoints: int = fields.integer(2, minimum=1)
    tensorboard: bool = fields.checked(False, fields.check_bool)
    compare_from_scratch: bool = fields.checked(True, fields.check_bool)
    measure: bool = fields.checked(True, fields.check_bool)
