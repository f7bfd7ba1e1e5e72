"""A cell of the study: one way to make a checkpoint smaller, and what it costs."""

import dataclasses
import functools
from collections.abc import Callable

import keras

import keras_idea as ki
from benchmarks.checkpoints.followed import NATS, distiller
from benchmarks.checkpoints.texts import HELD_OUT, WINDOW, Texts
from keras_idea.evaluation import TokenScorer, perplexity
from keras_idea.hub.inputs import text_inputs, token_inputs

SHARES = (0.8, 0.67, 0.5)
LENGTH, BATCH = 128, 4  # of a training step
CALIBRATION = 128  # rows of LENGTH tokens: 16 thousand
#: Arm -> whether it has a teacher, and block outputs.
ARMS = {
    "gradual": (True, True),
    "gradual, logits": (True, False),  # what `keras-idea train` does
    "refit": (True, True),
    "refit, logits": (True, False),
    "refit by weights, logits": (True, False),  # `Activation(by_weights=True)`
    "refit, text alone": (False, False),
    "control": (True, True),  # the wide model, tuned on the same tokens
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is done to a checkpoint.

    Attributes:
        share: float, of the neurons that stay.
        how: str, a method for one step ("activation", "magnitude", "sensitivity",
            "random"), with ", by weights" or ", refit"; "14 blocks", their number; an
            arm of `ARMS`.
        tokens: int, of the recovery.
        peak: float, its learning rate.
        seed: int, of its batches.
    """

    share: float
    how: str
    tokens: int = 0
    peak: float = 0.0
    seed: int = 0

    @property
    def name(self) -> str:
        """str, of its file."""
        trained = f"-{self.tokens}-{self.peak:g}-{self.seed}" if self.tokens else ""
        return (
            f"{self.share:g}-{self.how.replace(', ', '+').replace(' ', '_')}{trained}"
        )


def untrained(name: str) -> list[Cell]:
    """Each method in one step, with the refit where it can have one.

    Of Gemma 3 also 14 of its 18 blocks, as many as were published: those that KerasHub
    can leave out, since its global attention is in every sixth block.
    """
    ways = ("activation", "sensitivity", "magnitude")
    ways = (*ways, *(f"{way}, refit" for way in ways), "random")
    blocks = [Cell(0.78, "14 blocks")] if name == "gemma3" else []
    return [
        Cell(1.0, "as it is"),
        *blocks,
        *(Cell(share, how) for share in (0.67, 0.5, 0.8) for how in ways),
    ]


def recovered(tokens: int, peaks: tuple[float, ...], share: float) -> list[Cell]:
    """Each arm at each peak."""
    return [Cell(share, arm, tokens, peak) for arm in ARMS for peak in peaks]


def carry_out(
    cell: Cell, load: Callable, texts: Texts, refits: dict | None = None
) -> keras.Model:
    """The model of a cell.

    `refits` keeps what several arms begin with: the weights of refitted models.
    """
    refits = {} if refits is None else refits
    keras.utils.set_random_seed(cell.seed)
    model = load()
    width = width_of(model, cell.share)
    if cell.how in ARMS:
        model = _recovered(cell, model, width, load, texts, refits)
    elif cell.share < 1.0:
        model = _one_step(model, width, cell.how, texts)
    return model


def judged(model: keras.Model, texts: Texts) -> dict:
    """Dict of a model's figures."""
    return {"parameters": model.count_params()} | {
        name: judge(model, texts, name) for name in HELD_OUT
    }


def judge(model, texts: Texts, name: str) -> float:
    """Nats per token of a held-out text, in windows of `WINDOW`, stride `WINDOW`."""
    scorer = TokenScorer(model, WINDOW, functools.partial(token_inputs, model))
    options = {"stride": WINDOW, "start_id": texts.start_id}
    found = perplexity(scorer, texts.judged(name), **options)
    return found.nats / found.tokens


def inputs(ids):
    """Token ids as a KerasHub model takes them."""
    return text_inputs(("token_ids", "padding_mask"), ids)


def width_of(model, share):
    """Neurons of a share, a multiple of 32."""
    full = model.backbone.intermediate_dim
    return full if share == 1.0 else 32 * round(share * full / 32)


def _one_step(model, width, how, texts):
    rows = texts.rows(CALIBRATION, LENGTH, seed=0)
    data = inputs(rows[:, :-1]), rows[:, 1:]
    if how.endswith(" blocks"):
        return ki.shrink(model, {"blocks": int(how.split()[0])}, data, batch_size=8)
    method, *ways = how.split(", ")
    if "by weights" in ways:
        method = ki.methods.Activation(by_weights=True)
    options = {"method": method, "refit": "refit" in ways, "batch_size": 8}
    if method == "sensitivity":
        model.compile(loss=NATS)
    return ki.shrink(model, {"neurons": width}, data, **options)


def _recovered(cell, model, width, load, texts, refits):
    steps = cell.tokens // (LENGTH * BATCH)
    callbacks = []
    if cell.how.startswith("gradual"):
        callbacks = [ki.IdeaPruneCallback(width, 0, max(1, steps // 4))]
    elif cell.how.startswith("refit"):
        by_weights = cell.how.startswith("refit by weights")
        how = "activation, by weights, refit" if by_weights else "activation, refit"
        model = _refitted(model, width, how, texts, refits)
    _fit(model, cell, texts, steps, callbacks, load)
    return model


def _refitted(model, width, how, texts, refits):
    if (width, how) not in refits:
        model = _one_step(model, width, how, texts)
        refits[width, how] = model.get_weights()
        return model
    model = _one_step(model, width, "random", texts)  # for its shapes
    model.set_weights(refits[width, how])
    return model


def _fit(model, cell, texts, steps, callbacks, teacher):
    """Trains a model as the arm `cell.how` does; `teacher()` makes its teacher."""
    rate = ki.CosineDecay(cell.peak, cell.peak / 100, steps, warmup_steps=steps // 12)
    optimizer = keras.optimizers.AdamW(rate)
    model.compile(optimizer, NATS, weighted_metrics=None)
    rows = texts.rows(steps * BATCH, LENGTH, seed=cell.seed + 1)
    fitted, (logits, features) = model, ARMS[cell.how]
    if logits:
        sample = inputs(rows[:BATCH, :-1]) if features else None
        fitted = distiller(teacher(), model, sample)
        fitted.compile(optimizer, NATS)
    batches = (rows[i : i + BATCH] for i in range(0, len(rows), BATCH))
    keras.Model.fit(
        fitted,
        ((inputs(batch[:, :-1]), batch[:, 1:]) for batch in batches),
        steps_per_epoch=steps,
        shuffle=False,
        callbacks=callbacks,
        verbose=2,
    )
