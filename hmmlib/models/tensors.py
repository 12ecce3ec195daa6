"""Copies of tensors that a model or a head owns."""

from __future__ import annotations

import torch
from torch import Tensor


def copied(tensor: Tensor) -> Tensor:
    """Copy a tensor. The copy can take part in gradients later, even if it is made in torch's inference mode."""
    if not torch.is_inference_mode_enabled():
        return tensor.clone()
    with torch.inference_mode(False):
        return tensor.clone().detach()
