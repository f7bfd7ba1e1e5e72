"""Lets torchvision be imported, without its operators, beside a CPU build of PyTorch.

The torchvision of PyPI is built for CUDA; beside a CPU build of PyTorch its import
fails for want of its operators. fastai imports it, and nothing here uses it.
"""

import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor a) -> Tensor")
