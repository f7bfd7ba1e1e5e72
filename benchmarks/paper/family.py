"""One run, a family: `python -m benchmarks.paper.family --seeds 5`.

Masks never revive, so every width passed on the way down is a subnetwork of the one
before. One run is enlarged, then pruned to one width after another at a constant
learning rate; from each width a branch recovers while its rate decays. Beside it a run
for each width alone, all together at the same FLOPs, and narrow models from scratch.
Writes family.md and family.json.
"""

import argparse
import dataclasses
import json
import pathlib
import sys

from benchmarks.paper.build import new_model
from benchmarks.paper.carry_out import Evaluator
from benchmarks.paper.compile_cache import kept_compilations
from benchmarks.paper.flops import stage_flops
from benchmarks.paper.paper_table import SeededRow, to_json, to_markdown
from benchmarks.paper.plan import Pruning, Stage
from benchmarks.paper.rate import Rate
from benchmarks.paper.run_stage import run_stage
from benchmarks.paper.scale import SCALES, Scale
from benchmarks.record import REPOSITORY
from keras_idea.data import load_text
from keras_idea.files import write_atomically

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
        peak: float, of all learning rates, in units of the scale's.
    """

    scale: Scale
    enlarged: int
    widths: tuple[int, ...]
    steps: Steps
    peak: float = 1.0

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
        """The stages of a run for each width."""
        found = {}
        for width in self.widths:
            trunk = self.trunk([width], steps)
            found[width] = [*trunk, self.branch(trunk[-1], steps)]
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
        """A run from scratch for as many operations."""
        stage = Stage("train", width, 1, 0, self._rate(1, 1), "adamw")
        steps = max(2, round(flops / self.flops([stage])))
        return dataclasses.replace(stage, steps=steps, rate=self._rate(steps, 1))

    def flops(self, stages) -> int:
        """Operations of stages."""
        return sum(stage_flops(stage, self.scale) for stage in stages)

    def _rate(self, total, first, decay=None):
        scale = self.scale
        return Rate(
            "stable",
            self.peak * scale.peak_learning_rate,
            self.peak * scale.end_learning_rate,
            total,
            min(scale.warmup_steps, total // 4),
            first,
            decay,
        )


def carry_out(family: Family, corpus, seed: int, judge) -> dict[str, dict]:
    """Bits a byte of every member, made together, apart and from scratch.

    Args:
        family: `Family`.
        corpus: `Corpus`.
        seed: int.
        judge: function of a `Checkpoint` that returns bits a byte.

    Returns:
        dict of a row's name to a dict: bits, width, tokens and flops.
    """
    scale, steps, found = family.scale, family.steps, {}
    tokens = scale.tokens_a_step

    def note(name, end, stages):
        found[f"{end.width} neurons, {name}"] = {
            "bits": judge(end),
            "width": end.width,
            "tokens": sum(stage.steps for stage in stages) * tokens,
            "flops": family.flops(stages),
        }

    trunk, end = family.trunk(family.widths, steps), None
    for i, stage in enumerate(trunk):
        end = run_stage(stage, scale, corpus, seed, end)
        if i:
            branch = family.branch(stage, steps)
            member = run_stage(branch, scale, corpus, seed, end)
            note("one run", member, [*trunk[: i + 1], branch])
    for stages in family.apart(steps.times(family.share())).values():
        end = None
        for stage in stages:
            end = run_stage(stage, scale, corpus, seed, end)
        note("a run each", end, stages)
        alone = family.scratch(end.width, family.flops(stages))
        note("from scratch", run_stage(alone, scale, corpus, seed), [alone])
    return found


def rows(family: Family, results: dict[int, dict]) -> list[SeededRow]:
    """The table's rows of all seeds; each of a width against a run each."""
    made = []
    for width in family.widths:
        for name in ("a run each", "one run", "from scratch"):
            key = f"{width} neurons, {name}"
            records = {seed: found[key] for seed, found in results.items()}
            one = next(iter(records.values()))
            made.append(
                SeededRow(
                    key,
                    {seed: record["bits"] for seed, record in records.items()},
                    None if name == "a run each" else f"{width} neurons, a run each",
                    one["width"],
                    one["tokens"],
                    one["flops"],
                )
            )
    return made


#: 1.5 to 4 times the narrowest, 90 tokens a parameter of it in the trunk.
MAP_FAMILY = Family(SCALES["map"], 256, (171, 114, 64), Steps(1170, 390, 390), peak=1.0)


def main(arguments=None, family: Family = MAP_FAMILY) -> int:
    """Carries out what is missing, seed by seed, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="how many (default 5)")
    parser.add_argument("--text", default=str(REPOSITORY.parent / "shared/data/text"))
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=REPOSITORY / "benchmarks/results/paper/family",
    )
    parser.add_argument("--runs", type=pathlib.Path, default=REPOSITORY / "runs/map")
    given = parser.parse_args(arguments)
    corpus = dataclasses.replace(load_text(given.text), description="shared/data/text")
    judge = Evaluator(family.scale, corpus).bits_per_byte
    cells = given.output / "cells.json"
    given.output.mkdir(parents=True, exist_ok=True)
    results = json.loads(cells.read_text()) if cells.exists() else {}
    with kept_compilations(given.runs / "compiled"):
        for seed in range(given.seeds):
            if str(seed) not in results:
                results[str(seed)] = carry_out(family, corpus, seed, judge)
                write_atomically(cells, json.dumps(results, indent=1) + "\n")
            write(given.output, family, {int(s): r for s, r in results.items()})
            print(f"seed {seed}", flush=True)
    return 0


def write(folder, family, results) -> None:
    """Writes both files."""
    table = rows(family, results)
    widths = ", ".join(map(str, family.widths))
    title = f"One run, a family: {family.enlarged} neurons to {widths}"
    narrow = new_model(family.scale, family.widths[-1]).count_params()
    total = family.flops(family.together(family.steps))
    notes = [
        f"{family.steps} in one run, {family.share():.3f} of them in each run alone: "
        f"{total / 1e12:.2f} TFLOPs either way. FLOPs of a member of the one run are "
        "those of the way to it. From scratch: for the FLOPs of the run each. The "
        f"narrowest has {narrow:,} parameters. Learning rates are constant, and decay "
        "in the recovery."
    ]
    write_atomically(folder / "family.md", to_markdown(title, table, notes))
    facts = {"steps": dataclasses.asdict(family.steps), "share": family.share()}
    write_atomically(folder / "family.json", to_json(title, table, facts))


if __name__ == "__main__":
    sys.exit(main())
