"""Copies of tensors that a model or a head owns, and whether torch takes a derivative forwards."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def copied(tensor: Tensor) -> Tensor:
    """Copy a tensor. The copy can take part in gradients later, even if it is made in torch's inference mode."""
    if not torch.is_inference_mode_enabled():
        return tensor.clone()
    with torch.inference_mode(False):
        return tensor.clone().detach()


def carries_tangent(tensor: Tensor) -> bool:
    """Tell whether torch may take a derivative forwards (from inputs to outputs) through a tensor.

    It does so through the dual tensors of `torch.autograd.forward_ad`, and through tensors that `torch.func` wraps.
    The attribute `requires_grad` of such a tensor is False, so it does not tell.
    """
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return True
    return forward_ad.unpack_dual(tensor).tangent is not None
