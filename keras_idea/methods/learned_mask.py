"""Sheared LLaMA's method: masks are learned under a constraint."""

import zlib
from collections.abc import Sequence

import keras
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.functional.hard_concrete import MAX_SPARSITY, hard_concrete_mask
from keras_idea.methods.mask_probe import MaskProbe, Multipliers
from keras_idea.methods.method import Decision, Job, Method
from keras_idea.validation import check_int, check_number, plural


class LearnedMask(Method):
    r"""Learns a hard concrete mask for each FFN's neurons, from `begin_step` on.

    In every train step a mask is drawn and multiplies the hidden activations.
    Evaluation uses the deterministic mask with exactly `target_dim` neurons. The masks
    minimize the loss plus

    $$\frac1N \sum_{i=1}^N \lambda_1 (s_i - t) + \lambda_2 (s_i - t)^2$$

    over the N layers. Here `s_i` is the expected sparsity and `t` its target, which
    grows linearly over the first steps. The multipliers start at 0 and ascend. After
    `prune_steps` steps the deterministic mask stays. Its soft values are folded into
    the rows of down, so the model computes exactly what the masked one does.

    If a run stops before the end, it keeps its full width and forgets the masks.

    Args:
        seed: int >= 0. The seed of the masks' noise and initial values. Defaults to 0.
        mask_learning_rate: float >= 0. The masks' learning rate at the beginning.
            Defaults to 1.0.
        multiplier_learning_rate: float >= 0. The multipliers' learning rate at the
            beginning. Defaults to 1.0.
        warmup_share: float in [0, 1]. The fraction of `prune_steps` over which the
            target sparsity grows. Defaults to 0.2.

    Raises:
        ValueError: If an argument is outside its range. When `fit` begins: if the
            sparsity exceeds 0.953, or if the run begins after the masks should be
            learned. If the model is trained in several replicas. If the optimizer
            scales the loss (mixed_float16, `loss_scale_factor`), which hides the size
            of the gradient from the mask.

    Example:
    >>> method = LearnedMask(seed=1)
    >>> prune = ki.IdeaPruneCallback(
    ...     96, begin_step=500, prune_steps=250, method=method
    ... )

    Notes:
        The backward pass trains masks and multipliers, with an AdamW of their own
        (betas 0.9 and 0.95, epsilon 1e-8, no decay). Its rates fall by a cosine to 0
        over `prune_steps`. The model's optimizer trains only the weights, and clipping
        by the global norm sees only their gradients.

    Source: Sheared LLaMA (arXiv 2310.06694), princeton-nlp/LLM-Shearing.
    """

    name = "learned_mask"
    reads_hidden = True

    def __init__(
        self,
        seed: int = 0,
        mask_learning_rate: float = 1.0,
        multiplier_learning_rate: float = 1.0,
        warmup_share: float = 0.2,
    ) -> None:
        self.seed = check_int("seed", seed, minimum=0)
        self.mask_learning_rate = check_number("mask_learning_rate", mask_learning_rate)
        self.multiplier_learning_rate = check_number(
            "multiplier_learning_rate", multiplier_learning_rate
        )
        self.warmup_share = check_number("warmup_share", warmup_share, 0.0, 1.0)

    def decision_step(self, begin_step: int, prune_steps: int) -> int:
        """int, `begin_step + prune_steps`."""
        return begin_step + prune_steps

    def check(self, jobs: Sequence[Job], model: keras.Model, start: int) -> None:
        """Raises an error for what masks cannot reach or learn; see `Method.check`."""
        for job in jobs:
            _check_sparsity(job)
        end_step = jobs[0].begin_step + jobs[0].prune_steps
        if start >= end_step:
            raise ArgumentError(
                f"Method 'learned_mask' learns up to step {end_step} (begin_step + "
                f"prune_steps), but this run begins at step {start}. Begin later."
            )
        _check_gradient(model)

    def make_probes(self, jobs: Sequence[Job]) -> list[MaskProbe]:
        """Returns one `MaskProbe` per job."""
        steps = jobs[0].prune_steps
        multipliers = Multipliers(self.multiplier_learning_rate, steps)
        return [
            MaskProbe(
                job.ffn.hidden_dim,
                job.target_dim,
                job.begin_step,
                job.prune_steps,
                # Not Python's `hash`, which differs between processes.
                stream=zlib.crc32(f"{self.seed}/{job.index}".encode()),
                learning_rate=self.mask_learning_rate,
                warmup_share=self.warmup_share,
                multipliers=multipliers if job is jobs[0] else None,
            )
            for job in jobs
        ]

    def connect(self, probes: Sequence[MaskProbe]) -> None:
        """Lets the probes share one pair of multipliers."""
        for probe in probes:
            probe.constrain_with(probes)

    def decide(self, model: keras.Model, jobs: Sequence[Job]) -> list[Decision]:
        """Returns the deterministic masks, with soft values; see `Method.decide`."""
        return [_decision(job) for job in jobs]


def _decision(job: Job) -> Decision:
    probe = job.ffn.state.probe
    if not probe.has_learned():
        raise ArgumentError(
            f"Method 'learned_mask' has learned nothing of {job.ffn.name}: every "
            f"gradient of its mask was NaN or infinite. Received: {job.prune_steps} "
            "steps. Check the data and the learning rate."
        )
    log_alpha = probe.log_alpha.value
    soft = hard_concrete_mask(log_alpha, job.target_dim, alive=job.ffn.mask.value)
    soft = ops.convert_to_numpy(soft)
    return Decision((soft > 0).astype("float32"), scale=soft)


def _check_sparsity(job: Job) -> None:
    hidden_dim, target_dim = job.ffn.hidden_dim, job.target_dim
    if 1 - target_dim / hidden_dim > MAX_SPARSITY:
        least = int((1 - MAX_SPARSITY) * hidden_dim) + 1
        raise ArgumentError(
            f"Method 'learned_mask' cannot prune {job.ffn.name} from {hidden_dim} to "
            f"{plural(target_dim, 'neuron')}: log alpha is clamped to [log 0.01, log "
            "100], so each neuron stays with a probability of at least 4.7 %, and the "
            f"expected sparsity cannot exceed {MAX_SPARSITY:.3f}. Keep at least "
            f"{plural(least, 'neuron')}, or use another method."
        )


def _check_gradient(model: keras.Model) -> None:
    """Refuses what makes the gradients in the layers other than the loss's."""
    optimizer = model.optimizer
    scaled = getattr(optimizer, "loss_scale_factor", None) is not None
    if scaled or hasattr(optimizer, "inner_optimizer"):
        raise ArgumentError(
            "Method 'learned_mask' weighs the gradient of the loss against its "
            f"constraint, and {type(optimizer).__name__} scales the loss by a "
            "factor that the layers do not know. Use 'mixed_bfloat16' or 'float32' "
            "instead of 'mixed_float16', and no loss_scale_factor."
        )
    strategy = getattr(model, "distribute_strategy", None)
    replicas = getattr(strategy, "num_replicas_in_sync", 1)
    if replicas > 1:
        raise ArgumentError(
            f"Method 'learned_mask' would see a share of the batch on each of the "
            f"{replicas} replicas of {type(strategy).__name__} and learn other masks "
            "there. Use one replica, or jax with keras.distribution."
        )
