"""A model that computes with the number of its neurons, `h / h.shape[-1]`, is refused.

Narrowed it would compute something else. It is followed twice on symbolic tensors, as
it is and as if it were narrower, and the numbers in its operations are compared.
"""

import contextlib
from collections.abc import Iterator, Sequence

import keras

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN
from keras_idea.groups.dense import DenseGroup
from keras_idea.hub.families import is_backbone
from keras_idea.hub.ffn import known_ffns
from keras_idea.keras_private.layers import set_config_number, walk
from keras_idea.keras_private.variables import shaped
from keras_idea.signals import held_back
from keras_idea.surgery.own_config import calls_of, first_difference, set_widths


def check_width_in_code(model: keras.Model, ffns: Sequence[FFN]) -> None:
    """Refuses FFNs of Dense layers of whose width the model's code makes a number.

    What cannot be followed at another width is not judged.
    """
    found = [ffn for ffn in ffns if isinstance(ffn.weights, DenseGroup)]
    if not found or _difference(model, found) is None:
        return
    for ffn in found:
        operation = _difference(model, [ffn])
        if operation is not None:
            raise ArgumentError(
                f"The neurons of {ffn.name} cannot be pruned: the model computes with "
                f"their number, {ffn.hidden_dim} (in {operation}), so it would compute "
                "something else once it is narrow. Give the layer that number as an "
                "argument of its own, which its config holds, or leave the FFN out: "
                f"groups=lambda ffn: ffn.name != {ffn.name!r}."
            )


@held_back()  # for the model says meanwhile that it is narrower
def stuck_blocks(
    model: keras.Model, targets: Sequence[tuple[FFN, int]]
) -> list[keras.layers.Layer]:
    """The blocks whose configs would not make them again once they are narrow."""
    narrower = [(ffn, target) for ffn, target in targets if target < ffn.hidden_dim]
    if not narrower:
        return []
    with _narrower(model, narrower) as stuck:
        return stuck


@held_back()  # for the model says meanwhile that it is narrower
def _difference(model: keras.Model, ffns: Sequence[FFN]) -> str | None:
    """The first operation that is given another number in the narrower model."""
    wide, half = calls_of(model), [(ffn, max(1, ffn.hidden_dim // 2)) for ffn in ffns]
    with _narrower(model, half):
        found = first_difference(wide, calls_of(model))
    # Code that does something else each time says nothing.
    return None if found and first_difference(wide, calls_of(model)) else found


@contextlib.contextmanager
def _narrower(
    model: keras.Model, targets: Sequence[tuple[FFN, int]]
) -> Iterator[list[keras.layers.Layer]]:
    """A scope in which a model says that its FFNs are narrower; its values stay.

    Yields the blocks whose configs cannot follow.
    """
    backbones = [layer for layer in walk(model) if is_backbone(layer)]
    known = [ffn for backbone in backbones for ffn in known_ffns(backbone)]
    with contextlib.ExitStack() as scopes:
        for each in known:
            scopes.callback(each.tell_width)  # once the widths are as before
        widths = set()
        for ffn, width in targets:
            wide, held = ffn.hidden_dim, ffn.held_state
            widths |= {(wide, width), (held and held.full_dim or wide, width)}
            states = held.cuts() if held and ffn.masks_itself else []
            for cut in [*ffn.held_cuts(), *states]:
                scopes.enter_context(shaped(cut.variable, cut.shape(width)))
            scopes.callback(ffn.weights.set_hidden_dim, wide)
            ffn.weights.set_hidden_dim(width)
        for each in known:
            each.tell_width()
        changed, stuck = set_widths(model, widths)
        for layer, name, number in changed:
            scopes.callback(set_config_number, layer, name, number)
        yield stuck
