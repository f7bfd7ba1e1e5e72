"""Ways to come by models of several widths at equal FLOPs, and what a step costs."""

import dataclasses
import itertools

from benchmarks.paper.family_plan import Family
from benchmarks.paper.flops import forward_flops, step_flops
from keras_idea.elastic.draw import Sample, draw
from keras_idea.hub.widths import FULL

#: The share of the FLOPs for which a way that sorts trains at full width alone.
ALONE = 0.25


@dataclasses.dataclass(frozen=True)
class Joint:
    """All widths in one `fit` with `ki.ElasticCallback`.

    Attributes:
        name: str, unique among the ways.
        sample, teacher: as `ElasticCallback` takes them; the names are `names_of`.
        sorts: bool, whether the neurons are sorted once, after `ALONE` of the FLOPs.
    """

    name: str
    sample: Sample = "turn"
    teacher: str | None = None
    sorts: bool = False


@dataclasses.dataclass(frozen=True)
class Branches:
    """One run that is pruned from width to width; a branch recovers from each."""

    name: str


@dataclasses.dataclass(frozen=True)
class Scratch:
    """A model of one width alone.

    Attributes:
        name: str, unique among the ways.
        width: int, neurons of each FFN.
        share: float, of the FLOPs that the other ways have for all widths.
    """

    name: str
    width: int
    share: float


Way = Joint | Branches | Scratch

TURN, SORTED, BRANCHES = "turn", "turn, sorted", "one run, branches"


def names_of(family: Family) -> dict[str, int]:
    """The names and widths that `ElasticCallback` gets: all but the widest.

    Example:
    >>> names_of(MAP_FAMILY)
    {'w114': 114, 'w64': 64}
    """
    return {f"w{width}": width for width in family.widths[1:]}


def each_name(width: int) -> str:
    """The name of the model of a width that has an equal share of the FLOPs."""
    return f"scratch {width}, an equal share"


def all_name(width: int) -> str:
    """The name of the model of a width that has all FLOPs."""
    return f"scratch {width}, all FLOPs"


def ways(family: Family) -> dict[str, Way]:
    """All ways by name, in the order in which they are carried out."""
    names = list(names_of(family))
    odds = {"full": 0.5, **dict.fromkeys(names, 0.5 / len(names))}
    joint = [
        Joint(TURN),
        Joint(SORTED, sorts=True),
        Joint("turn, self-teacher", teacher="self"),
        Joint("sandwich", sample="sandwich"),
        Joint("full in half of the steps", sample=odds),
        Joint("sandwich, self-teacher", sample="sandwich", teacher="self"),
        Joint("full in half, sorted", sample=odds, sorts=True),
    ]
    equal = 1 / len(family.widths)
    scratch = [Scratch(each_name(w), w, equal) for w in family.widths]
    scratch += [Scratch(all_name(w), w, 1.0) for w in family.widths]
    found = [*joint[:5], Branches(BRANCHES), *scratch, *joint[5:]]
    return {way.name: way for way in found}


def paid_flops(family: Family) -> int:
    """What every way may spend on all widths together: what the branches cost."""
    return family.flops(family.together(family.steps))


def draw_flops(way: Joint, family: Family, drawn: tuple[str, ...]) -> int:
    """Operations of a step that computes some widths.

    Each costs the step of a model of that width. A self-teacher costs a forward pass at
    full width where the step has none.
    """
    width = {FULL: family.widths[0], **names_of(family)}
    cost = sum(step_flops(family.scale, width[name]) for name in drawn)
    if way.teacher is not None and FULL not in drawn:
        cost += forward_flops(family.scale, family.widths[0])
    return cost


def joint_steps(way: Joint, family: Family, seed: int) -> tuple[int, int, int]:
    """Steps at full width alone, steps in all, and what they cost.

    The widths are drawn as the callback draws them, until the FLOPs are spent.
    """
    paid = paid_flops(family)
    full = step_flops(family.scale, family.widths[0])
    alone = round(ALONE * paid / full) if way.sorts else 0
    spent, names = alone * full, list(reversed(names_of(family)))
    for step in itertools.count(alone):
        drawn = draw(way.sample, names, seed, step)
        cost = draw_flops(way, family, drawn)
        if spent + cost > paid:
            return alone, step, spent
        spent += cost
    raise AssertionError
