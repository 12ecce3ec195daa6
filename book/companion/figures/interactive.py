"""Figures that a reader can move: each function takes a notebook's models and returns an object that shows itself as HTML.

The HTML carries its numbers, its scripts and its styles (`book/companion/figures/moving/`), so it works as a notebook's output
anywhere, with no server and no other file. The scripts compute again what hmmlib computes, by the same formulas.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import product

import torch
from torch import Tensor

from hmmlib.inference.messages import log_likelihood, masked_token_probs, posterior
from hmmlib.models.hmm import HMM, MemoryHMM
from hmmlib.theory.heads import AttentionHead, LinearHead
from hmmlib.theory.separation import Impossible, fit_or_refute
from hmmlib.validation import (
    MASK,
    as_distribution,
    as_indices,
    as_labels,
    as_seed,
    as_tensor,
    as_vector,
    at_least,
    different_words,
    integers_between,
    of_shape,
    of_type,
    of_width,
)

MOST_INPUTS = 400
"""Points in a triangle: more can neither be told apart nor moved smoothly."""

MOST_WORDS = 10
"""Bars along one text: with more of them their words overlap on a phone."""


def _without_remarks(text: str) -> str:
    """A script or style without the lines that are remarks: a page carries what a browser reads."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("//", "/*", "*")))


