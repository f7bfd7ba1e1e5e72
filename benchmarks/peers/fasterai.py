"""fasterai: its callback in the `fit` of fastai's Learner."""

import functools

from benchmarks.peers import torchvision_ops  # noqa: F401

# isort: split
from fastai.callback.core import Callback
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.optimizer import Adam
from fasterai.core.criteria import large_final  # user
from fasterai.core.schedule import Schedule, agp, sched_agp  # user
from fasterai.prune.prune_callback import PruneCallback  # user
from torch.nn.functional import cross_entropy

from benchmarks.peers import child, task
from benchmarks.peers.moments import compare
from benchmarks.peers.torch_plain import (
    make_batches,
    make_model,
    state_of,
    weights_of,
    width_of,
)

HOW = "PruneCallback(context='local', criteria=large_final), magnitude; {}"
THREE_FITS = "three fits, the callback in the second alone, its schedule agp (a cubic)"
ONE_FIT = "one fit, a schedule of one's own: agp in the middle third"


class ClockCallback(Callback):
    """Tells the clock of each step."""

    order = 100

    def __init__(self, clock):
        self.clock = clock

    def after_batch(self):
        """Notes the loss and the width."""
        self.clock.step(self.loss.item(), width_of(self.model))


class StateCallback(Callback):
    """Keeps the state of model and optimizer as it is right before the step."""

    def __init__(self, order):
        self.order, self.kept = order, None

    def before_step(self):
        """Keeps the first one that is met."""
        self.kept = self.kept or learner_state(self.learn)


def learner_state(learner):
    """Weights and moments, as `moments.compare` takes them."""
    return state_of(learner.model, learner.opt, ("grad_avg", "sqr_avg"))


def make_learner(shape, width, callbacks=()):
    """A plain Learner with the task's AdamW, which shows nothing."""
    optimizer = functools.partial(
        Adam,
        mom=task.BETAS[0],
        sqr_mom=task.BETAS[1],
        eps=task.EPSILON,
        wd=task.WEIGHT_DECAY,
    )
    learner = Learner(
        loaders([]),
        make_model(shape, width),
        loss_func=cross_entropy,
        opt_func=optimizer,
        lr=task.LEARNING_RATE,
        cbs=list(callbacks),
    )
    learner.remove_cbs(learner.progress)
    return learner


def loaders(batches):
    """The batches of one `fit`; nothing to validate on."""
    return DataLoaders(*(DataLoader(part, bs=None) for part in (batches, [])))


def fit(learner, batches, callbacks=()):
    """One epoch over the batches, silent."""
    learner.dls = loaders(batches)
    with learner.no_logging():
        learner.fit(1, cbs=list(callbacks))


def make_pruning(shape, model, contexts, schedule):
    """The callback that prunes in the course of one `fit`."""
    # user
    return PruneCallback(
        shape.ratio,
        schedule,
        "local",
        large_final,
        ignored_layers=[model.head, *(block.down for block in model.blocks)],
        example_inputs=contexts,
    )
    # end


def train_plain(shape, width, clock):
    """The plain script: the whole run of a model whose width stays, in one fit."""
    learner = make_learner(shape, width, [ClockCallback(clock)])
    fit(learner, make_batches(shape.steps))


def train_in_three(shape, clock):
    """The whole run in three fits, as agp prunes from a fit's first step."""
    learner = make_learner(shape, shape.hidden_dim, [ClockCallback(clock)])
    batches = make_batches(shape.steps)
    pruning = make_pruning(shape, learner.model, batches[0][0], agp)
    # user: three fits
    fit(learner, batches[: shape.enlarge_steps])
    fit(learner, batches[shape.enlarge_steps : shape.end_step], [pruning])
    # end
    fit(learner, batches[shape.end_step :])
    return weights_of(learner.model)


def train_in_one(shape, clock):
    """The whole run in one fit; the callback ignores where a `Schedule` starts."""
    learner = make_learner(shape, shape.hidden_dim, [ClockCallback(clock)])
    batches = make_batches(shape.steps)

    # user: one fit
    def in_the_middle(start, end, position):
        since = position * shape.steps - shape.enlarge_steps
        return sched_agp(start, end, min(max(since / shape.prune_steps, 0.0), 1.0))

    # end
    schedule = Schedule(in_the_middle)  # user: one fit
    pruning = make_pruning(shape, learner.model, batches[0][0], schedule)
    fit(learner, batches, [pruning])  # user: one fit
    return weights_of(learner.model)


def moments(shape):
    """The first prune of a fit, looked at before and after."""
    learner = make_learner(shape, shape.hidden_dim)
    batches = make_batches(15)
    pruning = make_pruning(shape, learner.model, batches[0][0], agp)
    before, after = StateCallback(-50), StateCallback(50)
    fit(learner, batches[:5])
    fit(learner, batches[5:10], [before, pruning, after])
    last = learner_state(learner)
    fit(learner, batches[10:])
    result = compare(before.kept, after.kept, last)
    result["trained on"] = compare(last, last, learner_state(learner))["trained on"]
    return result


WAYS = {
    "three fits": child.Way(HOW.format(THREE_FITS), train_in_three, moments),
    "one fit": child.Way(HOW.format(ONE_FIT), train_in_one, moments),
}

if __name__ == "__main__":
    packages = ["torch", "fastai", "fasterai", "torch-pruning", "numpy"]
    child.main(__file__, train_plain, WAYS, packages)
