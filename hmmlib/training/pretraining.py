"""Pretrain a network on text from a model, with masks, two optimisers, and checkpoints.

Nothing in the loop waits for the device, and there is no data loader. The text lies on the device as bytes, and masks
are drawn there.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hmmlib import device as backend
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.training import checkpoints
from hmmlib.training.bert import as_network, digest, fingerprint, mask_some
from hmmlib.training.gradients import Gradients, repeatable
from hmmlib.training.muon import Muon
from hmmlib.validation import MASK, as_generator, as_seed, integer, number, of_shape, of_type, one_of, seed_from

if TYPE_CHECKING:
    from transformers import BertForMaskedLM

STEPS_PER_REPORT = {"cpu": 1, "cuda": 100, "mps": 100}
"""After how many steps the loss is read, by kind of device. Each reading waits for the device."""

MASKINGS = ("always", "bert")
"""What a hidden position shows, which `Pretraining.masking` explains."""


@dataclass(frozen=True)
class Pretraining:
    """How to pretrain, by default as the preset `quick` does.

    Raises:
        ValueError: A field has another type, or is out of its range.

    Example:
        >>> from hmmlib import Pretraining
        >>> plan = Pretraining(steps=100, batch=32, length=24)
        >>> plan.steps * plan.batch * plan.length
        76800
    """

    steps: int = 400
    """How many batches the network is trained on."""
    batch: int = 64
    """How many sequences a batch has."""
    length: int = 64
    """How many tokens a sequence has."""
    masked: float = 0.15
    """The share of each sequence that is hidden and predicted."""
    learning_rate: float = 5e-3
    """AdamW's learning rate."""
    muon_rate: float = 0.02
    """Muon's learning rate, for the matrices of the encoder. With 0 AdamW trains these too."""
    warmup: int = 50
    """The number of steps in which the rates rise linearly. In the other steps they fall linearly to zero."""
    clip: float = 0.0
    """A bound on the norm of the gradient, or 0 for no bound."""
    documents: int = 0
    """The number of documents that the text consists of. They are cut into sequences, which are shuffled in each pass.
    If it is 0, every sequence is fresh and seen once."""
    document_length: int = 0
    """How many tokens a document has."""
    masking: str = "always"
    """What a hidden position shows, one of MASKINGS. With "always" it is [MASK]. With "bert" it is [MASK] at 80% of the
    positions, a random token at 10%, and the position's own token at 10%."""
    precision: str = "single"
    """The precision of matrix products, one of `hmmlib.device.PRECISIONS`."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "length"):
            integer(name, getattr(self, name), 1)
        for name in ("warmup", "documents"):
            integer(name, getattr(self, name), 0)
        for name in ("learning_rate", "muon_rate", "clip"):
            number(name, getattr(self, name), 0)
        number("masked", self.masked, 0, 1)
        one_of("masking", self.masking, MASKINGS)
        one_of("precision", self.precision, backend.PRECISIONS)
        if self.documents:
            integer("document_length", self.document_length, self.length)


# Text and masks


def corpus(model: HMM | MemoryHMM, plan: Pretraining, generator: torch.Generator) -> Tensor:
    """Draw the text to pretrain on.

    Returns:
        Sequences, (N, length), as bytes if the vocabulary allows it.
    """
    dtype = torch.uint8 if model.n_tokens <= 256 else torch.int32
    draw = partial(model.sample, seed=generator, states=False, dtype=dtype)
    if not plan.documents:
        return draw(plan.steps * plan.batch, plan.length).tokens
    documents = draw(plan.documents, plan.document_length).tokens
    used_length = plan.document_length - plan.document_length % plan.length
    return documents[:, :used_length].reshape(-1, plan.length)


def visits(n_sequences: int, plan: Pretraining, generator: torch.Generator) -> Tensor:
    """Return which sequences each step reads, (steps, batch).

    Sequences that are seen once are read in their order. Those of documents are shuffled in each pass.
    """
    needed = plan.steps * plan.batch
    order = torch.arange(n_sequences)
    if plan.documents:
        passes = []
        for _ in range(math.ceil(needed / n_sequences)):
            passes.append(torch.randperm(n_sequences, generator=generator))
        order = torch.cat(passes)
    return order[:needed].reshape(plan.steps, plan.batch)


def hide(tokens: Tensor, plan: Pretraining, n_tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Hide tokens of a batch.

    Returns:
        The tokens as the network sees them, (n, T), and the positions that it must predict, (n, k).
    """
    masked, positions = mask_some(tokens, plan.masked, generator)
    if plan.masking == "bert":
        draws = torch.rand(positions.shape, generator=generator, device=tokens.device)
        random_tokens = torch.randint(n_tokens, positions.shape, generator=generator, device=tokens.device)
        not_masked = torch.where(draws < 0.9, random_tokens, tokens.gather(1, positions))
        masked = masked.scatter(1, positions, torch.where(draws < 0.8, MASK, not_masked))
    return masked, positions


# Optimisers


