"""The moving figures: their JavaScript, run under Node, against hmmlib."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from companion.figures import interactive
from moving_figures import (
    ASK,
    MOVING,
    WORDS,
    close,
    draws,
    language,
    prompt_figure,
    random_attention,
    three_states,
)

from hmmlib.inference.messages import (
    latent_given_others,
    log_likelihood,
    masked_token_probs,
    memory_posterior,
    posterior,
)
from hmmlib.models import families
from hmmlib.models.hmm import HMM
from hmmlib.theory.assumptions import AssumptionError
from hmmlib.theory.theorems import claim_d_3, concentrated, ground_truth, theorem_3_3
from hmmlib.training.readouts import Readout
from hmmlib.validation import MASK


def lists(model) -> dict:
    return {name: getattr(model, name).tolist() for name in ("transition", "emission", "initial")}


def text(model, length: int, seed: int) -> list[int]:
    """Any tokens: in a sparse model many of these texts are impossible."""
    return torch.randint(model.n_tokens, (length,), generator=draws(seed)).tolist()


def evidence(model, tokens) -> list[list[float]]:
    return model.embed([tokens])[0].tolist()


# Chains without memory

CHAINS = [(seed, length, zeros) for seed in range(8) for length, zeros in ((1, 0.0), (6, 0.5), (40, 0.2))]


def chain_case(seed, length, zeros):
    model = families.sparse_hmm(2 + seed % 4, 3, seed, zeros)
    tokens = text(model, length, seed)
    tokens[:: 3 + seed] = [MASK] * len(tokens[:: 3 + seed])
    return model, tokens


def test_messages_are_those_of_hmmlib(js):
    cases = [chain_case(*case) for case in CHAINS]
    found = js([["kit", "latents", [lists(model), evidence(model, tokens)]] for model, tokens in cases])
    impossible = 0
    for (model, tokens), result in zip(cases, found, strict=True):
        close(result[0], posterior(model, [tokens])[0])
        close(result[1:], latent_given_others(model, [tokens])[0])
        impossible += (log_likelihood(model, [tokens]) == -torch.inf).item()
    assert 3 <= impossible <= len(cases) - 3


def test_a_damaged_model_is_seen(js):
    model, tokens = families.sparse_hmm(3, 3, 1, 0.0), [0, 1, 2, 0]
    damaged = lists(model)
    damaged["transition"][0][0] += 0.01
    (found,) = js([["kit", "latents", [damaged, evidence(model, tokens)]]])
    assert (torch.tensor(found[1:]) - latent_given_others(model, [tokens])[0]).abs().max() > 1e-4


def test_a_damaged_script_is_seen(js, tmp_path):
    folder = shutil.copytree(MOVING, tmp_path / "moving")
    kit = (folder / "kit.js").read_text()
    assert kit.count("step(transposed(transition), ") == 1
    (folder / "kit.js").write_text(kit.replace("step(transposed(transition), ", "step(transition, "))
    model, tokens = families.sparse_hmm(3, 3, 1, 0.0), [0, 1, 2, 0]
    (found,) = js([["kit", "latents", [lists(model), evidence(model, tokens)]]], folder)
    assert (torch.tensor(found[1:]) - latent_given_others(model, [tokens])[0]).abs().max() > 1e-3


# Conditioning by a prompt


@pytest.mark.parametrize("seed", range(5))
def test_prompts_condition_as_in_hmmlib(seed, js):
    model, mu, prompt, head, x, figure = prompt_figure(seed)
    draw = torch.rand(3, 4, generator=draws(seed), dtype=torch.float64)
    draw[1, seed % 4] = 0
    prompts = [prompt, torch.ones(4, dtype=torch.float64), prompt.clamp(min=0.03), torch.zeros_like(prompt), *draw]
    found = js([["prompt", "look", [figure.data, u.tolist()]] for u in prompts])
    left = js([["prompt", "carried", [lists(model), u.tolist()]] for u in prompts])
    close(left, torch.stack(prompts) * model.marginal(1) @ model.transition.T)
    behind = torch.cat([torch.full_like(x[:, :1], MASK), x], 1)
    labels = ground_truth(model, mu, x) >= 0
    assert figure.data["inputs"] == x.tolist()
    for u, result in zip(prompts, found, strict=True):
        points = result["points"]
        gap = masked_token_probs(model, behind, u)[:, 1]
        close([p["latent"] for p in points], latent_given_others(model, behind, u)[:, 1])
        close([p["gap"] for p in points], gap)
        assert [p["label"] for p in points] == labels.tolist()
        assert [p["right"] for p in points] == ((head(gap) >= 0) == labels).tolist()
        assert [p["occurs"] for p in points] == (gap.sum(1) > 0).tolist()
        assert result["possible"] == (model.transition @ (u * model.marginal(1)) > 0).tolist()
    assert all(p["right"] for p in found[0]["points"])
    assert not any(p["occurs"] for p in found[3]["points"])


# Nearly dependent columns


def test_singular_values_and_inverses_are_those_of_lapack(js):
    matrices = [torch.rand(rows, 3, generator=draws(rows), dtype=torch.float64) for rows in range(3, 9)]
    matrices += [families.nearly_dependent_hmm(3, 3, 10.0**-k, k).emission for k in range(6)]
    matrices += [torch.diag(torch.tensor([1.0, 1e-9, 3.0], dtype=torch.float64)), torch.eye(3).double()]
    equal = torch.rand(3, 3, generator=draws(0), dtype=torch.float64)
    equal[:, 2] = equal[:, 0]
    matrices += [equal, torch.zeros(3, 3).double(), torch.ones(4, 3).double()]
    found = js([["columns", "singularValues", [m.tolist()]] for m in matrices])
    for matrix, values in zip(matrices, found, strict=True):
        close(values, torch.linalg.svdvals(matrix), 1e-10)
    square = [m for m in matrices if m.shape == (3, 3) and torch.linalg.cond(m) < 1e7]
    assert len(square) >= 7
    for matrix, inverse in zip(square, js([["columns", "inverse", [m.tolist()]] for m in square]), strict=True):
        close(inverse @ matrix.numpy(), np.eye(3), 1e-14 * torch.linalg.cond(matrix).item())


@pytest.mark.parametrize(("merge", "size"), [((0, 1), 0.001), ((2, 0), 0.2)])
def test_a_closing_gap_does_what_hmmlib_says(merge, size, js):
    model, mu = three_states()
    figure = interactive.nearly_dependent_columns(model, mu, "abc", merge, size)
    gaps = [1.0, 0.2, 0.01, 1e-4, 0.0]
    x, noise = torch.tensor(figure.data["inputs"]), torch.tensor(figure.data["noise"], dtype=torch.float64)
    behind = torch.cat([torch.full_like(x[:, :1], MASK), x], 1)
    assert 0.9 < noise.std() / size < 1.1
    for gap, result in zip(gaps, js([["columns", "look", [figure.data, gap]] for gap in gaps]), strict=True):
        emission = model.emission.clone()
        emission[:, merge[1]] = (1 - gap) * emission[:, merge[0]] + gap * emission[:, merge[1]]
        moved = HMM(model.transition, emission, model.initial)
        p, g = posterior(moved, x), masked_token_probs(moved, behind)[:, 0]
        middle = (p @ mu).sort().values[len(x) // 2 - 1 : len(x) // 2 + 1].mean()
        close(result["task"], mu - middle)
        close([point["guess"] for point in result["points"]], g)
        labels = p @ (mu - middle) >= 0
        assert [point["label"] for point in result["points"]] == labels.tolist()
        close(result["values"], torch.linalg.svdvals(emission), 1e-10)
        if gap == 0:
            assert result["dependent"]
            assert result["head"] is None
            with pytest.raises(AssumptionError):
                theorem_3_3(moved, mu)
            continue
        head = theorem_3_3(moved, mu - middle)
        assert not result["dependent"]
        close(np.array(result["head"]) / head.weights.numpy(), np.ones(3), 1e-12 * head.condition)
        close([point["noisy"] for point in result["points"]], (g + noise).clamp(min=0))
        assert all(point["right"] for point in result["points"])
        right = (head((g + noise).clamp(min=0)) >= 0) == labels
        assert [point["rightNoisy"] for point in result["points"]] == right.tolist()
    assert right.sum() < 60  # at the smallest gap noise has its way


def test_whether_a_head_is_left_is_decided_by_a_linear_program():
    model, mu = three_states()
    assert interactive.nearly_dependent_columns(model, mu, "abc", (0, 1)).data["refuted"]
    assert not interactive.nearly_dependent_columns(model, mu, "abc", (0, 2)).data["refuted"]


# Attention


def attention_cases():
    model, head = language()
    mu = torch.tensor([1.0, -1.0], dtype=torch.float64)
    texts = ["the horse a cow the field cow a horse", "field barn field the horse", "a a cow", "the the a", "cow"]
    yield model, head, mu, 0, [1], WORDS, [[WORDS.index(word) for word in text.split()] for text in texts]
    for seed in range(9):
        model, head = random_attention(seed)
        mu = torch.randn(model.n_memory, generator=draws(seed), dtype=torch.float64)
        texts = [text(model, 1 + k, 10 * seed + k) for k in range(8)]
        yield model, head, mu, seed % model.n_cells, [seed % 2], list("pqrs"), texts


def test_attention_is_that_of_hmmlib(js):
    impossible, possible, cases, calls = 0, 0, list(attention_cases()), []
    for model, head, mu, cell, syntax, words, texts in cases:
        values = [f"value {m}" for m in range(model.n_memory)]
        figure = interactive.attention_over_words(model, head, mu, words, words[0], values, syntax, ASK, cell)
        for tokens in texts:
            calls.append(["attention", "look", [figure.data, tokens]])
            calls.append(["attention", "taus", [figure.data["model"], tokens]])
    results = iter(js(calls))
    for model, head, mu, cell, syntax, _, texts in cases:
        for tokens in texts:
            result, tau = next(results), next(results)
            latent = latent_given_others(model, [tokens])[0]
            close(np.asarray(tau[1:]).sum((1, 2)), latent.sum(1))
            prefixes = [log_likelihood(model, [tokens[:k]]).item() for k in range(1, len(tokens) + 1)]
            if prefixes[-1] == -np.inf:
                assert result == {"impossible": prefixes.index(-np.inf) + 1}
                impossible += 1
                continue
            possible += 1
            g, embedded = masked_token_probs(model, [tokens]), model.embed([tokens])
            scale = 1 + head.key.abs().max().item() + head.value.abs().max().item() ** 2
            close(result["posterior"], memory_posterior(model, [tokens], cell)[0])
            close(result["target"], ground_truth(model, mu, [tokens], cell)[0])
            close(result["scores"], head.scores(g)[0], 1e-12 * scale)
            close(result["values"], head.values(g, embedded)[0], 1e-12 * scale)
            close(result["output"], head(g, embedded)[0], 1e-12 * scale)
            assert result["attended"] == head.attended(g)[0].tolist()
            assert result["sure"] == concentrated(model, [tokens], cell, syntax)[0].tolist()
    assert impossible >= 8
    assert possible >= 20


def test_guesses_are_G(js):
    model, head = random_attention(4)
    figure = interactive.attention_over_words(model, head, [1.0, 2], "pqrs", "p", "uv", [0], ASK)
    tokens = next(t for k in range(99) if log_likelihood(model, [t := text(model, 5, k)]) > -torch.inf)
    (taus,) = js([["attention", "taus", [figure.data["model"], tokens]]])
    close(js([["attention", "guess", [figure.data["model"], tau]] for tau in taus[1:]]),
          masked_token_probs(model, [tokens])[0])  # fmt: skip


def test_scores_of_the_theorem_are_read_by_its_own_matrices(js):
    model, head = language()
    recovery = claim_d_3(model, 0, [1])
    tokens = [1, 3, 0, 2]
    figure = interactive.attention_over_words(model, head, [1.0, -1], WORDS, "cow", ["cow", "horse"], [1], ASK)
    (found,) = js([["attention", "look", [figure.data, tokens]]])
    close(found["scores"], masked_token_probs(model, [tokens])[0] @ recovery.theta_2.sum((0, 1)))


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("zebra cow", "Not in this language: zebra. It has 6 words: a, the, cow, horse, barn and field."),
        ("cow gnu, zebra", "gnu and zebra"),
        ("the ho", "can become horse"),
        ("the ho ", "Not in this language: ho"),
        ("  ", "Write a text"),
        ("cow " * 11, "At most 10 words fit here, and these are 11."),
    ],
)
def test_what_is_no_text_gets_a_clear_message(written, says, js):
    (found,) = js([["writing", "parse", [WORDS, written, 10]]])
    assert says in found["problem"]
    assert "tokens" not in found


def test_texts_are_read_whatever_their_spaces_and_capitals(js):
    (found,) = js([["writing", "parse", [WORDS, " The cow,  the BARN. ", 10]]])
    assert found == {"tokens": [1, 2, 1, 4]}


def test_ties_and_zeros_are_those_up_to_rounding(js):
    ties = js([["attention", "argmax", [[1, 1 - 1e-15, 0.5, 1 - 1e-9], condition]] for condition in (1, 1e5)])
    assert ties == [[True, True, False, False], [True, True, False, True]]
    one = [1.0, 1, 1]
    third = {"value": [[0.1, 0, 0], [0, 0.2, 0], [0, 0, -0.3]], "output": one, "condition": 1}
    calls = [["kit", "score", [[0.1, 0.2, -0.3], one]], ["attention", "valueOf", [third, one, one]]]
    assert 0.1 + 0.2 - 0.3 > 0
    assert js(calls) == [0, 0]
    assert js([["kit", "score", [[0.1, 0.2, -0.3 + 1e-14], one]]])[0] > 0


# Softmax


@pytest.mark.parametrize("size", [1.0, 3.0])
def test_softmax_goes_to_the_shared_maximum(size, js):
    model, head = language()
    head = replace(head, query=size * head.query)
    figure = interactive.softmax_and_its_limit(model, head, WORDS, "the horse a cow the field cow a horse")
    tokens = [[WORDS.index(word) for word in figure.data["words"]]]
    g, embedded, unit = masked_token_probs(model, tokens), model.embed(tokens), head.query.norm().item()
    norms = [0.1, 1.0, 7.0, 300.0, 1e4, 1e9]
    found = js([["softmax", "look", [figure.data, norm]] for norm in norms])
    for norm, result in zip(norms[:-1], found, strict=False):
        close(result["weights"], (norm / unit * head.scores(g)).softmax(1)[0])
        close(result["output"], head.soft(g, embedded, norm / unit)[0])
        close(result["exact"], head(g, embedded)[0])
    assert sum(figure.data["attended"]) == 2
    close(found[4]["weights"], np.array(figure.data["attended"]) / 2)
    assert max(found[0]["weights"]) < 0.13


def test_softmax_does_not_overflow(js):
    close(js([["softmax", "softmax", [[1.0, 1.0, 0.5], 1e300]]])[0], [0.5, 0.5, 0])


# A fake token, or other words


@pytest.mark.parametrize("seed", range(4))
def test_what_is_said_behind_weights_and_other_words_is_the_readout_of_hmmlib(js, seed):
    model, rng = families.regular_hmm(4, 3, seed, zeros=0.2), np.random.default_rng(seed)
    beliefs, other = rng.dirichlet(np.ones(4), 30), rng.dirichlet(np.ones(3), 4).T
    weights, shares = rng.random(4) * (rng.random(4) < 0.7), rng.random(4)
    figure = interactive.fake_token_or_other_words(model.emission, beliefs, beliefs[:, 0] > 0.3, other, weights, "abcd")
    assert figure.data["beliefs"] == beliefs.tolist()
    (found,) = js([["words", "look", [figure.data, weights.tolist(), shares.tolist()]]])
    table = (1 - shares) * model.emission.numpy() + shares * other
    want = Readout(torch.as_tensor(table), torch.as_tensor(weights))(torch.as_tensor(beliefs))
    close(found["table"], table)
    close(found["points"], want)
    right = (np.array(found["points"]) @ found["head"] >= 0) == (beliefs[:, 0] > 0.3)
    assert right.sum() == found["right"]


def test_the_best_head_parts_what_can_be_parted_and_no_more(js):
    rng = np.random.default_rng(0)
    points = rng.dirichlet(np.ones(3), 80)
    apart = (points @ [1.0, -0.4, -0.1] > 0.1).tolist()
    mixed = (rng.random(80) < 0.5).tolist()
    same = [[0.2, 0.3, 0.5]] * 10
    calls = [(points.tolist(), apart), (points.tolist(), mixed), (same, [True] * 7 + [False] * 3), (same, [False] * 10)]
    found = js([["words", "best", list(call)] for call in calls])
    assert found[0]["right"] >= 79
    assert 40 <= found[1]["right"] < 70
    assert [one["right"] for one in found[2:]] == [7, 10]
