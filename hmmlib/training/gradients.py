"""Compute the gradients of a batch in pretraining, in float32 or 16 bits, and on CUDA by replaying a graph."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from hmmlib.device import CUBLAS_WORKSPACE
from hmmlib.training.bert import logits_at

if TYPE_CHECKING:
    from transformers import BertForMaskedLM

WARM_UPS = 3
"""How many times a step is computed before it is recorded. In the first times, libraries choose their kernels."""


class Gradients:
    """A function of a batch that sets the gradients of all parameters, and returns the loss.

    Once `capture` has recorded a CUDA graph, which is the list of kernels that a step runs, a call replays it on the
    same memory. Gradients must then never be set to None, and shapes must not change.

    Args:
        network: The network.
        half: The 16-bit type of matrix products, or None for float32.
    """

    def __init__(self, network: BertForMaskedLM, half: torch.dtype | None = None):
        self.network = network
        self.half = half
        self.scaler = torch.amp.GradScaler(network.device.type, enabled=half == torch.float16)
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, ids: Tensor, positions: Tensor, target: Tensor) -> Tensor:
        """Set the gradients of a batch.

        Args:
            ids: Input ids, (n, T).
            positions: The positions that are predicted, (n, k).
            target: The tokens that stand there, (n, k).

        Returns:
            The mean loss in nats, on the device.
        """
        if self.graph is None:
            self.network.zero_grad(set_to_none=True)
            return self.compute(ids, positions, target)
        for recorded, value in zip(self.recorded_inputs, (ids, positions, target), strict=True):
            recorded.copy_(value)
        self.graph.replay()
        return self.recorded_loss

    def compute(self, ids: Tensor, positions: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss over all positions, and add its gradients to those of the parameters."""
        with torch.autocast(ids.device.type, self.half, enabled=self.half is not None):
            embeddings = self.network.get_input_embeddings()(ids)
            logits = logits_at(self.network, embeddings, positions)
        loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten())
        self.scaler.scale(loss).backward()
        return loss.detach()

    def capture(self, *inputs: Tensor) -> None:
        """Record the graph of a step, on CUDA.

        This draws random numbers for dropout, so set the state of the generator afterwards.

        Args:
            inputs: A batch, as a call takes it.
        """
        self.recorded_inputs = [value.clone() for value in inputs]
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for _ in range(WARM_UPS):
                self.network.zero_grad(set_to_none=True)
                self.compute(*self.recorded_inputs)
        torch.cuda.current_stream().wait_stream(side_stream)
        self.network.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.recorded_loss = self.compute(*self.recorded_inputs)


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Use kernels on CUDA that give the same sums each time, so that a resumed run ends as an undisturbed one does.

    This cannot be done if the process has used cuBLAS before without CUBLAS_WORKSPACE. Then there is a warning.
    """
    if device.type != "cuda":
        yield
        return
    deterministic = torch.utils.deterministic
    mode_before = torch.get_deterministic_debug_mode()
    fill_before = deterministic.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("error")  # Under "warn", attention keeps kernels that are not repeatable.
    deterministic.fill_uninitialized_memory = False  # It would cost a pass over every new tensor.
    try:
        if not _cublas_repeats(device):
            torch.set_deterministic_debug_mode(mode_before)
            warnings.warn(
                "A resumed run may differ in its last digits, because this program has multiplied matrices on the GPU "
                f"before. Set the environment variable {CUBLAS_WORKSPACE}=:4096:8 before that.",
                stacklevel=2,
            )
        with torch.cuda.device(device):
            yield
    finally:
        torch.set_deterministic_debug_mode(mode_before)
        deterministic.fill_uninitialized_memory = fill_before


def _cublas_repeats(device: torch.device) -> bool:
    """Tell whether torch allows products of matrices on a GPU while it demands that sums are the same each time."""
    matrix = torch.eye(2, device=device)
    try:
        torch.mm(matrix, matrix)
    except RuntimeError:
        return False
    return True
