"""Tokens per second of a pretraining step, and the fraction of the device's measured peak.

python benchmarks/pretraining_step.py --preset paper --steps 200 [--device cuda] [--profile]

The peak is that of a large matrix product in the same number of bits, measured first. Operations are counted from the
shapes: twice the multiplications of every matrix product of the forward pass, and three times that for both passes.
"""

from __future__ import annotations

import time
from typing import Annotated

import torch
import typer

from hmmlib import backend
from hmmlib.experiments.specs import TrialSpec
from hmmlib.experiments.trials import build_network, draw_model
from hmmlib.training.pretraining import Run


def operations(spec: TrialSpec) -> float:
    """Floating-point operations of a step, forward and backward: the last layer runs at masked positions only."""
    width, hidden = spec.width, max(1, round(spec.masked * spec.length))
    attention = 4 * spec.length * width  # scores and weighted values, for each query
    layer = 24 * width**2 + attention  # queries, keys, values, output and the two of the feed-forward part
    last = 4 * width**2 * spec.length + hidden * (20 * width**2 + attention)
    head = hidden * (2 * width**2 + 2 * width * (spec.n_tokens + spec.specials))
    return 3.0 * spec.batch * ((spec.layers - 1) * spec.length * layer + last + head)


def wait(device: torch.device) -> None:
    """Until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def peak(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Operations per second of a size × size matrix product of random numbers: the best of five."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(6):
        wait(device)
        start = time.perf_counter()
        a @ b
        wait(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def main(
    preset: str = "quick",
    steps: Annotated[int, typer.Option(min=1)] = 100,
    device: str = "auto",
    profile: Annotated[bool, typer.Option("--profile", help="where the time goes, by kernel")] = False,
) -> None:
    spec, there = TrialSpec(preset), backend.pick(device)
    spec = TrialSpec(preset, documents=min(spec.documents, 40), steps=spec.steps if spec.documents else steps + 30)
    network = build_network(spec).to(there).train()
    start = time.perf_counter()
    run = Run(network, draw_model(spec), spec.pretraining(), 0)
    run.warm_up()
    for _ in range(10):
        run.step()
    wait(there)
    ready = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(steps):
        run.step()
    wait(there)
    seconds = (time.perf_counter() - start) / steps
    dtype = backend.sixteen_bits(there, spec.precision) or torch.float32
    best = peak(there, dtype, 8192 if there.type == "cuda" else 2048)
    rate = operations(spec) / seconds
    print(f"{backend.name(there)}, {torch.get_num_threads()} threads, torch {torch.__version__}, {dtype}")
    print(f"{preset}: {spec.layers} layers, {spec.width} wide, {spec.batch} × {spec.length} tokens a step")
    print(
        f"ready after {ready:.1f} s; {1000 * seconds:.2f} ms a step, {spec.batch * spec.length / seconds:,.0f} tokens/s"
    )
    print(f"{rate / 1e12:.3g} of {best / 1e12:.3g} TFLOP/s: {rate / best:.0%} of the peak")
    print(f"a whole run of {TrialSpec(preset).steps} steps: {TrialSpec(preset).steps * seconds / 60:.1f} min")
    if profile:
        from torch.profiler import ProfilerActivity

        kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if there.type == "cuda" else [])
        with torch.profiler.profile(activities=kinds) as profiled:
            for _ in range(min(20, steps)):
                run.step()
            wait(there)
        key = "self_cuda_time_total" if there.type == "cuda" else "self_cpu_time_total"
        print(profiled.key_averages().table(sort_by=key, row_limit=25, max_name_column_width=60))


if __name__ == "__main__":
    typer.run(main)