@dataclass(frozen=True)
class Moving:
    """A figure with its data; a notebook shows it by `_repr_html_`.

    `figure` names its script, `name` its element in the page (two figures of one page need two names), `still` what is
    said where scripts do not run, `shared` further scripts that its script uses, beside `kit.js`.
    """

    figure: str
    name: str
    data: dict
    still: str
    shared: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ValueError(f"name must be letters, digits and underscores, not {self.name!r}")

    def __repr__(self) -> str:
        return f"<interactive figure {self.name!r}>"

    def _repr_html_(self) -> str:
        """One element with everything inside; the same data give the same text."""
        folder = files("companion.figures") / "moving"
        style, *scripts = (
            _without_remarks((folder / name).read_text(encoding="utf8"))
            for name in ("moving.css", "kit.js", *(f"{script}.js" for script in (*self.shared, self.figure)))
        )
        data = json.dumps(self.data, allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")
        element = f"moving-{self.name}"
        start = f"hmmMoving.kit.start({json.dumps(element)}, {json.dumps(self.figure)}, {data});"
        return (
            f'<div class="moving" id="{element}">\n<style>\n{style}\n</style>\n'
            f'<p class="still">{html.escape(self.still)} (This figure moves where scripts are allowed to run.)</p>\n'
            "<script>\n" + "\n".join([*scripts, start]) + "\n</script>\n</div>"
        )


def _chain(model: HMM) -> dict:
    """The matrices of a model. ValueError for one whose token distributions are not points of a triangle."""
    if not isinstance(model, HMM):
        raise ValueError(f"model must be an HMM, not {type(model).__name__}")
    if model.n_tokens != 3:
        raise ValueError(f"the triangle needs a model of three tokens, not {model.n_tokens}")
    return _matrices(model)


def _matrices(model: HMM) -> dict:
    """A, W and P[H_0] as lists."""
    return {name: getattr(model, name).detach().double().tolist() for name in ("transition", "emission", "initial")}


def _inputs(model: HMM, length: int) -> Tensor:
    """Every input of a length that can occur, (n, length). ValueError where there are none, or too many to draw."""
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise ValueError(f"length must be an integer of 1 or more, not {length!r}")
    if length > MOST_INPUTS or model.n_tokens**length > MOST_INPUTS:
        raise ValueError(f"length must give at most {MOST_INPUTS} inputs, {model.n_tokens}**length, not be {length}")
    x = torch.tensor(list(product(range(model.n_tokens), repeat=length)))
    return x[log_likelihood(model, x) > -torch.inf]


def conditioning_by_a_prompt(
    model: HMM,
    mu,
    prompt,
    head: LinearHead,
    names: Sequence[str],
    shown: Sequence[Sequence[int]],
    length: int = 4,
    name: str = "prompt",
) -> Moving:
    """Theorem 3.6: the prompt's entries against the posterior of H_2, the points at the gap and the head's accuracy.

    Args:
        model: of three tokens and at most six states.
        mu: the task's weights, (S,). prompt, head: as `theorem_3_6` gives them.
        names: of the states. shown: two or three inputs of `length` whose posteriors are drawn as bars.

    ValueError for arguments that do not fit the model, or an input that cannot occur.
    """
    chain, inputs = _chain(model), _inputs(model, length).tolist()
    if model.n_states > 6:
        raise ValueError(f"there is room for six states, not {model.n_states}")
    prompt = as_vector("prompt", prompt, model.n_states)
    if prompt.min() < 0 or prompt.max() > 1:
        raise ValueError(f"prompt must have entries from 0 to 1, not {prompt.tolist()}")
    try:
        shown = [list(map(int, x)) for x in shown]
    except (TypeError, ValueError):
        raise ValueError(f"shown must be two or three inputs, each of {length} tokens, not {shown!r}") from None
    if not 2 <= len(shown) <= 3:
        raise ValueError(f"two or three inputs can be shown, not {len(shown)}")
    for x in shown:
        if x not in inputs:
            raise ValueError(f"{x} is no input of {length} tokens that can occur")
    reach = (model.transition.detach().double() @ (prompt * model.marginal(1).detach().double())) > 0
    data = {
        "model": chain,
        "names": different_words("names", names, model.n_states),
        "mu": as_vector("mu", mu, model.n_states).tolist(),
        "prompt": prompt.tolist(),
        "essential": reach.nonzero().squeeze(-1).tolist(),
        "head": as_vector("the head's weights", of_type("head", head, LinearHead).weights, model.n_tokens).tolist(),
        "inputs": inputs,
        "shown": [inputs.index(x) for x in shown],
    }
    return Moving("prompt", name, data, "The entries of a prompt, and what they leave of the hidden states.")


def nearly_dependent_columns(
    model: HMM,
    mu,
    names: Sequence[str],
    merge: tuple[int, int] = (0, 1),
    noise: float = 1e-3,
    length: int = 4,
    seed: int = 0,
    name: str = "columns",
) -> Moving:
    """Theorem 3.3 near its edge: a column of W moves to another, and the head's weights and its errors under noise grow.

    The task is μ less a constant that gives half of the inputs label 1. For equal columns a linear program says
    whether some head fits all the same.

    Args:
        model: of three tokens and three states, with independent columns of W. mu: the task's weights, (3,).
        names: of the states. merge: the column that stays, and the one that moves.
        noise: standard deviation of the noise in G, fixed by `seed`.

    ValueError for arguments that do not fit the model, or two inputs between which no constant fits.
    """
    chain, inputs = _chain(model), _inputs(model, length)
    if model.n_states != 3:
        raise ValueError(f"the inverse needs a model of three states, not {model.n_states}")
    merge = list(of_type("merge", merge, tuple, list))
    if len(merge) != 2 or merge[0] == merge[1]:
        raise ValueError(f"merge must be two different states from 0 to 2, not {merge}")
    as_indices("merge", merge, 3)
    merge = [int(state) for state in merge]
    if not isinstance(noise, float) or not 0 < noise < 1:
        raise ValueError(f"noise must lie between 0 and 1, not {noise!r}")
    mu = as_vector("mu", mu, 3)
    draw = torch.randn(len(inputs), 3, generator=torch.Generator().manual_seed(as_seed(seed)), dtype=torch.float64)
    emission = model.emission.clone()
    emission[:, merge[1]] = emission[:, merge[0]]
    equal = HMM(model.transition, emission, model.initial, columns=True)
    targets = posterior(equal, inputs) @ mu.to(equal.emission)
    labels = targets > targets.sort().values[len(inputs) // 2 - 1 : len(inputs) // 2 + 1].mean()
    behind = torch.cat([torch.full_like(inputs[:, :1], MASK), inputs], 1)
    verdict = fit_or_refute(masked_token_probs(equal, behind)[:, 0], labels)
    data = {
        "model": chain,
        "names": different_words("names", names, 3),
        "mu": mu.tolist(),
        "merge": merge,
        "inputs": inputs.tolist(),
        "noise": (noise * draw).tolist(),
        "noiseSize": noise,
        "refuted": isinstance(verdict, Impossible),
    }
    return Moving("columns", name, data, "Two columns of W come together, and the head of the theorem grows.")


def _memory_chain(model: MemoryHMM) -> dict:
    """A, P[H_0], P[M] and W as lists, flat, and which column of W state h looks up when the memory is the k-th."""
    indices = torch.arange(model.n_memory * model.n_states)
    return {
        "transition": model.transition.detach().double().tolist(),
        "initial": model.initial.detach().double().tolist(),
        "prior": model.memory.detach().double().flatten().tolist(),
        "emission": model.emission.detach().double().flatten(1).tolist(),
        "lookup": model.lift(indices).unflatten(0, (-1, model.n_states)).tolist(),
    }


def _memories(model: MemoryHMM) -> list[tuple[int, ...]]:
    """The values of all cells, for each memory in the order of P[M] laid flat."""
    return list(product(range(model.n_memory), repeat=model.n_cells))


def _tokens(text: str, words: list[str], most: int = MOST_WORDS) -> list[int]:
    """A text as tokens. ValueError for an unknown word, an empty text, or one that is too long."""
    if not isinstance(text, str):
        raise ValueError(f"a text must be words in one string, not {text!r}")
    said = text.split()
    unknown = sorted(set(said) - set(words))
    if unknown:
        raise ValueError(f"{unknown} are not among the words {words}")
    if not 1 <= len(said) <= most:
        raise ValueError(f"a text must have 1 to {most} words, not {len(said)}")
    return [words.index(word) for word in said]


def _words(model: MemoryHMM, head: AttentionHead, words: Sequence[str]) -> list[str]:
    """The words of a memory model, once model and head are seen to fit each other."""
    if not isinstance(model, MemoryHMM):
        raise ValueError(f"model must be a MemoryHMM, not {type(model).__name__}")
    if not isinstance(head, AttentionHead):
        raise ValueError(f"head must be an AttentionHead, not {type(head).__name__}")
    if head.key.shape[1] != model.n_tokens or len(head.output) != model.n_memory * model.n_states:
        raise ValueError("head and model must have the same tokens, memory values and states")
    if len(head.positions):
        raise ValueError("a head with position embeddings is not drawn here")
    words = different_words("words", words, model.n_tokens)
    if any(word != word.lower() or word.split() != [word] or set(word) & set(",.;") for word in words):
        raise ValueError(f"words must be in lower case, without spaces and punctuation, not {words}")
    return words


def attention_over_words(
    model: MemoryHMM,
    head: AttentionHead,
    mu,
    words: Sequence[str],
    text: str,
    values: Sequence[str],
    syntax: Sequence[int],
    question: str,
    cell: int = 0,
    examples: Sequence[str] = (),
    name: str = "attention",
) -> Moving:
    """Theorem 4.3: a text that the reader writes, the head's scores along it, its label and the true posterior.

    Args:
        model, head: as `theorem_4_3` relates them, for the task `mu`, (M,), about `cell`, with S* = `syntax`.
        words: the tokens' names, in lower case. text: the first text. examples: further texts, impossible ones too.
        values: names of the memory's values. question: the task in words, as a question.

    ValueError for arguments that do not fit the model, or an unknown word.
    """
    words = _words(model, head, words)
    values = different_words("values", values, model.n_memory)
    if at_least("cell", cell, 0) >= model.n_cells:
        raise ValueError(f"cell must be 0 to {model.n_cells - 1}, not {cell!r}")
    syntax = as_indices("syntax", syntax, model.n_syntax)
    for example in (text, *examples):
        _tokens(example, words)
    data = {
        "model": {
            **_memory_chain(model),
            "held": [memory[cell] for memory in _memories(model)],
            "count": model.n_memory,
        },
        "head": {
            **{part: getattr(head, part).detach().double().tolist() for part in ("query", "key", "value", "output")},
            "condition": head.condition,
        },
        "mu": as_vector("mu", mu, model.n_memory).tolist(),
        "essential": [cell * model.n_syntax + s for s in syntax],
        "words": words,
        "names": values,
        "question": of_type("question", question, str),
        "first": " ".join(text.split()),
        "examples": [" ".join(example.split()) for example in examples],
        "most": MOST_WORDS,
    }
    still = "A text of your own, and where the attention head looks in it."
    return Moving("attention", name, data, still, ("writing",))


def softmax_and_its_limit(
    model: MemoryHMM, head: AttentionHead, words: Sequence[str], text: str, name: str = "softmax"
) -> Moving:
    """The relaxation of (4.1): weights and score of the softmax head along one text, against the norm of its query.

    ValueError for arguments that do not fit each other, an unknown word, or a text that cannot occur.
    """
    words = _words(model, head, words)
    x = torch.tensor([_tokens(text, words)])
    if log_likelihood(model, x).item() == -torch.inf:
        raise ValueError(f"the text {text!r} has probability zero")
    probs = masked_token_probs(model, x)
    data = {
        "words": text.split(),
        "scores": head.scores(probs)[0].tolist(),
        "values": head.values(probs, model.embed(x))[0].tolist(),
        "attended": head.attended(probs)[0].tolist(),
        "unit": head.query.norm().item(),
    }
    return Moving("softmax", name, data, "The weights of a softmax as its query grows.")


def passing_messages(
    model: HMM, words: Sequence[str], states: Sequence[str], text: str, masked: Sequence[int] = (), name: str = "passes"
) -> Moving:
    """Section 2: the two passes along one text, a message at a time; what they give at each position; words to be masked.

    Args:
        model: of two states and at most four tokens. words: the tokens' names, which begin with different letters.
        states: the names of the states. text: one to five words. masked: positions that are masked first, from 1.

    ValueError for arguments that do not fit the model, an unknown word, or a text that cannot occur.
    """
    if not isinstance(model, HMM):
        raise ValueError(f"model must be an HMM, not {type(model).__name__}")
    if model.n_states != 2 or model.n_tokens > 4:
        raise ValueError(f"model must have 2 states and up to 4 tokens, not {model.n_states} and {model.n_tokens}")
    words = different_words("words", words, model.n_tokens)
    if len({word[0] for word in words}) < len(words):
        raise ValueError(f"words must begin with different letters, not {words}")
    tokens = _tokens(text, words, 5)
    if log_likelihood(model, [tokens]).item() == -torch.inf:
        raise ValueError(f"the text {text!r} has probability zero")
    data = {
        "model": _matrices(model),
        "states": different_words("states", states, 2),
        "words": words,
        "text": tokens,
        "masked": integers_between("masked", masked, 1, len(tokens)),
    }
    return Moving(
        "passes", name, data, "Messages from the left and from the right, and what they give at each position."
    )


def fake_token_or_other_words(
    emission, beliefs, labels, readout, weights, names: Sequence[str], name: str = "words"
) -> Moving:
    """What can be said of beliefs about three states or more in three tokens: weighed as a fake token does, or in other words.

    Args:
        emission: W, (3, S). readout: R, (3, S). weights: c of the nearest fake token, (S,), from 0 to 1.
        beliefs: p of each text, (n, S), at most MOST_INPUTS. labels: of the texts, (n,).
        names: of the states.

    ValueError for arguments that do not fit each other.
    """
    emission = as_distribution("emission", emission, 2)
    if len(emission) != 3:
        raise ValueError(f"the triangle needs three tokens, not {len(emission)}")
    n_states = emission.shape[1]
    readout = of_shape("readout", as_distribution("readout", readout, 2), tuple(emission.shape), ", as emission has")
    beliefs = of_width("beliefs", as_tensor("beliefs", beliefs, 2), n_states)
    if len(beliefs) > MOST_INPUTS:
        raise ValueError(f"beliefs must be of at most {MOST_INPUTS} texts, not {len(beliefs)}")
    weights = as_vector("weights", weights, n_states)
    if weights.min() < 0 or weights.max() > 1:
        raise ValueError(f"weights must be from 0 to 1, not {weights.tolist()}")
    data = {
        "names": different_words("names", names, n_states),
        "W": emission.tolist(),
        "R": readout.tolist(),
        "weights": weights.tolist(),
        "beliefs": beliefs.tolist(),
        "labels": as_labels(labels, len(beliefs)).tolist(),
    }
    return Moving("words", name, data, "What texts say at the gap: weighed by a fake token, or told in other words.")
