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
    weather,
)

from hmmlib.inference import reference
from hmmlib.inference.messages import (
    latent_given_others,
    log_likelihood,
    masked_token_probs,
    memory_posterior,
    posterior,
)
from hmmlib.models import families
from hmmlib.models.hmm import HMM
from hmmlib.models.sentences import sentences
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
    found = js([["prompt", "compute", [figure.data, u.tolist()]] for u in prompts])
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
    for gap, result in zip(gaps, js([["columns", "compute", [figure.data, gap]] for gap in gaps]), strict=True):
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
            calls.append(["attention", "compute", [figure.data, tokens]])
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
    (found,) = js([["attention", "compute", [figure.data, tokens]]])
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
    found = js([["softmax", "compute", [figure.data, norm]] for norm in norms])
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
    (found,) = js([["fake_token", "compute", [figure.data, weights.tolist(), shares.tolist()]]])
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
    found = js([["fake_token", "best", list(call)] for call in calls])
    assert found[0]["right"] >= 79
    assert 40 <= found[1]["right"] < 70
    assert [one["right"] for one in found[2:]] == [7, 10]


# Belief word by word


def random_figure(seed):
    """A random model with up to three cells, many of whose texts are impossible, and its figure."""
    n_cells, n_memory = 1 + seed % 3, 2 + seed % 2
    model = families.sparse_memory_hmm(n_memory, 2 * n_cells, 4, seed, 0.5, n_cells)
    values = [[f"v{j}{m}" for m in range(n_memory)] for j in range(n_cells)]
    cells = [f"c{j}" for j in range(n_cells)]
    return model, interactive.belief_word_by_word(model, list("pqrs"), cells, values, "xy", "p")


def texts(seed, n_tokens=4):
    """Random texts of up to six words, in which some words are hidden."""
    tokens = torch.randint(MASK, n_tokens, (8, 6), generator=draws(seed))
    return [row[: 1 + k % 6].tolist() for k, row in enumerate(tokens)]


def test_beliefs_are_those_of_hmmlib(js):
    cases = [(*random_figure(seed), tokens) for seed in range(9) for tokens in texts(seed)]
    found = js([["beliefs", "compute", [figure.data, tokens]] for _, figure, tokens in cases])
    possible, impossible = 0, 0
    for (model, _, tokens), result in zip(cases, found, strict=True):
        heads = [tokens[:k] for k in range(len(tokens) + 1)]
        occurs = [not head or log_likelihood(model, [head]).item() > -np.inf for head in heads]
        assert result["impossible"] == (0 if all(occurs) else occurs.index(False))
        assert len(result["beliefs"]) == len(result["next"]) == sum(occurs)
        impossible += not all(occurs)
        for head, belief, ahead in zip(heads, result["beliefs"], result["next"], strict=False):
            possible += 1
            behind = torch.tensor([[*head, MASK]])  # a hidden word says nothing
            for j, cell in enumerate(belief["cells"]):
                close(cell, memory_posterior(model, behind, j)[0])
            close(belief["state"], posterior(model, behind, at=len(head))[0])
            close(ahead, masked_token_probs(model, behind)[0, -1])
    assert possible >= 150
    assert impossible >= 10


def test_a_damaged_memory_model_is_seen(js):
    model, figure = random_figure(1)
    tokens = next(t for k in range(99) for t in texts(k) if len(t) > 2 and log_likelihood(model, [t]) > -torch.inf)
    figure.data["model"]["emission"] = [row[::-1] for row in figure.data["model"]["emission"]]
    (found,) = js([["beliefs", "compute", [figure.data, tokens]]])
    behind = torch.tensor([[*tokens, MASK]])
    assert len(found["beliefs"]) <= len(tokens) or any(
        (torch.tensor(found["beliefs"][-1]["cells"][j]) - memory_posterior(model, behind, j)[0]).abs().max() > 1e-3
        for j in range(model.n_cells)
    )


def test_what_moves_is_what_two_digits_show(js):
    cells = [{"name": "a"}, {"name": "b"}]
    one, other = {"cells": [[0.5, 0.5], [0.2, 0.8]]}, {"cells": [[0.503, 0.497], [0.21, 0.79]]}
    assert js([["beliefs", "moved", [cells, one, other]], ["beliefs", "moved", [cells, one, one]]]) == [["b"], []]


def test_the_likeliest_come_first_and_the_impossible_not_at_all(js):
    shares = [0.1, 0.0, 0.3, 0.3 + 1e-12, 0.2]
    assert js([["beliefs", "largest", [shares, most]] for most in (2, 9)]) == [[2, 3], [2, 3, 4, 0]]


@pytest.mark.parametrize(
    ("written", "tokens"),
    [("The cow.", [2, 3, 0]), ("the . COW,cow", [2, 0, 3, 3]), ("a [mask] cow", [1, -1, 3]), ("a.", [1, 0])],
)
def test_a_full_stop_is_a_word_where_there_is_one(written, tokens, js):
    assert js([["writing", "parse", [[".", "a", "the", "cow"], written, 9, "[mask]"]]]) == [{"tokens": tokens}]
    (without,) = js([["writing", "parse", [["a", "the", "cow"], "a [mask]", 9]]])
    assert "[mask]" in without["problem"]


def test_many_words_are_not_all_listed(js):
    words = sentences().words
    (found,) = js([["writing", "parse", [words, "zebra", 9, "[mask]"]]])
    assert "It has 80 words, such as " in found["problem"]
    assert len(found["problem"]) < 140


