"""Devices that a run can be planned for without having one.

Peak rates are dense bfloat16's, memory is that of a chip; from the makers' pages
(cloud.google.com/tpu/docs, nvidia.com/data-center), 2026.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from types import MappingProxyType

from keras_idea.errors import ConfigError
from keras_idea.validation import did_you_mean


@dataclasses.dataclass(frozen=True)
class DeviceKind:
    """A kind of device."""

    flops: float  # operations a second at most, bfloat16
    memory: float  # bytes
    tpu: bool = False  # whether libtpu compiles for it


DEVICE_KINDS: Mapping[str, DeviceKind] = MappingProxyType(
    {
        "v5e": DeviceKind(197e12, 16 * 2**30, tpu=True),
        "v5p": DeviceKind(459e12, 95 * 2**30, tpu=True),
        "v6e": DeviceKind(918e12, 32 * 2**30, tpu=True),
        "a100": DeviceKind(312e12, 80e9),
        "h100": DeviceKind(989e12, 80e9),
        "h200": DeviceKind(989e12, 141e9),
    }
)


@dataclasses.dataclass(frozen=True)
class Target:
    """Devices of one kind."""

    name: str  # such as "v5e:4x4"
    kind: DeviceKind
    devices: int


def parse_target(text: str) -> Target:
    """The devices that a kind, and of TPUs its topology, stands for; else one device.

    Example:
    >>> parse_target("v5e:4x4").devices
    16
    """
    found = re.fullmatch(r"(\w+)(?::(\d+(?:x\d+)*))?", text)
    kind = DEVICE_KINDS.get(found[1]) if found else None
    if found is None or kind is None:
        raise ConfigError(
            f"`--target` must be one of {', '.join(DEVICE_KINDS)}; a TPU may have a "
            f"topology, such as v5e:4x4. Received: {text!r}."
            f"{did_you_mean(text.partition(':')[0], DEVICE_KINDS)}"
        )
    return Target(text, kind, math.prod(map(int, (found[2] or "1").split("x"))))


def parse_mesh(text: str) -> dict[str, int]:
    """The axes of a mesh, written as devices along the data and along the model.

    Example:
    >>> parse_mesh("16x4")
    {'data': 16, 'model': 4}
    """
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if found is None:
        raise ConfigError(
            "`--devices` must be DATAxMODEL, two whole numbers such as 16x4. Received: "
            f"{text!r}."
        )
    return {"data": int(found[1]), "model": int(found[2])}
