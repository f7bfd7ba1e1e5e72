"""What the pruning callback says: what `fit` has made of a model, and warnings."""

import warnings
from collections.abc import Callable, Sequence

import keras
import numpy as np

from keras_idea import processes
from keras_idea.finding.budget import plain_parameters
from keras_idea.finding.find import FFN
from keras_idea.groups.kinds import KINDS
from keras_idea.hub.families import is_backbone, is_task
from keras_idea.keras_private.callbacks import warn_user
from keras_idea.keras_private.layers import walk
from keras_idea.step.track import Track
from keras_idea.surgery.checks import backbones_of, layers_of
from keras_idea.typing import Tensor
from keras_idea.validation import plural


def warn_of_nothing_to_prune(targets: Sequence[tuple[FFN, int]], began: bool) -> None:
    """Warns if every FFN has its target width already.

    Not of a narrow model whose run `began` to prune: then it is as it should be.
    """
    if all(target >= ffn.full_dim for ffn, target in targets):
        warn_user(
            "Nothing will be pruned: the target is the width that every FFN has. "
            f"Received: a target of {_widths([n for _, n in targets])}. Lower it, or "
            "train without the IdeaPruneCallback."
        )
    elif not began and all(target == ffn.width for ffn, target in targets):
        before = _widths([ffn.full_dim for ffn, _ in targets])
        warn_user(
            "Nothing is left to prune: every FFN has its target width. A fraction "
            f"counts from the width before any narrowing, {before}. Received: a target "
            f"of {_widths([n for _, n in targets])}. Give a smaller target."
        )


def warn_of_lost_backbones(model: keras.Model, ffns: Sequence[FFN]) -> None:
    """Warns of blocks of a KerasHub backbone that cannot be found, so not be told."""
    known = {
        id(part) for backbone in backbones_of(model, ffns) for part in walk(backbone)
    }
    narrowed = set(map(id, layers_of(ffns)))
    for block in walk(model):
        if _is_block(block) and id(block) not in known:
            if narrowed.isdisjoint(map(id, walk(block))):
                continue
            warn_user(
                f"{type(block).__name__} '{block.name}' becomes narrower, and the "
                "config of its KerasHub backbone cannot follow, because that backbone "
                f"was not found: a file of it could not be loaded. Received: model "
                f"'{model.name}', which holds the block without the backbone. If you "
                "will save the backbone, call `backbone(backbone.input)` once before "
                "`fit`, as KerasHub's tasks do."
            )
            return


def _is_block(layer: keras.layers.Layer) -> bool:
    """Whether it looks like a block that a backbone made, which numbers them."""
    module = type(layer).__module__
    if not module.startswith("keras_hub.") or is_backbone(layer) or is_task(layer):
        return False
    return ".models." in module or "layer_" in layer.name


_SUMS = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)


