"""Pretraining: a corpus as bytes on the device, steps of a forward and a backward pass, two optimisers, checkpoints.

Nothing in the loop waits for the device, and there is no data loader: masks are drawn on the device, where the corpus is. On
CUDA the forward and the backward pass are captured once as a graph and replayed.
"""

from __future__ import annotations

import math
import time
import warnings
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

    `learning_rate` is AdamW's; `muon_rate` is Muon's, for the encoder's matrices (0: AdamW for these too). The rate rises
    over `warmup` steps and falls linearly to zero. `clip` bounds the gradient's norm (0: no bound).

    With `documents`, the text is that many sequences of `document_length` tokens, cut into chunks of `length` and shuffled
    in each pass; without, every sequence is fresh and seen once. With `masking` "bert", of the hidden positions 80% show
    [MASK], 10% a random token and 10% their own. `precision` is one of `backend.PRECISIONS`.
    """

    steps: int
    batch: int
    length: int
    masked: float
    learning_rate: float
    muon_rate: float
    warmup: int
    clip: float = 0.0
    documents: int = 0
    document_length: int = 0
    masking: str = "always"
    precision: str = "single"

    def __post_init__(self) -> None:
        number("masked", self.masked, 0, 1)
        one_of("masking", self.masking, MASKINGS)
        one_of("precision", self.precision, backend.PRECISIONS)


def corpus(model: HMM | MemoryHMM, plan: Pretraining, generator: torch.Generator) -> Tensor:
    """The text to pretrain on, (chunks, length), as bytes where the vocabulary allows.

    ValueError where a document is shorter than a chunk.
    """
    small = torch.uint8 if model.n_tokens <= 256 else torch.int32
    if plan.documents:
        if plan.document_length < plan.length:
            raise ValueError(f"document_length must be at least length = {plan.length}, not {plan.document_length}")
        tokens = model.sample(plan.documents, plan.document_length, generator, states=False, dtype=small).tokens
        chunks = plan.document_length // plan.length
        return tokens[:, : chunks * plan.length].reshape(-1, plan.length)
    return model.sample(plan.steps * plan.batch, plan.length, generator, states=False, dtype=small).tokens


def visits(chunks: int, plan: Pretraining, generator: torch.Generator) -> Tensor:
    """Which chunks each step reads, (steps, batch): a new permutation in each pass, or in order where each is seen once."""
    needed = plan.steps * plan.batch
    if not plan.documents:
        return torch.arange(needed).reshape(plan.steps, plan.batch)
    passes = -(-needed // chunks)
    order = torch.cat([torch.randperm(chunks, generator=generator) for _ in range(passes)])
    return order[:needed].reshape(plan.steps, plan.batch)


def hide(tokens: Tensor, plan: Pretraining, n_tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The tokens of a batch as the network sees them, MASK among them, and the positions (n, k) that it must predict."""
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
    """Loss and gradients of a batch. A call takes input ids (n, T), positions (n, k) and targets (n, k), and sets gradients.

    Once `capture` has recorded a graph, a call replays it on the same memory. So gradients must then stay where they are,
    which is to say that they are never set to None, and shapes must not change.
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
        """Record the graph, on CUDA. It draws dropout while it warms up, so do it before a generator's state matters."""
        self.inputs = tuple(value.clone() for value in inputs)
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
        self.dropout_seed = int(torch.randint(2**62, (1,), generator=generator))
        self.optimisers = optimisers(network, plan)
        self.rates = [group["lr"] for optimiser in self.optimisers for group in optimiser.param_groups]
        self.gradients = Gradients(network, backend.sixteen_bits(device, plan.precision))
        self.losses = torch.full((plan.steps,), math.nan, device=device)
        self.done, self.between_steps = 0, True
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

    def warm_up(self) -> None:
        """Capture the graph, on CUDA, without a change of weights or of `draws`."""
        if self.device.type == "cuda":
            self.gradients.capture(*self.batch(0, torch.Generator(self.device).manual_seed(0)))

    def step(self) -> None:
        """One step of both optimisers."""
        self.between_steps = False
        self.losses[self.done] = self.gradients(*self.batch(self.done, self.draws))
        groups = [group for optimiser in self.optimisers for group in optimiser.param_groups]
        for group, rate in zip(groups, self.rates, strict=True):
            group["lr"] = rate * rate_at(self.done, self.plan)
        scaler = self.gradients.scaler
        if self.plan.clip:
            for optimiser in self.optimisers:
                scaler.unscale_(optimiser)
            nn.utils.clip_grad_norm_(self.network.parameters(), self.plan.clip)
        for optimiser in self.optimisers:
            scaler.step(optimiser)
        scaler.update()
        self.done, self.between_steps = self.done + 1, True

    def save(self, path: Path) -> None:
        """Write all that is needed to go on from here."""
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        for k, optimiser in enumerate(self.optimisers):
            for index, state in optimiser.state_dict()["state"].items():
                tensors |= {f"optimiser.{k}.{index}.{name}": value for name, value in state.items()}
        dropout = _dropout_generator(self.device).get_rng_state()
        tensors |= {"losses": self.losses, "draws": self.draws.get_state(), "dropout": dropout}
        scale = {name: str(value) for name, value in self.gradients.scaler.state_dict().items()}
        checkpoints.save(path, tensors, {**self.identity, "place": self.hardware, "done": str(self.done), **scale})

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint of the same run, if there is a whole one at `path`."""
        checkpoint = checkpoints.load(path, self.identity)
        if checkpoint is None:
            return
        try:
            self._continue(path, *checkpoint)
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} is whole, but no checkpoint of this version of hmmlib; move it away: {error}"
            ) from error

    def _continue(self, path: Path, tensors: dict[str, Tensor], facts: dict[str, str]) -> None:
        if facts["place"] != self.hardware:  # random states and loss scale are of no use here
            warnings.warn(f"{path} was made on {facts['place']}, this is {self.hardware}: begun anew", stacklevel=4)
            return
        states: list[dict[int, dict]] = [{} for _ in self.optimisers]
        for name, value in tensors.items():
            if name.startswith("optimiser."):
                _, k, index, field = name.split(".")
                states[int(k)].setdefault(int(index), {})[field] = value
        network = {name.removeprefix("network."): v for name, v in tensors.items() if name.startswith("network.")}
        self.network.load_state_dict(network)
        for optimiser, state in zip(self.optimisers, states, strict=True):
            optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
        self.losses.copy_(tensors["losses"])
        self.draws.set_state(tensors["draws"])
        _dropout_generator(self.device).set_rng_state(tensors["dropout"])
        if self.gradients.scaler.is_enabled():
            scale = self.gradients.scaler.state_dict()
            self.gradients.scaler.load_state_dict({name: type(value)(facts[name]) for name, value in scale.items()})
        self.done = integer("done", int(facts["done"]), 0, self.plan.steps)


def _dropout_generator(device: torch.device):
    """The module of torch whose global generator dropout draws from."""
    return {"cuda": torch.cuda, "mps": torch.mps}.get(device.type, torch)


@contextmanager
def _repeatable(device: torch.device) -> Iterator[None]:
    """On CUDA, kernels that give the same sums each time, so that a resumed run ends where an undisturbed one does."""
    if device.type != "cuda":
        yield
        return
    deterministic = torch.utils.deterministic
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        deterministic.fill_uninitialized_memory,
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    deterministic.fill_uninitialized_memory = False  # costs a pass over every new tensor
    try:
        with torch.cuda.device(device):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        deterministic.fill_uninitialized_memory = before[2]


@backend.interrupts_between_steps()
def pretrain(
    network: BertForMaskedLM,
    model: HMM | MemoryHMM,
    plan: Pretraining,
    seed: int,
    report: Callable[[int, float], None] | None = None,
    checkpoint: Path | None = None,
    every: float = 120.0,
) -> list[float]:
    """Train `network` in place, on its own device, on text of `model`; the masked-token loss (nats) of every step.

    Args:
        report: called as report(step, loss), after each step on the CPU, after each hundredth elsewhere. What it raises
            ends the training; it can go on later from the checkpoint.
        checkpoint: where to write one every `every` seconds, when training is broken off, and at the end. If a whole one of
            the same run lies there, training goes on from it, and on the same machine ends with the same weights.

    Raises:
        FloatingPointError: the loss is no number.
        ValueError: the checkpoint is that of another run, or the network is too small for the model or the plan.
    """
    checkpoint = None if checkpoint is None else checkpoints.as_path(checkpoint)
    _check_sizes(network, model, plan)
    fork = [network.device] if network.device.type == "cuda" else []
    with torch.random.fork_rng(devices=fork), _repeatable(network.device):
        network.train().requires_grad_(True)
        run = Run(network, model, plan, seed)
        run.warm_up()
        torch.manual_seed(run.dropout_seed)
        if checkpoint:
            run.resume(checkpoint)
        try:
            _go_on(run, report, checkpoint, every)
        except (FloatingPointError, checkpoints.CheckpointError):
            raise
        except BaseException:
            if checkpoint and run.between_steps:
                run.save(checkpoint)
            raise
    return run.losses.tolist()


def _check_sizes(network: BertForMaskedLM, model: HMM | MemoryHMM, plan: Pretraining) -> None:
    """TypeError or ValueError unless the network has a word for each of the model's tokens, and positions for the plan."""
    words, positions = as_network(network).config.vocab_size - 1, network.config.max_position_embeddings
    if of_type("model", model, HMM, MemoryHMM).n_tokens > words:
        raise ValueError(f"model must have at most {words} tokens, as the network has words, not {model.n_tokens}")
    if of_type("plan", plan, Pretraining).length > positions:
        raise ValueError(f"plan: its length must be at most {positions}, as the network is, not {plan.length}")


def _go_on(run: Run, report: Callable[[int, float], None] | None, checkpoint: Path | None, every: float) -> None:
    """The steps that are left, with reports of the loss and a checkpoint now and then, and one at the end."""
    every_steps, saved, begun = STEPS_PER_REPORT.get(run.device.type, 100), time.monotonic(), run.done
    while run.done < run.plan.steps:
        run.step()
        backend.stop_if_interrupted()
        if run.done % every_steps and run.done < run.plan.steps:
            continue
        loss = run.losses[run.done - 1].item()
        if not math.isfinite(loss):
            first = int((~run.losses.isfinite()).nonzero()[0])
            raise FloatingPointError(f"pretraining diverged: the loss at step {first} is {run.losses[first]}")
        if checkpoint and time.monotonic() - saved > every:
            run.save(checkpoint)
            saved = time.monotonic()
        if report:
            report(run.done - 1, loss)
    if checkpoint and run.done > begun:
        run.save(checkpoint)