def optimisers(network: nn.Module, plan: Pretraining) -> list[torch.optim.Optimizer]:
    """Make Muon for the encoder's matrices and AdamW for every other parameter, or AdamW alone if Muon's rate is 0."""
    matrices = []
    if plan.muon_rate:
        matrices = [parameter for parameter in network.bert.encoder.parameters() if parameter.ndim == 2]
    of_muon = {id(matrix) for matrix in matrices}
    of_adamw = [parameter for parameter in network.parameters() if id(parameter) not in of_muon]
    # Both implementations give the same bits as a loop over the parameters.
    implementation = "fused" if of_adamw[0].is_cuda else "foreach"
    adamw = torch.optim.AdamW(of_adamw, lr=plan.learning_rate, weight_decay=0.0, **{implementation: True})
    if not matrices:
        return [adamw]
    return [Muon(matrices, lr=plan.muon_rate, weight_decay=0.0), adamw]


def rate_at(step: int, plan: Pretraining) -> float:
    """Return the share of the full learning rate at a step: linear warm-up, then linear decay to zero."""
    rising = (step + 1) / max(1, plan.warmup)
    falling = (plan.steps - step) / max(1, plan.steps - plan.warmup)
    return min(rising, falling)


# The loop


class Run:
    """One pretraining in progress. Everything that a checkpoint has to hold is here.

    Args:
        network: The network, which is trained in place.
        model: The model that writes the text.
        plan: How to pretrain.
        seed: A seed for the text, its order, masks and dropout.
    """

    def __init__(self, network: BertForMaskedLM, model: HMM | MemoryHMM, plan: Pretraining, seed: int):
        self.network = network
        self.plan = plan
        self.device = network.device
        self.n_tokens = model.n_tokens

        generator = as_generator(as_seed(seed))  # A checkpoint names the seed, so a generator is not accepted.
        text = corpus(model, plan, generator)
        self.visits = visits(len(text), plan, generator).to(self.device)
        self.text = text.to(self.device)
        self.mask_generator = torch.Generator(self.device).manual_seed(seed_from(generator))
        self.dropout_seed = seed_from(generator)
        # Dropout draws from the global generator of the device, which belongs to this module.
        self.dropout = {"cuda": torch.cuda, "mps": torch.mps}.get(self.device.type, torch)

        self.optimisers = optimisers(network, plan)
        self.full_rates = [optimiser.param_groups[0]["lr"] for optimiser in self.optimisers]
        self.gradients = Gradients(network, backend.sixteen_bits(self.device, plan.precision))
        self.losses = torch.full((plan.steps,), math.nan, device=self.device)
        self.done = 0

        tables = {name: value for name, value in vars(model).items() if isinstance(value, Tensor)}
        self.identity = {
            "plan": repr(asdict(plan)),
            "seed": str(seed),
            "model": digest(tables),
            "network at the start": fingerprint(network),
        }
        self.hardware = f"{self.device.type} in {self.gradients.half or torch.float32}"

    def batch(self, step: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return the input ids (n, T) of a step, the positions (n, k) to be predicted, and the tokens there, (n, k)."""
        tokens = self.text[self.visits[step]].long()
        masked, positions = hide(tokens, self.plan, self.n_tokens, generator)
        ids = torch.where(masked == MASK, self.network.config.vocab_size - 1, masked)
        return ids, positions, tokens.gather(1, positions)

    def step(self) -> None:
        """Do one step of all optimisers."""
        batch = self.batch(self.done, self.mask_generator)
        self.losses[self.done] = self.gradients(*batch)
        scaler = self.gradients.scaler
        for optimiser, full_rate in zip(self.optimisers, self.full_rates, strict=True):
            optimiser.param_groups[0]["lr"] = full_rate * rate_at(self.done, self.plan)
        if self.plan.clip:
            for optimiser in self.optimisers:
                scaler.unscale_(optimiser)
            nn.utils.clip_grad_norm_(self.network.parameters(), self.plan.clip)
        for optimiser in self.optimisers:
            scaler.step(optimiser)
        scaler.update()
        self.done += 1

    def loss_to_report(self) -> float | None:
        """Return the loss of the last step, or None if the loss is not read after this step.

        Raises:
            FloatingPointError: The loss is not finite. The message names the first such step.
        """
        is_last = self.done == self.plan.steps
        if self.done % STEPS_PER_REPORT.get(self.device.type, 100) and not is_last:
            return None
        loss = self.losses[self.done - 1].item()
        if not math.isfinite(loss):
            first = int((~self.losses.isfinite()).nonzero()[0])
            raise FloatingPointError(f"pretraining diverged: the loss at step {first} is {self.losses[first]}")
        return loss

    def save(self, path: Path) -> None:
        """Write all that is needed to go on from here."""
        content = {
            "identity": self.identity,
            "hardware": self.hardware,
            "done": self.done,
            "losses": self.losses,
            "network": self.network.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "masks": self.mask_generator.get_state(),
            "dropout": self.dropout.get_rng_state(),
            "scaler": self.gradients.scaler.state_dict(),
        }
        checkpoints.save(path, content)

    def resume(self, path: Path) -> None:
        """Go on from the checkpoint at `path` if there is one.

        A checkpoint from another kind of hardware is of no use, because generators have other states there. Then the
        run begins anew, with a warning.

        Raises:
            ValueError: The checkpoint is that of another run, or not of a pretraining at all.
        """
        content = checkpoints.load(path)
        if content is None:
            return
        if not isinstance(content.get("identity"), dict):
            raise ValueError(f"{path} is no checkpoint of a pretraining. Name another file, or move it away")
        for name, value in self.identity.items():
            stored = content["identity"].get(name)
            if stored != value:
                raise ValueError(f"{path} is the checkpoint of another run: its {name} is {stored}, not {value}")
        made_on = content.get("hardware")
        if made_on != self.hardware:
            warnings.warn(f"{path} was made on {made_on}, not {self.hardware}, so the run begins anew", stacklevel=2)
            return
        with checkpoints.naming_damaged(path):
            self.network.load_state_dict(content["network"])
            for optimiser, state in zip(self.optimisers, content["optimisers"], strict=True):
                optimiser.load_state_dict(state)
            self.losses.copy_(of_shape("losses", content["losses"], self.losses.shape))
            self.mask_generator.set_state(content["masks"])
            self.dropout.set_rng_state(content["dropout"])
            self.gradients.scaler.load_state_dict(content["scaler"])
            self.done = integer("done", content["done"], 0, self.plan.steps)


@backend.interrupts_between_steps()
@backend.own_settings()
def pretrain(
    network: BertForMaskedLM,
    model: HMM | MemoryHMM,
    plan: Pretraining,
    seed: int,
    on_step: Callable[[int, float], None] | None = None,
    checkpoint: Path | None = None,
    every: float = 120.0,
) -> list[float]:
    """Pretrain a network in place, on its own device, on text of a model. Afterwards its dropout is off.

    Args:
        network: A network of `hmmlib.training.bert.build`.
        model: The model that writes the text.
        plan: How to pretrain.
        seed: A seed for the text, its order, masks and dropout.
        on_step: Called as on_step(step, loss), after each step on the CPU, and after each hundredth elsewhere. What it
            raises ends the training.
        checkpoint: A file `*.pt`. A checkpoint is written there now and then, when training is broken off, and at the
            end. If the file holds one of the same run, training goes on from it. On the same machine it then ends with
            the same weights.
        every: The least number of seconds between two checkpoints.

    Returns:
        The masked-token loss of every step, in nats.

    Raises:
        FloatingPointError: The loss is not finite.
        TypeError: The network is not one that `build` has made, or `model` or `plan` is not a model or a plan.
        ValueError: The network is too small for the model or the plan, or the file is not a checkpoint of this run.
        CheckpointError: A checkpoint cannot be written. This is an OSError.

    Example:
        >>> from hmmlib import Pretraining, Shape, pretrain, random_hmm
        >>> from hmmlib.training.bert import build
        >>> network = build(Shape(layers=1, width=16, heads=2, max_length=12), n_tokens=5, seed=0)
        >>> model = random_hmm(n_states=3, n_tokens=5, seed=1)
        >>> losses = pretrain(network, model, Pretraining(steps=40, batch=32, length=12, warmup=5), seed=2)
        >>> losses[-1] < losses[0]
        True
    """
    path = None if checkpoint is None else checkpoints.as_path(checkpoint)
    number("every", every, 0)
    _check_sizes(network, model, plan)
    gpus = [network.device] if network.device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus), repeatable(network.device):
        network.train().requires_grad_(True)
        run = Run(network, model, plan, seed)
        if gpus:
            first_batch = run.batch(0, torch.Generator(run.device).manual_seed(0))
            run.gradients.capture(*first_batch)
        torch.manual_seed(run.dropout_seed)
        if path:
            run.resume(path)
        _train(run, on_step, path, every)
    network.eval()
    return run.losses.tolist()


def _train(run: Run, on_step: Callable[[int, float], None] | None, path: Path | None, every: float) -> None:
    """Do the steps that are left, and keep checkpoints at `path`."""
    if run.done == run.plan.steps:
        return
    last_saved = time.monotonic()
    while run.done < run.plan.steps:
        run.step()
        loss = run.loss_to_report()
        if path and loss is not None and time.monotonic() - last_saved > every:
            run.save(path)
            last_saved = time.monotonic()
        try:
            backend.stop_if_interrupted()
            if on_step and loss is not None:
                on_step(run.done - 1, loss)
        except BaseException:
            if path:
                run.save(path)
            raise
    if path:
        run.save(path)


def _check_sizes(network, model, plan) -> None:
    """Raise an error if the arguments are not what `pretrain` takes, or do not fit each other."""
    config = as_network(network).config
    if network.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(
            f"network must have weights in float32, not {network.dtype}. Set plan.precision for products in 16 bits"
        )
    of_type("model", model, HMM, MemoryHMM)
    of_type("plan", plan, Pretraining)
    vocabulary = config.vocab_size - 1
    if model.n_tokens > vocabulary:
        raise ValueError(f"model must have at most {vocabulary} tokens, as many as the network, not {model.n_tokens}")
    positions = config.max_position_embeddings
    if plan.length > positions:
        raise ValueError(f"plan must have a length of at most {positions}, the network's, not {plan.length}")
