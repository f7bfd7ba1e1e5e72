"""One run that leaves narrow models of several widths; runs apart beside it."""

import dataclasses

from benchmarks.paper.flops import stage_flops
from benchmarks.paper.plan import Pruning, Stage
from benchmarks.paper.rate import Rate
from benchmarks.paper.scale import SCALES, Scale

SCORES = (0.4, "mean", "max")


@dataclasses.dataclass(frozen=True)
class Steps:
    """How long each part of a run is.

    Attributes:
        enlarge: int, steps at full width.
        prune: int, steps down to each width.
        recover: int, steps of each branch, while its learning rate decays.
    """

    enlarge: int
    prune: int
    recover: int

    def times(self, factor: float) -> "Steps":
        """All parts longer or shorter."""
        return Steps(*(max(1, round(factor * n)) for n in dataclasses.astuple(self)))


@dataclasses.dataclass(frozen=True)
class Family:
    """What is compared.

    Attributes:
        scale: `Scale`.
        enlarged: int, neurons of the enlarged FFN.
        widths: tuple of int, neurons of the family's members, descending.
        steps: `Steps` of the one run.
        peaks: tuple of float, of the learning rates, in units of the scale's, among
            which each way to a width takes the best.
        shapes: tuple of str, of the learning rates of the runs apart and from scratch
            (keys of `SHAPES`), among which they take the best, too.
        peak, shape: of those the ones at hand.
    """

    scale: Scale
    enlarged: int
    widths: tuple[int, ...]
    steps: Steps
    peaks: tuple[float, ...] = (1.0,)
    shapes: tuple[str, ...] = ("annealed", "stable")
    peak: float = 1.0
    shape: str = "annealed"

    def trunk(self, widths, steps) -> list[Stage]:
        """The stages of a run that passes some widths, at a constant rate."""
        whole = steps.enlarge + steps.prune * len(widths)
        rate = self._rate(whole + 1, 1, decay=1)
        first = Stage(
            "enlarge", self.enlarged, steps.enlarge, 0, rate, "adamw", scores=SCORES
        )
        stages, width, done = [first], self.enlarged, steps.enlarge
        for target in widths:
            stages.append(
                dataclasses.replace(
                    first,
                    name="prune",
                    width=width,
                    steps=steps.prune,
                    first_batch=done,
                    rate=dataclasses.replace(rate, first=done + 1),
                    fresh=False,
                    pruning=Pruning("sensitivity", target, 0, steps.prune, 1, "end"),
                )
            )
            width, done = target, done + steps.prune
        return stages

    def branch(self, after: Stage, steps) -> Stage:
        """The recovery of the width that a stage of the trunk ends with."""
        done = after.first_batch + after.steps
        return dataclasses.replace(
            after,
            name="recover",
            width=after.pruning.target,
            steps=steps.recover,
            first_batch=done,
            rate=self._rate(done + steps.recover, done + 1, decay=steps.recover),
            pruning=None,
        )

    def together(self, steps) -> list[Stage]:
        """All stages of the one run and its branches."""
        trunk = self.trunk(self.widths, steps)
        return trunk + [self.branch(stage, steps) for stage in trunk[1:]]

    def apart(self, steps) -> dict[int, list[Stage]]:
        """The stages of a run for each width, each under one curve."""
        found = {}
        for width in self.widths:
            trunk = self.trunk([width], steps)
            stages = [*trunk, self.branch(trunk[-1], steps)]
            total = steps.enlarge + steps.prune + steps.recover
            whole = self._rate(total, 1, shape=self.shape)
            found[width] = [
                dataclasses.replace(
                    stage,
                    rate=dataclasses.replace(whole, first=stage.first_batch + 1),
                )
                for stage in stages
            ]
        return found

    def share(self) -> float:
        """How long the runs apart may be, in units of the one run's parts."""
        paid = self.flops(self.together(self.steps))
        low, high = 0.05, 1.0
        while high - low > 1e-3:
            middle = (low + high) / 2
            cost = self.flops(sum(self.apart(self.steps.times(middle)).values(), []))
            low, high = (middle, high) if cost <= paid else (low, middle)
        return low

    def scratch(self, width, flops) -> Stage:
        """A run from scratch for as many operations, under one curve."""
        stage = Stage("train", width, 1, 0, self._rate(1, 1), "adamw")
        steps = max(2, round(flops / self.flops([stage])))
        rate = self._rate(steps, 1, shape=self.shape)
        return dataclasses.replace(stage, steps=steps, rate=rate)

    def flops(self, stages) -> int:
        """Operations of stages."""
        return sum(stage_flops(stage, self.scale) for stage in stages)

    def _rate(self, total, first, decay=None, shape="stable"):
        scale = self.scale
        return Rate(
            shape,
            self.peak * scale.peak_learning_rate,
            self.peak * scale.end_learning_rate,
            total,
            min(scale.warmup_steps, total // 4),
            first,
            decay,
        )


#: Enlarged 1.5 to 4 times; 90 tokens a parameter of the narrowest in the trunk.
MAP_FAMILY = Family(
    SCALES["map"], 256, (171, 114, 64), Steps(1170, 390, 390), peaks=(1.0, 2.0, 4.0)
)
