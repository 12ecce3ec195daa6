"""Pretraining: a corpus as bytes on the device, steps of a forward and a backward pass, two optimisers, checkpoints.

Nothing in the loop waits for the device, and there is no data loader: masks are drawn on the device, where the corpus
is. On CUDA the forward and the backward pass are captured once as a graph and replayed.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hmmlib import backend
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.training import checkpoints
from hmmlib.training.bert import as_network, fingerprint, logits_at, mask_some
from hmmlib.training.muon import Muon
from hmmlib.validation import MASK, as_generator, as_seed, integer, number, of_type, one_of

if TYPE_CHECKING:
    from transformers import BertForMaskedLM

STEPS_PER_REPORT = {"cpu": 1, "cuda": 100, "mps": 100}
"""After how many steps the loss is read, by kind of device: each reading waits for the device."""

MASKINGS = ("always", "bert")
"""What a hidden position shows: always [MASK], or what BERT's masking shows."""


@dataclass(frozen=True)
class Pretraining:
    """How to pretrain: `steps` batches of `batch` sequences of `length` tokens, a share `masked` of each hidden.

    `learning_rate` is AdamW's; `muon_rate` is Muon's, for the encoder's matrices (0: AdamW for these too). The rate
    rises over `warmup` steps and falls linearly to zero. `clip` bounds the gradient's norm (0: no bound).

    With `documents`, the text is that many sequences of `document_length` tokens, cut into chunks of `length` and
    shuffled in each pass; without, every sequence is fresh and seen once. With `masking` "bert", 80% of the hidden
    positions show [MASK], 10% a random token and 10% their own. `precision` is one of `backend.PRECISIONS`.
    Defaults are those of the preset `quick`.
    """

    steps: int = 400
    batch: int = 64
    length: int = 64
    masked: float = 0.15
    learning_rate: float = 5e-3
    muon_rate: float = 0.02
    warmup: int = 50
    clip: float = 0.0
    documents: int = 0
    document_length: int = 0
    masking: str = "always"
    precision: str = "single"

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "length"):
            integer(name, getattr(self, name), 1)
        for name in ("learning_rate", "muon_rate", "warmup", "clip", "documents"):
            number(name, getattr(self, name), 0)
        number("masked", self.masked, 0, 1)
        one_of("masking", self.masking, MASKINGS)
        one_of("precision", self.precision, backend.PRECISIONS)
        if self.documents:
            integer("document_length", self.document_length, self.length)


def corpus(model: HMM | MemoryHMM, plan: Pretraining, generator: torch.Generator) -> Tensor:
    """The text to pretrain on, (chunks, length), as bytes where the vocabulary allows."""
    small = torch.uint8 if model.n_tokens <= 256 else torch.int32
    sizes = (plan.documents, plan.document_length) if plan.documents else (plan.steps * plan.batch, plan.length)
    tokens = model.sample(*sizes, generator, states=False, dtype=small).tokens
    return tokens[:, : sizes[1] - sizes[1] % plan.length].reshape(-1, plan.length)


