"""The tables of a run's description but `[model]`: one frozen dataclass each.

What a key means stands in `demo.toml`, and here what its lines have no room for. It
also spells out the defaults, which stand in the fields; a test holds the two equal.
"""

import dataclasses
from collections.abc import Mapping

from keras_idea.functional.importance import Reduction
from keras_idea.methods import METHODS
from keras_idea.runs.config import fields
from keras_idea.schedules.compaction import COMPACT, Compact

_MIXED = ("mixed_bfloat16", "mixed_float16")
_DTYPES = ("float32", "bfloat16", "float16", *_MIXED)


@dataclasses.dataclass(frozen=True)
class DataConfig(fields.Table):
    """`[data]`: the text, and how it is cut.

    Args:
        text: str, "stdlib" (the source of Python's standard library), or the
            path of a text file or of a folder of them, held in memory; `[corpus]`
            is for more. A relative path counts from the working directory.
        batch_size: int, sequences a step.
        validation_fraction: float in [0.001, 0.5], the share of the text held
            out.
        validation_batches: int, how many batches one validation reads at most.
        max_megabytes: float, at most so much text is read.
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

    Args:
        enlarge_steps: int, steps at the enlarged width; 0 where the model is trained
            already, as one from a preset.
        prune_steps: int, steps over which the width falls.
        recover_steps: int, steps at the target width.
    """

    table = "budget"
    enlarge_steps: int = fields.integer(500, minimum=0)
    prune_steps: int = fields.integer(250, minimum=1)
    recover_steps: int = fields.integer(250, minimum=0)

    @property
    def total_steps(self) -> int:
        """int, the optimizer steps of the whole run."""
        return self.enlarge_steps + self.prune_steps + self.recover_steps


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(fields.Table):
    """`[optimizer]`: which one, under one warm-up and one cosine over the whole run.

    Args:
        name: "adamw", "lion", "muon" (AdamW for embeddings and logits) or "adafactor".
        peak_learning_rate: float, the rate after the warm-up. Optimizers differ in
            what is a good one: Lion wants about a tenth of AdamW's, Adafactor ten
            times it.
        end_learning_rate: float in [0, peak], the rate at the end.
        warmup_steps: int, steps of linear warm-up.
        rewarm: float in [0, 1]. Above 0 the rate warms up again when pruning begins, to
            this share of the peak, in `warmup_steps` or a quarter of the steps that
            are left, and decays by a cosine of its own; the optimizer keeps its state.
            0, the paper's: one cosine.
        weight_decay: float, decoupled weight decay.
        global_clipnorm: float > 0 or None: where the norm of all gradients together
            is larger, they are scaled down to it.
        gradient_accumulation_steps: int, parts into which the batch of a step is cut,
            one after another: less memory, the same step. Divides `data.batch_size`.
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
                f"{self.told('peak_learning_rate')}. Received: "
                f"{self.told('end_learning_rate')}. Set `end_learning_rate` to "
                f"{self.peak_learning_rate / 100:.3g}, or raise `peak_learning_rate`."
            )
        if 0.0 < self.rewarm * self.peak_learning_rate < self.end_learning_rate:
            raise fields.ConfigError(
                "`optimizer.rewarm` times optimizer."
                f"{self.told('peak_learning_rate')} must be 0, or at least optimizer."
                f"{self.told('end_learning_rate')}. Received: {self.told('rewarm')}. "
                "Set `rewarm` to 1.0, or lower `end_learning_rate`."
            )


@dataclasses.dataclass(frozen=True)
class DistillationConfig(fields.Table):
    """`[distillation]`: a teacher whose logits are followed besides the text.

    The loss is `(1 - weight) * cross entropy + weight * temperature**2 * KL`, of the
    teacher's and the student's distributions at that temperature.

    Args:
        teacher: str or None, path of a finished run's folder, or a KerasHub preset (a
            folder, or a handle such as "hf://..."), of the same tokens. None: none.
        temperature: float > 0, by which both models' logits are divided.
        weight: float in (0, 1), the teacher's share of the loss.
        top_k: int or None, of how many of the teacher's likeliest tokens the divergence
            is taken, both distributions over these alone. None: all tokens.
        teacher_dtype: str or None, what the teacher computes in, of a preset its
            weights too: "float32", "bfloat16", "float16" or a mixed one. None: as
            `run.dtype`.
        compare_without: bool, whether the model is also pruned and recovered without
            the teacher, on the same batches.
    """

    table = "distillation"
    teacher: str | None = fields.optional(fields.check_text)
    temperature: float = fields.positive(1.0)
    weight: float = fields.positive(0.5, below=1.0)
    top_k: int | None = fields.optional(fields.whole())
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
    """`[pruning]`: which neurons go, and when the model becomes narrow.

    Args:
        method: "sensitivity", "random", "activation" or "learned_mask". How the
            neurons that stay are found.
        ema_decay: float in [0, 1), the weight of the past in the moving average
            of the scores.
        row_reduce: "mean" or "max", how the weights of a neuron's row become one
            number.
        matrix_reduce: "mean" or "max", how a neuron's rows (three, or two without a
            gate) become one number.
        update_every: int, the mask changes every so many steps.
        compact: "end" (the model shrinks inside `fit` once pruning is done),
            "progressive" (at milestones before, too) or "off" (it stays masked;
            only the saved model is narrow).
    """

    table = "pruning"
    method: str = fields.choice("sensitivity", *METHODS)
    ema_decay: float = fields.number(
        0.4, minimum=0.0, maximum=1.0, exclude_maximum=True
    )
    row_reduce: Reduction = fields.choice("mean", "mean", "max")
    matrix_reduce: Reduction = fields.choice("max", "mean", "max")
    update_every: int = fields.integer(1, minimum=1)
    compact: Compact = fields.choice("end", *COMPACT)


@dataclasses.dataclass(frozen=True)
class DistributionConfig(fields.Table):
    """`[distribution]`: the devices of a run, on jax, in one process or several.

    Args:
        mesh: dict or None: `data`, devices along which the sequences of a step lie, and
            `model`, devices along which the kernels of each block are cut; each 1 by
            default, and their product all devices of all processes. None: Keras uses
            one device.
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

    Args:
        prompt: str or None, what it continues. None: how the validation text begins.
        tokens: int, tokens to write.
        temperature: float, 0 takes the likeliest token each time.
        top_k: int, draws only among so many likeliest tokens; more than there are:
            among all.
    """

    table = "sample"
    prompt: str | None = fields.optional(fields.check_text)
    tokens: int = fields.integer(320, minimum=1)
    temperature: float = fields.number(0.8, minimum=0.0)
    top_k: int = fields.integer(40, minimum=1)


@dataclasses.dataclass(frozen=True)
class RunSettings(fields.Table):
    """`[run]`: where the results go and what is measured.

    Args:
        output: str, the run folder. Default: `runs/` and the config's name.
        seed: int, of the weights, the batches and the sample.
        dtype: "float32", "mixed_bfloat16" or "mixed_float16": what layers compute in.
            Weights and the optimizer's state are float32 in each.
        rematerialize: bool, whether each block's activations are computed again in
            the backward pass: less memory, about a third more time.
        jit_compile: bool or None, as of `model.compile`. None: Keras decides.
        validate_every: int, steps between validations; divides both
            `budget.enlarge_steps` (so that the wide model is judged right
            before pruning) and the total.
        checkpoint_every: int or None, steps between checkpoints, a multiple of
            `validate_every`: a run that is killed loses at most so many. None: at
            every validation.
        keep_checkpoints: int, how many of the last are kept.
        tensorboard: bool, whether the run folder gets logs for TensorBoard (extra
            `tensorboard`).
        compare_from_scratch: bool, whether a narrow model is also trained from
            scratch on the same batches.
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