def test_what_the_page_says_of_its_sentence(js):
    """Articles and prepositions change nothing of the memory; nouns, verb, object and adverb do."""
    toy, text = sentences(), "the cow in the meadow chewed on the clover merrily ."
    figure = interactive.belief_word_by_word(toy.model, toy.words, toy.cells, toy.values, toy.syntax, text)
    (found,) = js([["beliefs", "compute", [figure.data, toy.encode(text)[0].tolist()]]])
    steps = zip(found["beliefs"][1:], found["beliefs"][:-1], strict=True)
    moved = js([["beliefs", "moved", [figure.data["cells"], *step]] for step in steps])
    telling = dict(zip(text.split(), moved, strict=True))  # the two “the” are alike
    both = ["subject", "location"]
    assert telling == {
        "cow": both, "meadow": both, "chewed": both, "clover": both, "merrily": ["sentiment"],
        "the": [], "in": [], "on": [], ".": [],
    }  # fmt: skip
    assert max(found["beliefs"][5]["state"]) == pytest.approx(1)
    assert figure.data["states"][np.argmax(found["beliefs"][5]["state"])] == "location, noun"


# Messages, one after the other


def two_state_case(seed):
    """A model of two states, a text that can occur, and which of its words are masked."""
    model = families.sparse_hmm(2, 2 + seed % 3, seed, 0.3 * (seed % 2)) if seed else weather()[0]
    tokens = model.sample(1, 1 + seed % 5, seed).tokens[0].tolist()
    masked = [bool(flag) for flag in torch.rand(len(tokens), generator=draws(seed)) < 0.4]
    words = [*"abcd"[: model.n_tokens]]
    at = [i + 1 for i, flag in enumerate(masked) if flag]
    figure = interactive.passing_messages(model, words, "xy", " ".join(words[token] for token in tokens), at)
    assert figure.data["text"] == tokens
    return model, [MASK if flag else token for token, flag in zip(tokens, masked, strict=True)], masked, figure


@pytest.mark.parametrize("seed", range(10))
def test_both_passes_are_those_of_hmmlib(seed, js):
    model, tokens, masked, figure = two_state_case(seed)
    last = len(tokens)
    (found,) = js([["messages", "compute", [figure.data, masked, 2 * last]]])
    marginals, left, right = (m[..., 0] for m in reference.left_and_right(model, model.embed([tokens])))
    taus = reference.tau(model, model.embed([tokens]))[0]
    places = found["places"]
    close([place["left"] for place in places], right)
    close([np.array(place["right"]) for place in places] * marginals.numpy(), left)
    close([place["tau"] for place in places[1:]], taus)
    start = np.array(places[0]["tau"])
    close(start.sum(), log_likelihood(model, [tokens]).exp().item())
    close(start / start.sum(), posterior(model, [tokens])[0])
    close([place["guess"] for place in places[1:]], masked_token_probs(model, [tokens])[0])
    assert places[0]["guess"] is None


def test_messages_come_one_after_the_other(js):
    _, tokens, masked, figure = two_state_case(9)
    last = len(tokens)
    assert last == 5
    seen = js([["messages", "compute", [figure.data, masked, step]] for step in range(2 * last + 1)])
    there = [
        {name: [bool(place[name]) for place in look["places"]] for name in ("left", "right", "tau", "guess")}
        for look in seen
    ]
    assert there[0] == {
        "left": [True] + [False] * 5,
        "right": [False] * 5 + [True],
        "tau": [False] * 6,
        "guess": [False] * 6,
    }
    for before, after, look in zip(there, there[1:], seen[1:], strict=False):
        side = "left" if look["rightwards"] else "right"
        gained = [i for i in range(last + 1) if after[side][i] and not before[side][i]]
        assert gained == [look["at"]]
        assert look["from"] == look["at"] - (1 if side == "left" else -1)
        other = "right" if side == "left" else "left"
        assert after[other] == before[other]
        assert after["tau"] == [a and b for a, b in zip(after["left"], after["right"], strict=True)]
        assert after["guess"] == [False, *after["tau"][1:]]
    assert all(there[-1]["tau"])


def test_the_sums_that_are_written_out_are_the_messages(js):
    for seed in range(6):
        _, tokens, masked, figure = two_state_case(seed)
        steps = range(1, 2 * len(tokens) + 1)
        seen = js([["messages", "compute", [figure.data, masked, step]] for step in steps])
        written = js([["messages", "sums", [figure.data, look]] for look in seen])
        for look, lines in zip(seen, written, strict=True):
            message = look["places"][look["at"]]["left" if look["rightwards"] else "right"]
            for entry, (terms, total) in zip(message, lines, strict=True):
                assert float(total) == pytest.approx(entry, rel=1e-3)
                assert eval_sum(terms) == pytest.approx(entry, rel=1e-3, abs=1e-12)


def eval_sum(terms: str) -> float:
    """The value of a·b·c + d·e·f."""
    return sum(float(np.prod([float(factor) for factor in term.split("·")])) for term in terms.split(" + "))


def test_what_is_told_of_a_message_names_its_word(js):
    model, words = weather()
    figure = interactive.passing_messages(model, words, ["calm", "stormy"], "sun cloud rain sun", [2])
    masked = [False, True, False, False]
    seen = js([["messages", "compute", [figure.data, masked, step]] for step in range(9)])
    said = js([["messages", "explanation", [figure.data, look, masked]] for look in seen])
    assert "from the start" in said[0]
    assert "H₁ to H₂: the message at H₁ times e(sun) = (0.7, 0.1), carried one step by A." in said[2]
    assert "word 2 is masked" in said[3]
    assert "word 2 is masked" in said[7]
    assert "H₃ to H₂: the message at H₃ times e(rain) = (0.1, 0.7), carried one step back by Aᵀ" in said[6]
    assert "they give τ₂ and G₂" in said[6]
    assert "posterior" in said[8]
