"""Where something is computed, and how: devices, the bits of a network's products, loops compiled for CPUs, threads."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from threading import Lock, current_thread, main_thread
from types import ModuleType

import numpy as np
import torch


def as_name(name: str) -> str:
    """`name` where some machine may have such a device; ValueError otherwise."""
    if not isinstance(name, str) or not re.fullmatch(r"auto|(cpu|cuda|mps)(:\d{1,2})?", name):
        raise ValueError(f"device must be one of auto, cpu, cuda, mps, or cuda:N, not {name!r}")
    return name


def pick(name: str = "auto") -> torch.device:
    """The device of that name; with "auto" the first there is of CUDA, MPS and the CPU.

    ValueError for an unknown name, or a device that this machine does not have.
    """
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if as_name(name) == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if there[kind]))
    device = torch.device(name)
    if not there[device.type] or (device.index or 0) >= max(1, torch.cuda.device_count()):
        present = ", ".join(kind for kind in there if there[kind])
        raise ValueError(f"device {name!r} is not on this machine, which has {present}")
    return device


PRECISIONS = ("single", "half", "float16")
"""Matrix products in float32; in 16 bits where the device is CUDA; in float16 on any device, slowly on a CPU."""


def sixteen_bits(device: torch.device, precision: str) -> torch.dtype | None:
    """The 16-bit type to pretrain with at one of PRECISIONS, None for float32.

    "half" is bfloat16 where the GPU computes with it, else float16.
    """
    if precision == "float16":
        return torch.float16
    if precision == "single" or device.type != "cuda":
        return None
    with torch.cuda.device(device):
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def name(device: torch.device) -> str:
    """What the device is called: the GPU's own name, or the type."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Within it this library's warnings are one line each, "hmmlib: …"; those of others stay as they are."""
    before, library = warnings.formatwarning, Path(__file__).parent

    def in_one_line(message, category, filename, lineno, line=None) -> str:
        if library in Path(filename).parents:
            return f"hmmlib: {' '.join(str(message).split())}\n"
        return before(message, category, filename, lineno, line)

    warnings.formatwarning = in_one_line
    try:
        yield
    finally:
        warnings.formatwarning = before


class Interrupts:
    """Whether work is to end at its next step, and whether a Ctrl-C sets that flag instead of raising at once."""

    asked = held = False


def ask_to_stop(*_) -> None:
    """End at the next step. It can be a signal's handler."""
    Interrupts.asked = True


def stop_if_interrupted() -> None:
    """KeyboardInterrupt where that was asked for: for loops to call between two steps, where work can be kept."""
    if Interrupts.asked:
        raise KeyboardInterrupt


@contextmanager
def interrupts_between_steps() -> Iterator[None]:
    """Within it, also as a decorator, the first Ctrl-C sets a flag for `stop_if_interrupted`: nothing is raised within
    a step, nor in an import that would swallow it. A second one does what it would have done without this.

    Signals arrive in a process's main thread: in another thread, and where Ctrl-C is ignored, nothing is changed.
    """
    before = signal.getsignal(signal.SIGINT)
    if Interrupts.held or current_thread() is not main_thread() or not callable(before):
        yield
        return

    def first(*_) -> None:
        ask_to_stop()
        signal.signal(signal.SIGINT, before)
        os.write(2, b"stopping after this step\n")  # no stream of Python's may be written to in a handler

    Interrupts.held = True
    signal.signal(signal.SIGINT, first)
    try:
        yield
        stop_if_interrupted()  # it came after the last step
    finally:
        signal.signal(signal.SIGINT, before)
        Interrupts.asked = Interrupts.held = False


@cache
def _announce_compiling() -> None:
    print("hmmlib: compiling its loops for this machine, once; some 15 seconds", file=sys.stderr, flush=True)


@cache
def loops(name: str) -> ModuleType | None:
    """A module of compiled loops, loaded when first needed; None where numba is missing or cannot work."""
    try:
        from numba.core import event

        class Listener(event.Listener):
            def on_start(self, event) -> None:
                _announce_compiling()

            def on_end(self, event) -> None:
                pass

        event.register("numba:compile", Listener())
        return importlib.import_module(name)
    except ImportError as error:
        if (error.name or "").startswith("hmmlib"):
            raise
        return None
    except RuntimeError:  # numba finds no folder in which it may keep what it compiles
        return None


def uninitialized(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of any values, on the CPU. Unlike torch, numpy asks for large pages: a sixth of the time."""
    return torch.from_numpy(np.empty(shape, torch.empty(0, dtype=dtype, device="cpu").numpy().dtype))


class _OneThread:
    """A context in which products of matrices stay on the thread that asks, until the last who is in it leaves."""

    def __init__(self):
        self.lock, self.users, self.libraries = Lock(), 0, None

    def __enter__(self) -> None:
        with self.lock:
            if not self.libraries:  # only now is the one that multiplies loaded
                from threadpoolctl import ThreadpoolController

                self.libraries = ThreadpoolController()
            if not self.users:
                self.limit = self.libraries.limit(limits=1, user_api="blas")
            self.users += 1

    def __exit__(self, *_) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.limit.restore_original_limits()


ONE_THREAD = _OneThread()


@contextmanager
def flushing(dtype: torch.dtype) -> Iterator[None]:
    """In float32, what is below the smallest normal number counts as zero meanwhile, in this thread and its own.

    Some processors take twenty times as long for such products. Where the caller has chosen this, it stays so.
    """
    chosen = dtype != torch.float32 or np.float32(1e-45) * np.float32(1) == 0
    if not chosen:
        torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if not chosen:
            torch.set_flush_denormal(False)


def shares(n: int, threads: int) -> list[slice]:
    """The indices 0 … n - 1 in equal parts, at most one for each thread."""
    parts = [slice(n * k // threads, n * (k + 1) // threads) for k in range(threads)]
    return [part for part in parts if part.stop > part.start]


def side_by_side(work: Callable[[slice], None], n: int, threads: int) -> None:
    """work(share) for equal shares of n sequences, a thread for each."""
    first, *rest = shares(n, threads)
    with ONE_THREAD, ThreadPoolExecutor(len(rest)) if rest else nullcontext() as pool:
        others = pool.map(work, rest) if rest else []  # a pool would take longer than a short call
        work(first)
        list(others)
