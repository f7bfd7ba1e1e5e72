"""fasterai on a network of PyTorch: its callback in fastai's Learner."""

import functools

from benchmarks.peers import torchvision_ops  # noqa: F401

# isort: split
import torch
from fastai.callback.core import Callback
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.optimizer import Adam
from fasterai.core.criteria import large_final
from fasterai.core.schedule import agp
from fasterai.prune.prune_callback import PruneCallback
from torch.nn.functional import cross_entropy

from benchmarks.peers.channels import contestants, task


class _Rate(Callback):
    """The task's learning rate of each step, over several fits."""

    order = 70

    def __init__(self, stages):
        self.stages, self.step = stages, 0

    def before_batch(self):
        """Sets it."""
        rate = task.cosine(self.stages.rate, self.step, self.stages.after)
        self.opt.set_hypers(lr=float(rate))
        self.step += 1


def _loaders(batches):
    pairs = [(contestants.tensors(x), torch.from_numpy(y)) for x, y in batches]
    return DataLoaders(*(DataLoader(part, bs=None) for part in (pairs, [])))


def train(net, batches, stages):
    """Two fits: the callback prunes in the first, by its schedule agp."""
    optimizer = functools.partial(
        Adam,
        mom=task.BETAS[0],
        sqr_mom=task.BETAS[1],
        eps=task.EPSILON,
        wd=task.WEIGHT_DECAY,
    )
    learner = Learner(
        _loaders([]),
        net.train(),
        loss_func=cross_entropy,
        opt_func=optimizer,
        lr=stages.rate,
        train_bn=True,
        wd_bn_bias=True,
        cbs=[_Rate(stages)],
    )
    learner.remove_cbs(learner.progress)
    pruning = PruneCallback(
        1.0 - task.SHARE,
        agp,
        "local",
        large_final,
        ignored_layers=[net.parts["head"]],
        example_inputs=contestants.tensors(batches[0][0][:2]),
    )
    for part, callbacks in (
        (batches[: stages.prune], [pruning]),
        (batches[stages.prune :], []),
    ):
        learner.dls = _loaders(part)
        with learner.no_logging():
            learner.fit(1, cbs=callbacks)
    return net.eval()
