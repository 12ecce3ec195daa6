"""Where something is computed, and how: devices, precision, settings, interrupts, compiled loops, threads."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from threading import Lock, RLock, current_thread, main_thread
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

# Devices and precision


def as_name(name: str) -> str:
    """Return the name of a device, if some machine may have such a device.

    Raises:
        ValueError: no machine has a device of that name.
    """
    if not isinstance(name, str) or not re.fullmatch(r"auto|(cpu|cuda|mps)(:\d{1,2})?", name):
        raise ValueError(f"device must be one of auto, cpu, cuda, mps, or cuda:N, not {name!r}")
    return name


def pick(name: str = "auto") -> torch.device:
    """Return a device of this machine.

    Args:
        name: `cpu`, `cuda`, `cuda:N` or `mps`. With `auto` the machine's fastest kind of device is taken.

    Raises:
        ValueError: the name is unknown, or this machine has no such device.

    Example:
        >>> pick("cpu")
        device(type='cpu')
    """
    counts = {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": 1 if torch.backends.mps.is_available() else 0,
        "cpu": 1,
    }
    present = [kind for kind, count in counts.items() if count > 0]
    if as_name(name) == "auto":
        return torch.device(present[0])
    device = torch.device(name)
    index = device.index or 0
    if index >= counts[device.type]:
        raise ValueError(f"device {name!r} is not on this machine, which has {', '.join(present)}")
    return device


def name(device: torch.device) -> str:
    """Return the product name of a CUDA GPU, or `cpu` or `mps` for these devices."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


PRECISIONS = ("single", "half", "float16")
"""The precisions of a network's matrix products.

With "single" they are in float32. With "half" they are in 16 bits on a CUDA GPU, and in float32 elsewhere. With
"float16" they are in float16 on any device, which is slow on a CPU.
"""


def sixteen_bits(device: torch.device, precision: str) -> torch.dtype | None:
    """Return the 16-bit type in which a network is pretrained at one of PRECISIONS, or None for float32.

    On a CUDA GPU "half" is bfloat16 if the GPU computes with that type, and float16 otherwise.
    """
    if precision == "float16":
        return torch.float16
    if precision == "single" or device.type != "cuda":
        return None
    with torch.cuda.device(device):
        has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if has_bfloat16 else torch.float16


# Settings of the process


class Setting(NamedTuple):
    """A setting of the process that changes what torch computes."""

    read: Callable[[], Any]
    """Returns the present value."""
    write: Callable[[Any], None]
    """Sets another value."""
    own: Any
    """What this library computes with, which is torch's own default."""


def _precision_of_products(backend) -> Setting:
    """Return the setting of whether a backend may round products of float32 matrices.

    Torch's value "none" means that nobody has allowed it, so it is read as "ieee", which forbids it.
    """

    def read() -> str:
        precision = backend.matmul.fp32_precision
        return "ieee" if precision == "none" else precision

    return Setting(read, partial(setattr, backend.matmul, "fp32_precision"), "ieee")


def flushes_denormals() -> bool:
    """Tell whether this thread counts numbers below the smallest normal float32 as zero."""
    with np.errstate(all="ignore"):
        return bool(np.float32(1e-45) * np.float32(1) == 0)


