"""A model that computes with the number of its neurons, `h / h.shape[-1]`, is refused.

Narrowed it would compute something else. It is followed twice on symbolic tensors, as
it is and as if it were narrower, and the numbers in its operations are compared.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence

import keras
import numpy as np

from keras_idea._finding.find import FFN
from keras_idea._graph.find import followed, has_code
from keras_idea._graph.group import Group
from keras_idea._groups.kinds import CHANNELS
from keras_idea._keras.channels import tell_shapes
from keras_idea._keras.layers import set_config_number, student_of, walk
from keras_idea._keras.symbolic import Call
from keras_idea._keras.variables import shaped
from keras_idea._signals import held_back
from keras_idea._surgery.own_config import calls_of, first_difference, set_widths
from keras_idea.errors import ArgumentError
from keras_idea.hub.families import is_backbone
from keras_idea.hub.ffn import known_ffns


def check_width_in_code(model: keras.Model, ffns: Sequence[FFN]) -> None:
    """Refuses FFNs of Dense layers of whose width the model's code makes a number.

    Likewise channels. What cannot be followed at another width is not judged.
    """
    found = [ffn for ffn in ffns if isinstance(ffn.weights, Group)]
    if not has_code(model):  # then no code but Keras's sees a number of channels
        found = [ffn for ffn in found if ffn.kind != CHANNELS]
    if not found or _difference(model, found) is None:
        return
    for ffn in found:
        operation = _difference(model, [ffn])
        if operation is not None:
            raise ArgumentError(
                f"The {ffn.units} of {ffn.name} cannot be pruned: the model computes "
                f"with their number, {ffn.hidden_dim} (in {operation}), so it would "
                "compute something else once it is narrow. Give the layer that number "
                "as an argument of its own, which its config holds, or leave it out: "
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
    half = [(ffn, max(1, ffn.hidden_dim // 2)) for ffn in ffns]
    channels = any(ffn.kind == CHANNELS for ffn in ffns)
    calls = functools.partial(_calls_of_channels if channels else calls_of, model)
    wide = calls()
    with _narrower(model, half):
        found = first_difference(wide, calls())
    # Code that does something else each time says nothing.
    return None if found and first_difference(wide, calls()) else found


def _calls_of_channels(model: keras.Model) -> list[Call] | None:
    """As `calls_of`, with layers followed that hold convolutions alone."""
    recordings = [followed(model), followed(model, training=True)]
    if any(recording.opaque for recording in recordings):
        return None
    return [call for recording in recordings for call in recording.calls]


def _tell_shapes(model: keras.Model) -> None:
    tell_shapes(student_of(model), followed(model))


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
        channels = any(ffn.kind == CHANNELS for ffn, _ in targets) and has_code(model)
        if channels:
            scopes.callback(_tell_shapes, model)
        for each in known:
            scopes.callback(each.tell_width)  # once the widths are as before
        widths = set()
        for ffn, width in targets:
            wide, held = ffn.hidden_dim, ffn.held_state
            widths |= {(wide, width), (held and held.full_dim or wide, width)}
            states = held.cuts() if held and ffn.holds_state else []
            # Before the shapes, so that layers are told once those are as before.
            scopes.callback(ffn.weights.set_hidden_dim, wide)
            for cut in [*ffn.held_cuts(), *states]:
                scopes.enter_context(shaped(cut.variable, cut.shape(width)))
                scopes.callback(cut.narrow_labels(np.arange(width)))
            ffn.weights.set_hidden_dim(width)
        for each in known:
            each.tell_width()
        if channels:
            _tell_shapes(model)
        changed, stuck = set_widths(model, widths)
        for layer, name, number in changed:
            scopes.callback(set_config_number, layer, name, number)
        yield stuck
