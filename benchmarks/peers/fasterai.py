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
from fasterai.core.schedule import agp  # user
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

HOW = (
    "three fits; PruneCallback with the schedule agp (a cubic) and the criterion "
    "large_final (magnitude) in the second alone"
)


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


def make_pruning(shape, model, contexts):
    """The callback that prunes in the course of one `fit`."""
    # user
    return PruneCallback(
        shape.ratio,
        agp,
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


def train(shape, clock):
    """The whole run in three fits, as the callback prunes from a fit's first step."""
    learner = make_learner(shape, shape.hidden_dim, [ClockCallback(clock)])
    batches = make_batches(shape.steps)
    pruning = make_pruning(shape, learner.model, batches[0][0])
    # user
    fit(learner, batches[: shape.enlarge_steps])
    fit(learner, batches[shape.enlarge_steps : shape.end_step], [pruning])
    # end
    fit(learner, batches[shape.end_step :])
    return weights_of(learner.model)


def moments(shape):
    """The first prune of a fit, looked at before and after."""
    learner = make_learner(shape, shape.hidden_dim)
    batches = make_batches(15)
    pruning = make_pruning(shape, learner.model, batches[0][0])
    before, after = StateCallback(-50), StateCallback(50)
    fit(learner, batches[:5])
    fit(learner, batches[5:10], [before, pruning, after])
    last = learner_state(learner)
    fit(learner, batches[10:])
    result = compare(before.kept, after.kept, last)
    result["trained on"] = compare(last, last, learner_state(learner))["trained on"]
    return result


WAYS = {"PruneCallback": child.Way(HOW, train, moments)}

if __name__ == "__main__":
    packages = ["torch", "fastai", "fasterai", "torch-pruning", "numpy"]
    child.main(__file__, train_plain, WAYS, packages)
