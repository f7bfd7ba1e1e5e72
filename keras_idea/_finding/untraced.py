"""The FFNs of KerasHub's backbones that are not found by following the data."""

import operator
from typing import Any

from keras_idea._graph.group import Group, group_of_dense
from keras_idea._groups.experts import ExpertGroup
from keras_idea.hub.families import UNTRACED, class_of_hub, why_refused


def untraced_groups(backbone: Any) -> list[tuple[Any, Group | ExpertGroup]]:
    """The groups that a table has of a backbone's blocks, each with what holds it.

    Empty for a backbone that no row knows, or that cannot be pruned.
    """
    row = UNTRACED.get(class_of_hub(backbone))
    if row is None or why_refused(backbone) is not None:
        return []
    groups: list[tuple[Any, Group | ExpertGroup]] = []
    for block in backbone.transformer_layers:
        names = row.names.split()
        if not row.experts:
            *makers, reader = [operator.attrgetter(name)(block) for name in names]
            groups.append((block, group_of_dense(makers, reader, False)))
            continue
        holder, _, bank = row.inside.rpartition(".")
        owner = getattr(operator.attrgetter(holder)(block), bank, None)
        if owner is not None:  # else a block without experts
            groups.append((owner, ExpertGroup(owner, names, row.packing)))
    return groups