def warn_of_means(ffns: Sequence[FFN]) -> None:
    """Warns of a regularizer that is another number once neurons are cut out."""
    for ffn in ffns:
        half = max(1, ffn.hidden_dim // 2)
        regularizers = [
            (cut.variable.regularizer, tuple(cut.variable.shape), cut.shape(half))
            for cut in ffn.cuts()
        ]
        for layer in ffn.weights.makers:
            regularizers.append(
                (layer.activity_regularizer, (2, ffn.hidden_dim), (2, half))
            )
        for regularizer, wide, narrow in regularizers:
            if regularizer is None or isinstance(regularizer, _SUMS):
                continue
            name = getattr(regularizer, "__name__", type(regularizer).__name__)
            if not _same_without_zeros(regularizer, wide, narrow):
                warn_user(
                    f"{ffn.name} has the regularizer {name}, a mean over neurons or "
                    "over pairs of neurons: when the model becomes narrower it is of "
                    "fewer, and the loss changes at once. Use a sum over weights (L1, "
                    'L2) instead, or compact="off".'
                )
                return


def _same_without_zeros(
    regularizer: Callable[[Tensor], Tensor],
    wide: tuple[int, ...],
    narrow: tuple[int, ...],
) -> bool:
    """Whether it has the same value with and without neurons of zeros.

    True of one that takes other shapes only: nothing is known of it.
    """
    few = np.random.default_rng(0).normal(size=narrow).astype("float32")
    padded = np.zeros(wide, "float32")
    padded[tuple(map(slice, narrow))] = few
    try:
        one, other = (
            float(keras.ops.convert_to_numpy(regularizer(keras.ops.array(a))))
            for a in (padded, few)
        )
    except Exception:  # of the user's own code
        return True
    return abs(one - other) <= 1e-4 * abs(one)


def warn_of_jumps(tracks: Sequence[Track], begin_step: int, start: int) -> None:
    """Warns where the schedule of a run lies behind its first step."""
    if start <= begin_step:
        return
    jumps = [
        f"{t.ffn.name} from {t.began} to "
        f"{plural(t.schedule(start), KINDS[t.ffn.kind].unit)}"
        for t in tracks
        # A run that continues from a checkpoint has the width of its last step.
        if t.began > t.schedule(start - 1)
    ]
    if jumps:
        more = f" and {len(jumps) - 1} more" if len(jumps) > 1 else ""
        warnings.warn(
            f"begin_step={begin_step} lies before this run's first step "
            f"({start}), so the width drops immediately: {jumps[0]}{more}.",
            stacklevel=2,
        )


def warn_of_unfinished(
    ffns: Sequence[FFN], begin_step: int, end_step: int, step: int
) -> None:
    """Warns that training ended, at `step`, before pruning did."""
    counts = _by_kind(ffns, lambda ffn: ffn.width)
    widths = ", ".join(f"{what} is {n}" for what, n in counts.items())
    state = f"The {widths}, masked and not narrowed"
    masked = any(ffn.width < ffn.hidden_dim for ffn in ffns)
    behind = step > begin_step and any(ffn.width < ffn.full_dim for ffn in ffns)
    if not masked and not behind:
        state = f"The model was not pruned, and its {widths}"
    warn_user(
        f"Training ended at step {step}, and pruning would have ended at step "
        f"{end_step} (begin_step={begin_step}). {state}. Call `fit` again with the "
        "callback to continue, or `keras_idea.compact(model)` for this width."
    )


class Narrowed:
    """Widths and parameters of a model, before and after it is narrowed."""

    def __init__(self, model: keras.Model, ffns: Sequence[FFN]) -> None:
        self._ffns = list(ffns)
        self._before = self._figures(model)

    def tell(self, model: keras.Model, step: int, verbose: int | str) -> None:
        """Prints a line beside the progress bar of Keras, unless `verbose` is 0."""
        if not verbose or not processes.is_first():
            return
        (widths, parameters), (narrow, fewer) = self._before, self._figures(model)
        parts = ", ".join(f"{what} {n} to {narrow[what]}" for what, n in widths.items())
        # A progress bar may stand on this line.
        print(
            f"{'' if verbose == 2 else chr(10)}Narrowed at step {step}: "
            f"{parts}, {parameters:,} to {fewer:,} parameters."
        )

    def tell_masked(self, verbose: int | str) -> None:
        """Prints, when a fit ends, which FFNs hold pruned neurons as zeros."""
        if not verbose or not processes.is_first():
            return
        masked = [ffn for ffn in self._ffns if ffn.width < ffn.hidden_dim]
        if masked:
            widths = _by_kind(masked, lambda ffn: ffn.hidden_dim)
            active = _by_kind(masked, lambda ffn: ffn.width)
            parts = [f"{what} {n}, {active[what]} active" for what, n in widths.items()]
            print(
                f"Masked: {', '.join(parts)}; the others are "
                "zeros. keras_idea.compact(model) makes the narrow model. Training on "
                "without the callback may bring them back."
            )

    def _figures(self, model: keras.Model) -> tuple[dict[str, str], int]:
        widths = _by_kind(self._ffns, lambda ffn: ffn.hidden_dim)
        return widths, plain_parameters(model)


def _by_kind(ffns: Sequence[FFN], count: Callable[[FFN], int]) -> dict[str, str]:
    """What is said of each kind -> the counts of those of that kind."""
    return {
        KINDS[kind].width: _widths(counts)
        for kind in KINDS
        if (counts := [count(ffn) for ffn in ffns if ffn.kind == kind])
    }


def _widths(widths: Sequence[int]) -> str:
    """A width that all have, or those of all, or of the first few."""
    if len(set(widths)) == 1:
        return str(widths[0])
    parts = ", ".join(map(str, widths[:6]))
    return f"[{parts}]" if len(widths) <= 6 else f"[{parts}, ...]"
