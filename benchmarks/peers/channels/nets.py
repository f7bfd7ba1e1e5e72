"""The two networks, written once, built in PyTorch and in Keras with the same names.

A network is a function of a builder and an input. `builder.unit` is a convolution
without bias, a normalization, and a ReLU.
"""

import keras
import numpy as np
import torch
from keras import layers
from torch import nn

from benchmarks.peers.channels import task

CLASSES = 10


def resnet(b, x):
    """Two residual blocks, the second with a stride and a convolution beside it."""
    x = b.unit("stem", x, 24)
    y = b.unit("a2", b.unit("a1", x, 24), 24, active=False)
    x = b.sum(x, y)
    y = b.unit("b2", b.unit("b1", x, 48, stride=2), 48, active=False)
    x = b.sum(b.unit("b0", x, 48, size=1, stride=2, active=False), y)
    return b.head(x)


def mobilenet(b, x):
    """Three inverted residual blocks with depthwise convolutions."""
    x = b.unit("stem", x, 24)
    for name, inside, filters, stride in (
        ("a", 72, 24, 1),
        ("b", 72, 32, 2),
        ("c", 96, 32, 1),
    ):
        y = b.unit(f"{name}1", x, inside, size=1)
        y = b.unit(f"{name}2", y, inside, stride=stride, depthwise=True)
        y = b.unit(f"{name}3", y, filters, size=1, active=False)
        x = b.sum(x, y, active=False) if stride == 1 else y
    return b.head(b.unit("last", x, 96, size=1))


NETS = {"ResNet": resnet, "MobileNet": mobilenet}


class _Maker:
    """Makes PyTorch's modules; `x` is the number of channels."""

    def __init__(self, modules, widths):
        self.modules, self.widths = modules, widths

    def unit(self, name, x, filters, size=3, stride=1, active=True, depthwise=False):
        filters = x if depthwise else self.widths.get(name, filters)
        how = {"stride": stride, "padding": size // 2, "bias": False}
        groups = x if depthwise else 1
        self.modules[name] = nn.Conv2d(x, filters, size, groups=groups, **how)
        norm = {"eps": task.NORM_EPSILON, "momentum": 1 - task.NORM_MOMENTUM}
        self.modules[f"{name}_norm"] = nn.BatchNorm2d(filters, **norm)
        return filters

    def sum(self, x, y, active=True):
        return x

    def head(self, x):
        self.modules["head"] = nn.Linear(x, CLASSES)


class _Caller:
    """Calls PyTorch's modules; `x` is a tensor."""

    def __init__(self, modules):
        self.modules = modules

    def unit(self, name, x, filters, size=3, stride=1, active=True, depthwise=False):
        x = self.modules[f"{name}_norm"](self.modules[name](x))
        return torch.relu(x) if active else x

    def sum(self, x, y, active=True):
        return torch.relu(x + y) if active else x + y

    def head(self, x):
        return self.modules["head"](x.mean((2, 3)))


class TorchNet(nn.Module):
    """A network of PyTorch, of `(n, 1, height, width)`."""

    def __init__(self, name, widths=None):
        super().__init__()
        self.describe, self.parts = NETS[name], nn.ModuleDict()
        self.describe(_Maker(self.parts, widths or {}), 1)

    def forward(self, x):
        """Logits."""
        return self.describe(_Caller(self.parts), x)

    def widths(self):
        """dict: name of each convolution -> channels that it makes."""
        parts = self.parts.items()
        return {k: m.out_channels for k, m in parts if isinstance(m, nn.Conv2d)}


class _KerasMaker:
    """Makes Keras's layers, padded as PyTorch pads."""

    def unit(self, name, x, filters, size=3, stride=1, active=True, depthwise=False):
        if size > 1:
            x = layers.ZeroPadding2D(size // 2)(x)
        how = {"use_bias": False, "name": name}
        if depthwise:
            x = layers.DepthwiseConv2D(size, stride, **how)(x)
        else:
            x = layers.Conv2D(filters, size, stride, **how)(x)
        norm = {"epsilon": task.NORM_EPSILON, "momentum": task.NORM_MOMENTUM}
        x = layers.BatchNormalization(name=f"{name}_norm", **norm)(x)
        return layers.ReLU()(x) if active else x

    def sum(self, x, y, active=True):
        x = layers.Add()([x, y])
        return layers.ReLU()(x) if active else x

    def head(self, x):
        return layers.Dense(CLASSES, name="head")(layers.GlobalAveragePooling2D()(x))


def keras_net(name):
    """The same network of stock Keras layers, of images of any size."""
    inputs = keras.Input((None, None, 1))
    return keras.Model(inputs, NETS[name](_KerasMaker(), inputs))


def to_numpy(value):
    """An array of a Keras variable or of a PyTorch tensor."""
    return np.array(keras.ops.convert_to_numpy(value))


def weights_of(model):
    """dict: a Keras network's weights, as PyTorch orders their axes."""
    found = {}
    for layer in model.layers:
        values = [to_numpy(variable) for variable in layer.weights]
        if isinstance(layer, layers.DepthwiseConv2D):
            values = [values[0].transpose(2, 3, 0, 1)]
        elif isinstance(layer, layers.Conv2D):
            values = [values[0].transpose(3, 2, 0, 1)]
        elif isinstance(layer, layers.Dense):
            values[0] = values[0].T
        if values:
            found[layer.name] = values
    return found


def as_torch(name, model):
    """A PyTorch network that computes what a Keras network computes."""
    weights = weights_of(model)
    widths = {key: len(each[0]) for key, each in weights.items()}
    net = TorchNet(name, widths)
    with torch.no_grad():
        for key, values in weights.items():
            part = net.parts[key]
            into = [part.weight, part.bias]
            if isinstance(part, nn.BatchNorm2d):
                into += [part.running_mean, part.running_var]
            for tensor, value in zip(into, values, strict=False):
                tensor.copy_(torch.from_numpy(value))
    return net.eval()