SETTINGS = [
    Setting(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    Setting(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 0),
    Setting(flushes_denormals, torch.set_flush_denormal, False),
    _precision_of_products(torch.backends.mkldnn),
    _precision_of_products(torch.backends.cuda),
    # Each of these allows further ways to compute, and torch takes the fastest one.
    Setting(
        partial(getattr, torch.backends.mkldnn, "enabled"), partial(setattr, torch.backends.mkldnn, "enabled"), True
    ),
    Setting(torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp, True),
    Setting(torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp, True),
    Setting(torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp, True),
    Setting(torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp, True),
]


CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""The environment variable that fixes the size of cuBLAS's workspace, so that its sums are the same each time.

Torch reads it when it first uses cuBLAS.
"""


TURNS = RLock()
"""A lock by which threads that draw or train take turns.

All threads share the settings above and torch's own generator, so two of them must not draw or train at a time.
"""


@contextmanager
def without_autocast() -> Iterator[None]:
    """Switch the caller's autocast off, so that tensors keep their types. This is a context or a decorator."""
    with ExitStack() as stack:
        for kind in ("cpu", "cuda", "mps"):
            if torch.is_autocast_enabled(kind):
                # Within another autocast, torch would keep rounded weights and use them after the weights have changed.
                stack.enter_context(torch.autocast(kind, enabled=False, cache_enabled=False))
        yield


@contextmanager
def own_settings() -> Iterator[None]:
    """Draw and train by the library's own settings. This is a context or a decorator.

    The results then depend neither on the settings of the process nor on a context of torch around the call. For
    example, a program may have chosen another default dtype or device, less precise products, autocast or inference
    mode. Afterwards everything is as it was before. If another thread enters this context, it waits for its turn.
    """
    with ExitStack() as stack:
        stack.enter_context(TURNS)
        stack.enter_context(np.errstate(all="warn", under="ignore"))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(without_autocast())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if CUBLAS_WORKSPACE not in os.environ:
            os.environ[CUBLAS_WORKSPACE] = ":4096:8"
            stack.callback(os.environ.pop, CUBLAS_WORKSPACE, None)
        for setting in SETTINGS:
            value_before = setting.read()
            if value_before != setting.own:
                setting.write(setting.own)
                stack.callback(setting.write, value_before)
        yield


# Warnings and interrupts


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Print each warning of this library as one line that begins with "hmmlib:". This is a context.

    Warnings of other libraries stay as they are.
    """
    format_before = warnings.formatwarning
    library = Path(__file__).parent

    def in_one_line(message, category, filename, lineno, line=None) -> str:
        if library not in Path(filename).parents:
            return format_before(message, category, filename, lineno, line)
        text = " ".join(str(message).split())
        return f"hmmlib: {text}\n"

    warnings.formatwarning = in_one_line
    try:
        yield
    finally:
        warnings.formatwarning = format_before


class Interrupts:
    """The state of interrupts in this process."""

    asked = False
    """Whether work is to end at its next step."""
    held = False
    """Whether a Ctrl-C sets `asked` instead of raising KeyboardInterrupt at once."""


def ask_to_stop(*_) -> None:
    """Ask work to end at its next step. This function can be the handler of a signal."""
    Interrupts.asked = True


def stop_if_interrupted() -> None:
    """Raise KeyboardInterrupt if work is to end. Loops call this between two steps, when their work can be kept."""
    if Interrupts.asked:
        raise KeyboardInterrupt


@contextmanager
def interrupts_between_steps() -> Iterator[None]:
    """Let the first Ctrl-C end the work between two of its steps. This is a context or a decorator.

    The first Ctrl-C only sets a flag for `stop_if_interrupted`. So no exception is raised within a step, or within an
    import that would swallow it. A second Ctrl-C does what it would have done without this context. Signals arrive in
    a process's main thread, so nothing changes in other threads. Nothing changes where Ctrl-C is ignored either.
    """
    handler_before = signal.getsignal(signal.SIGINT)
    if Interrupts.held or current_thread() is not main_thread() or not callable(handler_before):
        yield
        return

    def on_first_interrupt(*_) -> None:
        ask_to_stop()
        signal.signal(signal.SIGINT, handler_before)
        os.write(2, b"stopping after this step\n")  # A handler may not write to Python's own streams.

    Interrupts.held = True
    signal.signal(signal.SIGINT, on_first_interrupt)
    try:
        yield
        stop_if_interrupted()  # The interrupt may have come after the last step.
    finally:
        signal.signal(signal.SIGINT, handler_before)
        Interrupts.asked = False
        Interrupts.held = False


# Compiled loops and threads


@cache
def _announce_compiling() -> None:
    print("hmmlib: compiling loops for this machine, once, in at most 15 seconds", file=sys.stderr, flush=True)


@cache
def loops(name: str) -> ModuleType | None:
    """Import a module of compiled loops and return it, or return None if numba is missing or cannot work."""
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
    except RuntimeError:  # Numba finds no folder in which it may keep what it compiles.
        return None


def uninitialized(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor on the CPU whose values are arbitrary until somebody writes them.

    NumPy allocates it in a sixth of torch's time, because it asks the system for large pages of memory.
    """
    numpy_dtype = torch.empty(0, dtype=dtype, device="cpu").numpy().dtype
    return torch.from_numpy(np.empty(shape, numpy_dtype))


class _OneThread:
    """A context in which a product of matrices stays on its caller's thread. Several threads may be in it at once."""

    def __init__(self):
        self.lock = Lock()
        self.users = 0
        self.libraries = None
        self.limit = None

    def __enter__(self) -> None:
        with self.lock:
            if self.libraries is None:  # Before now, the library that multiplies may not have been loaded.
                from threadpoolctl import ThreadpoolController

                self.libraries = ThreadpoolController()
            if self.users == 0:
                self.limit = self.libraries.limit(limits=1, user_api="blas")
            self.users += 1

    def __exit__(self, *_) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.limit.restore_original_limits()


ONE_THREAD = _OneThread()


@contextmanager
def flushing(dtype: torch.dtype) -> Iterator[None]:
    """Count numbers below the smallest normal float32 as zero. This is a context, and has no effect for another dtype.

    Some processors take twenty times as long for products of such numbers. If the caller has chosen this setting
    before, it stays so afterwards. It holds for this thread and for those that it starts.
    """
    if dtype != torch.float32 or flushes_denormals():
        yield
        return
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def shares(n: int, threads: int) -> list[slice]:
    """Split the indices 0 … n - 1 into parts of about the same size, at most one for each thread and none empty."""
    parts = []
    for k in range(threads):
        start = n * k // threads
        stop = n * (k + 1) // threads
        if stop > start:
            parts.append(slice(start, stop))
    return parts


def side_by_side(work: Callable[[slice], None], n: int, threads: int) -> None:
    """Call work(share) for shares of about the same size of n sequences, each in a thread of its own."""
    first, *further = shares(n, threads)
    with ONE_THREAD:
        if not further:  # Starting a pool would take longer than a short call.
            work(first)
            return
        with ThreadPoolExecutor(len(further)) as pool:
            running = pool.map(work, further)
            work(first)
            list(running)  # This raises what was raised in a thread.