def visits(chunks: int, plan: Pretraining, generator: torch.Generator) -> Tensor:
    """Which chunks each step reads, (steps, batch): in order where each is seen once, else shuffled in each pass."""
    needed, order = plan.steps * plan.batch, torch.arange(chunks)
    if plan.documents:
        passes = range(-(-needed // chunks))
        order = torch.cat([torch.randperm(chunks, generator=generator) for _ in passes])
    return order[:needed].reshape(plan.steps, plan.batch)


def hide(tokens: Tensor, plan: Pretraining, n_tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The tokens of a batch as the network sees them, and the positions (n, k) that it must predict."""
    masked, positions = mask_some(tokens, plan.masked, generator)
    if plan.masking == "bert":
        draw = torch.rand(positions.shape, generator=generator, device=tokens.device)
        random = torch.randint(n_tokens, positions.shape, generator=generator, device=tokens.device)
        shown = torch.where(draw < 0.8, MASK, torch.where(draw < 0.9, random, tokens.gather(1, positions)))
        masked = masked.scatter(1, positions, shown)
    return masked, positions


def optimisers(network: nn.Module, plan: Pretraining) -> list[torch.optim.Optimizer]:
    """Muon for the encoder's matrices, AdamW for every other parameter; AdamW alone if Muon's rate is 0."""
    encoder = {id(p): p for p in network.bert.encoder.parameters() if p.ndim == 2} if plan.muon_rate else {}
    rest = [p for p in network.parameters() if id(p) not in encoder]
    many = {"fused": True} if rest[0].is_cuda else {"foreach": True}  # the latter gives the bits that a loop gives
    adamw = torch.optim.AdamW(rest, lr=plan.learning_rate, weight_decay=0.0, **many)
    if not encoder:
        return [adamw]
    return [Muon(list(encoder.values()), lr=plan.muon_rate, weight_decay=0.0), adamw]


def rate_at(step: int, plan: Pretraining) -> float:
    """The share of the full learning rate at a step: linear warm-up, then linear decay to zero."""
    return min((step + 1) / max(1, plan.warmup), (plan.steps - step) / max(1, plan.steps - plan.warmup))


class Gradients:
    """Sets the gradients of a batch, of input ids (n, T), positions (n, k) and targets (n, k), and gives its loss.

    Once `capture` has recorded a graph, a call replays it on the same memory: gradients must then never be set to None,
    and shapes must not change.
    """

    def __init__(self, network: BertForMaskedLM, half: torch.dtype | None = None):
        self.network, self.half, self.graph = network, half, None
        self.scaler = torch.amp.GradScaler(network.device.type, enabled=half == torch.float16)

    def compute(self, ids: Tensor, positions: Tensor, target: Tensor) -> Tensor:
        """The mean loss over all positions, with its gradients added to the parameters'."""
        with torch.autocast(ids.device.type, self.half, enabled=self.half is not None):
            logits = logits_at(self.network, self.network.get_input_embeddings()(ids), positions)
        loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten())
        self.scaler.scale(loss).backward()
        return loss.detach()

    def __call__(self, ids: Tensor, positions: Tensor, target: Tensor) -> Tensor:
        if self.graph is None:
            self.network.zero_grad(set_to_none=True)
            return self.compute(ids, positions, target)
        for recorded, value in zip(self.inputs, (ids, positions, target), strict=True):
            recorded.copy_(value)
        self.graph.replay()
        return self.loss

    def capture(self, *inputs: Tensor) -> None:
        """Record the graph, on CUDA. This draws dropout, so it comes before a generator's state matters."""
        self.inputs = [value.clone() for value in inputs]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # libraries choose their kernels before anything is recorded
                self.network.zero_grad(set_to_none=True)
                self.compute(*self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.network.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.compute(*self.inputs)


class Run:
    """One pretraining in progress: everything that a checkpoint has to hold is here."""

    def __init__(self, network: BertForMaskedLM, model: HMM | MemoryHMM, plan: Pretraining, seed: int):
        generator, device = as_generator(as_seed(seed)), network.device  # a checkpoint cannot hold a generator's name
        self.network, self.plan, self.device = network, plan, device
        text = corpus(model, plan, generator)
        self.visits = visits(len(text), plan, generator).to(device)
        self.text, self.n_tokens = text.to(device), model.n_tokens
        self.draws = torch.Generator(device).manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
        self.dropout = {"cuda": torch.cuda, "mps": torch.mps}.get(device.type, torch)  # whose global generator it uses
        self.dropout_seed = int(torch.randint(2**62, (1,), generator=generator))
        self.optimisers = optimisers(network, plan)
        self.rates = [optimiser.param_groups[0]["lr"] for optimiser in self.optimisers]
        self.gradients = Gradients(network, backend.sixteen_bits(device, plan.precision))
        self.losses = torch.full((plan.steps,), math.nan, device=device)
        self.done = 0
        tables = {name: value for name, value in vars(model).items() if isinstance(value, Tensor)}
        self.identity = {
            "plan": repr(asdict(plan)),
            "seed": str(seed),
            "model": checkpoints.digest(tables),
            "network at the start": fingerprint(network),
        }
        self.hardware = f"{device.type} in {self.gradients.half or torch.float32}"

    def batch(self, step: int, draws: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Input ids, positions and targets of a step."""
        tokens = self.text[self.visits[step]].long()
        masked, positions = hide(tokens, self.plan, self.n_tokens, draws)
        ids = torch.where(masked == MASK, self.network.config.vocab_size - 1, masked)
        return ids, positions, tokens.gather(1, positions)

    def step(self) -> None:
        """One step of both optimisers."""
        self.losses[self.done] = self.gradients(*self.batch(self.done, self.draws))
        scaler = self.gradients.scaler
        for optimiser, rate in zip(self.optimisers, self.rates, strict=True):
            optimiser.param_groups[0]["lr"] = rate * rate_at(self.done, self.plan)
        if self.plan.clip:
            for optimiser in self.optimisers:
                scaler.unscale_(optimiser)
            nn.utils.clip_grad_norm_(self.network.parameters(), self.plan.clip)
        for optimiser in self.optimisers:
            scaler.step(optimiser)
        scaler.update()
        self.done += 1

    def loss_to_report(self) -> float | None:
        """The loss of the last step where it is one to report; FloatingPointError where that is no number."""
        if self.done % STEPS_PER_REPORT.get(self.device.type, 100) and self.done < self.plan.steps:
            return None
        loss = self.losses[self.done - 1].item()
        if not math.isfinite(loss):
            first = int((~self.losses.isfinite()).nonzero()[0])
            raise FloatingPointError(f"pretraining diverged: the loss at step {first} is {self.losses[first]}")
        return loss

    def save(self, path: Path) -> None:
        """Write all that is needed to go on from here."""
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        for k, optimiser in enumerate(self.optimisers):
            for index, state in optimiser.state_dict()["state"].items():
                tensors |= {f"optimiser.{k}.{index}.{name}": value for name, value in state.items()}
        tensors |= {"losses": self.losses, "draws": self.draws.get_state(), "dropout": self.dropout.get_rng_state()}
        scale = {name: str(value) for name, value in self.gradients.scaler.state_dict().items()}
        checkpoints.save(path, tensors, {**self.identity, "place": self.hardware, "done": str(self.done), **scale})

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint of the same run, if there is a whole one at `path`."""
        tensors, facts = checkpoints.load(path, self.identity) or ({}, None)
        if facts is None:
            return
        if facts["place"] != self.hardware:  # random states and loss scale are of no use here
            warnings.warn(f"{path} was made on {facts['place']}, this is {self.hardware}: begun anew", stacklevel=3)
            return

        def part(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}

        self.network.load_state_dict(part("network."))
        for k, optimiser in enumerate(self.optimisers):
            states: dict[int, dict[str, Tensor]] = defaultdict(dict)
            for name, value in part(f"optimiser.{k}.").items():
                index, field = name.split(".")
                states[int(index)][field] = value
            optimiser.load_state_dict({**optimiser.state_dict(), "state": states})
        self.losses.copy_(tensors["losses"])
        self.draws.set_state(tensors["draws"])
        self.dropout.set_rng_state(tensors["dropout"])
        scaler = self.gradients.scaler
        scaler.load_state_dict({name: type(value)(facts[name]) for name, value in scaler.state_dict().items()})
        self.done = int(facts["done"])


@contextmanager
def _repeatable(device: torch.device) -> Iterator[None]:
    """On CUDA, kernels that give the same sums each time, so that a resumed run ends as an undisturbed one does."""
    if device.type != "cuda":
        yield
        return
    deterministic = torch.utils.deterministic
    mode, fill = torch.get_deterministic_debug_mode(), deterministic.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("error")  # under "warn" attention keeps kernels that are not repeatable
    deterministic.fill_uninitialized_memory = False  # costs a pass over every new tensor
    try:
        with torch.cuda.device(device):
            yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        deterministic.fill_uninitialized_memory = fill


@backend.interrupts_between_steps()
def pretrain(
    network: BertForMaskedLM,
    model: HMM | MemoryHMM,
    plan: Pretraining,
    seed: int,
    on_step: Callable[[int, float], None] | None = None,
    checkpoint: Path | None = None,
    every: float = 120.0,
) -> list[float]:
    """Train `network` in place, on its own device, on text of `model`; the masked-token loss (nats) of every step.

    `on_step(step, loss)` is called after each step on the CPU, after each hundredth elsewhere. What it raises ends the
    training. At `checkpoint`, a *.safetensors file, a checkpoint is written every `every` seconds, when training is
    broken off, and at the end. If one of the same run lies there, training goes on from it, and on the same machine
    ends with the same weights.

    FloatingPointError where the loss is no number; ValueError for the checkpoint of another run, and for a network that
    is too small for the model or the plan; TypeError for one that `bert.build` has not made.
    """
    checkpoint = None if checkpoint is None else checkpoints.as_path(checkpoint)
    config = as_network(network).config
    words, positions = config.vocab_size - 1, config.max_position_embeddings
    if of_type("model", model, HMM, MemoryHMM).n_tokens > words:
        raise ValueError(f"model must have at most {words} tokens, as the network has words, not {model.n_tokens}")
    if of_type("plan", plan, Pretraining).length > positions:
        raise ValueError(f"plan: its length must be at most {positions}, as the network is, not {plan.length}")
    fork = [network.device] if network.device.type == "cuda" else []
    with torch.random.fork_rng(devices=fork), _repeatable(network.device):
        network.train().requires_grad_(True)
        run = Run(network, model, plan, seed)
        if run.device.type == "cuda":
            run.gradients.capture(*run.batch(0, torch.Generator(run.device).manual_seed(0)))
        torch.manual_seed(run.dropout_seed)
        if checkpoint:
            run.resume(checkpoint)
        saved, begun = time.monotonic(), run.done
        while run.done < plan.steps:
            run.step()
            loss = run.loss_to_report()
            if checkpoint and loss is not None and time.monotonic() - saved > every:
                run.save(checkpoint)
                saved = time.monotonic()
            try:
                backend.stop_if_interrupted()
                if on_step and loss is not None:
                    on_step(run.done - 1, loss)
            except BaseException:
                if checkpoint:
                    run.save(checkpoint)
                raise
        if checkpoint and run.done > begun:
            run.save(checkpoint)
    return run.losses.tolist()
