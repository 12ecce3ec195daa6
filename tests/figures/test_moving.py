"""The moving figures' JavaScript, run under Node, computes what hmmlib does, and puts what it finds into true words."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from companion.figures import interactive
from constructions import behind_gap
from moving_figures import MU, THREE_STATES, WEATHER, WORDS, draws, language, prompt_figure

import hmmlib
from hmmlib.experiments.store import STORE
from hmmlib.inference import reference


def close(found, expected, tolerance=1e-12):
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def random_texts(n_tokens: int, seed: int, first: int = 0) -> list[list[int]]:
    """Texts of one to eight tokens from `first` on: in a sparse model many of them are impossible."""
    tokens = torch.randint(first, n_tokens, (8, 8), generator=draws(seed)).tolist()
    return [row[: k + 1] for k, row in enumerate(tokens)]


def random_memory_hmm(seed):
    """A model with up to three cells, many of whose texts are impossible."""
    n_cells = 1 + seed % 3
    return hmmlib.sparse_memory_hmm(2 + seed % 2, 2 * n_cells, 4, seed, 0.5, n_cells)


def first_impossible(model, tokens) -> int:
    """The first position whose token cannot follow those before it, or 0."""
    prefixes = (hmmlib.log_likelihood(model, [tokens[:k]]).item() for k in range(1, len(tokens) + 1))
    return next((k for k, found in enumerate(prefixes, 1) if found == -torch.inf), 0)


@pytest.mark.parametrize("seed", range(5))
def test_prompts_condition_as_in_hmmlib(seed, js):
    model, mu, prompt, head, x, figure = prompt_figure(seed)
    draw = torch.rand(4, generator=draws(seed), dtype=torch.float64)
    draw[seed % 4] = 0
    prompts, labels = [prompt, torch.zeros_like(prompt), draw], hmmlib.ground_truth(model, mu, x) >= 0
    found = js([["prompt", "compute", [figure.data, u.tolist()]] for u in prompts])
    for u, result in zip(prompts, found, strict=True):
        points, gap = result["points"], hmmlib.masked_token_probs(model, behind_gap(x), u)[:, 1]
        close([p["latent"] for p in points], hmmlib.latent_given_others(model, behind_gap(x), u)[:, 1])
        close([p["gap"] for p in points], gap)
        assert [p["label"] for p in points] == labels.tolist()
        assert [p["right"] for p in points] == ((head(gap) >= 0) == labels).tolist()
        assert [p["occurs"] for p in points] == (gap.sum(1) > 0).tolist()
        assert result["possible"] == (model.transition @ (u * model.marginal(1)) > 0).tolist()
    assert all(p["right"] for p in found[0]["points"])
    assert not any(p["occurs"] for p in found[1]["points"])


@pytest.mark.parametrize(("merge", "size", "refuted"), [((0, 1), 0.001, True), ((0, 2), 0.2, False)])
def test_a_closing_gap_does_what_hmmlib_computes_and_says_whether_a_head_is_left(merge, size, refuted, js):
    model, mu = THREE_STATES, MU
    data = interactive.nearly_dependent_columns(model, mu, "abc", merge, size).data
    x, noise = torch.tensor(data["inputs"]), torch.tensor(data["noise"], dtype=torch.float64)
    assert (data["refuted"], 0.9 < noise.std() / size < 1.1) == (refuted, True)
    gaps = [1.0, 0.2, 0.01, 1e-4, 0.0]
    for gap, result in zip(gaps, js([["columns", "compute", [data, gap]] for gap in gaps]), strict=True):
        emission = model.emission.clone()
        emission[:, merge[1]] = (1 - gap) * emission[:, merge[0]] + gap * emission[:, merge[1]]
        moved = hmmlib.HMM(model.transition, emission, model.initial)
        p, g = hmmlib.posterior(moved, x), hmmlib.masked_token_probs(moved, behind_gap(x))[:, 0]
        task = mu - (p @ mu).sort().values[len(x) // 2 - 1 : len(x) // 2 + 1].mean()
        labels, names = p @ task >= 0, ("guess", "label", "noisy", "right", "rightNoisy")
        found = {name: [point[name] for point in result["points"]] for name in names}
        close(result["task"], task)
        close(found["guess"], g)
        close(result["values"], torch.linalg.svdvals(emission), 1e-10)
        assert found["label"] == labels.tolist()
        assert result["dependent"] == (result["head"] is None) == (gap == 0)
        if gap:
            head, noisy = hmmlib.theorem_3_3(moved, task), (g + noise).clamp(min=0)
            close(np.array(result["head"]) / head.weights.numpy(), np.ones(3), 1e-12 * head.condition)
            close(found["noisy"], noisy)
            assert all(found["right"])
            assert found["rightNoisy"] == ((head(noisy) >= 0) == labels).tolist()


def test_each_level_of_the_gate_shows_its_own_predictions_and_their_best_head(js):
    frames = np.random.default_rng(0).dirichlet(np.ones(3), (2, 2, 20)).round(4)
    labels = (frames[1, 1] @ [1.0, -0.4, -0.1] > 0.1).tolist()
    figure = interactive.open_and_shut(frames, labels, [0] * 20, "a", "xyz")
    levels = [(0, 0), (0, 1), (1, 0), (1, 1)]
    results = js([["gate", "compute", [figure.data, *level]] for level in levels])
    for level, result in zip(levels, results, strict=True):
        close(result["points"], frames[level] / frames[level].sum(1, keepdims=True))
        assert result["right"] == ((np.array(result["points"]) @ result["head"] >= 0) == labels).sum()
    assert results[-1]["right"] >= 19 > min(result["right"] for result in results)


def test_the_best_head_parts_what_can_be_parted_and_no_more(js):
    points = np.random.default_rng(0).dirichlet(np.ones(3), 80)
    apart = (points.tolist(), (points @ [1.0, -0.4, -0.1] > 0.1).tolist())
    alike = ([[0.2, 0.3, 0.5]] * 10, [True] * 7 + [False] * 3)
    apart, alike = (found["right"] for found in js([["gate", "best", case] for case in (apart, alike)]))
    assert (apart >= 79, alike) == (True, 7)


@pytest.mark.parametrize("seed", range(8))
def test_messages_come_one_by_one_with_their_sums_and_are_those_of_hmmlib(seed, js):
    model = hmmlib.sparse_hmm(2, 2 + seed % 3, seed, 0.3 * (seed % 2)) if seed else WEATHER
    tokens, words = model.sample(1, 1 + seed % 5, seed).tokens[0].tolist(), "abcd"[: model.n_tokens]
    masked = (torch.rand(len(tokens), generator=draws(seed)) < 0.4).tolist()
    figure = interactive.passing_messages(model, words, "xy", " ".join(words[token] for token in tokens))
    last, x = len(tokens), [[hmmlib.MASK if flag else token for token, flag in zip(tokens, masked, strict=True)]]
    seen = js([["messages", "compute", [figure.data, masked, step]] for step in range(2 * last + 1)])
    sums = js([["messages", "sums", [figure.data, look]] for look in seen[1:]])

    for step, look in enumerate(seen):
        left = [i <= step for i in range(last + 1)]
        right = [i >= min(last, 2 * last - step) for i in range(last + 1)]
        there = {name: [bool(place[name]) for place in look["places"]] for name in ("left", "right", "tau", "guess")}
        both = [a and b for a, b in zip(left, right, strict=True)]
        assert there == {"left": left, "right": right, "tau": both, "guess": [False, *both[1:]]}
    for look, written in zip(seen[1:], sums, strict=True):
        message = look["places"][look["at"]]["left" if look["rightwards"] else "right"]
        for entry, (terms, total) in zip(message, written, strict=True):  # terms: a·b·c + d·e·f
            value = sum(np.prod(list(map(float, term.split("·")))) for term in terms.split(" + "))
            assert [float(total), value] == pytest.approx([entry] * 2, rel=1e-3, abs=1e-12)

    places, (marginals, left, right) = seen[-1]["places"], reference.left_and_right(model, model.embed(x))
    close([place["left"] for place in places], right[..., 0])
    close([np.array(place["right"]) for place in places] * marginals[..., 0].numpy(), left[..., 0])
    close([place["tau"] for place in places[1:]], reference.tau(model, model.embed(x))[0])
    close([place["guess"] for place in places[1:]], hmmlib.masked_token_probs(model, x)[0])
    start = np.array(places[0]["tau"])
    close(start.sum(), hmmlib.log_likelihood(model, x).exp().item())
    close(start / start.sum(), hmmlib.posterior(model, x)[0])


def test_attention_is_that_of_hmmlib(js):
    """Of one model in four all scores tie."""
    cases, calls, impossible = [], [], 0
    for seed in range(9):
        model, draw = random_memory_hmm(seed), partial(torch.randn, generator=draws(seed), dtype=torch.float64)
        width, mu, cell, syntax = model.n_memory * model.n_states, draw(model.n_memory), seed % model.n_cells, seed % 2
        weights = draw(model.n_states + 1) * (seed % 4 > 0), draw(model.n_states + 1, 4), draw(width, 4), draw(width)
        head = hmmlib.AttentionHead(*weights, condition=3.0, n_cells=model.n_cells)
        values = "vwx"[: model.n_memory]
        figure = interactive.attention_over_words(model, head, mu, "abcd", "a", values, [syntax], "which?", cell)
        for tokens in random_texts(4, seed):
            cases.append((model, head, mu, cell, syntax, [tokens]))
            calls.append(["attention", "compute", [figure.data, tokens]])
    for (model, head, mu, cell, syntax, x), result in zip(cases, js(calls), strict=True):
        if at := first_impossible(model, x[0]):
            assert result == {"impossible": at}
            impossible += 1
            continue
        g, embedded = hmmlib.masked_token_probs(model, x), model.embed(x)
        rounding = 1e-12 * (1 + head.key.abs().max().item() + head.value.abs().max().item() ** 2)
        close(result["posterior"], hmmlib.memory_posterior(model, x, cell)[0])
        close(result["target"], hmmlib.ground_truth(model, mu, x, cell)[0])
        close(result["scores"], head.scores(g)[0], rounding)
        close(result["values"], head.values(g, embedded)[0], rounding)
        close(result["output"], head(g, embedded)[0], rounding)
        assert result["attended"] == head.attended(g)[0].tolist()
        assert result["sure"] == hmmlib.concentrated(model, x, cell, [syntax])[0].tolist()
    assert 8 <= impossible <= len(cases) - 20


def test_ties_and_zeros_are_those_up_to_rounding(js):
    ties = js([["attention", "argmax", [[1, 1 - 1e-15, 0.5, 1 - 1e-9], condition]] for condition in (1, 1e5)])
    assert ties == [[True, True, False, False], [True, True, False, True]]
    ones = [1.0, 1, 1]
    third = {"value": [[0.1, 0, 0], [0, 0.2, 0], [0, 0, -0.3]], "output": ones, "condition": 1}
    scores = [["kit", "score", [[0.1, 0.2, last], ones]] for last in (-0.3, -0.3 + 1e-14)]
    tie, above, value = js([*scores, ["attention", "valueOf", [third, ones, ones]]])
    assert 0.1 + 0.2 - 0.3 > 0 == tie == value < above


def test_softmax_goes_to_the_shared_maximum_and_does_not_overflow(js):
    (model, head), text = language(), "the horse a cow the field cow a horse"
    head = replace(head, query=3.0 * head.query)
    data = interactive.softmax_and_its_limit(model, head, WORDS, text).data
    tokens = [[WORDS.index(word) for word in text.split()]]
    g, embedded, unit = hmmlib.masked_token_probs(model, tokens), model.embed(tokens), head.query.norm().item()
    norms = [0.1, 1.0, 7.0, 300.0, 1e4]
    found = js([["softmax", "compute", [data, norm]] for norm in norms])
    for norm, result in zip(norms, found, strict=True):
        close(result["weights"], (norm / unit * head.scores(g)).softmax(1)[0])
        close(result["output"], head.soft(g, embedded, norm / unit)[0])
        close(result["exact"], head(g, embedded)[0])
    assert sum(data["attended"]) == 2
    close(found[-1]["weights"], np.array(data["attended"]) / 2)
    assert js([["softmax", "softmax", [[1.0, 1.0, 0.5], 1e300]]]) == [[0.5, 0.5, 0]]


def test_a_text_becomes_tokens_or_a_clear_message(js):
    cases = [
        (WORDS, "zebra cow", "Not in this language: zebra. It has 6 words: a, the, cow, horse, barn and field."),
        (WORDS, "cow gnu, zebra [mask]", "gnu, zebra and [mask]"),
        (WORDS, "the ho", "can become horse"),
        (WORDS, "  ", "Write a text"),
        (WORDS, "cow " * 11, "At most 10 words fit here, and these are 11."),
        (hmmlib.sentences().words, "zebra", "It has 80 words, such as "),
        (WORDS, " The cow,  the BARN. ", [1, 2, 1, 4]),
        ([".", *WORDS], "the . COW,[mask].", [2, 0, 3, hmmlib.MASK, 0]),
    ]
    calls = [["writing", "parse", [words, text, 10, *["[mask]"] * ("." in words)]] for words, text, _ in cases]
    for (*_, expected), found in zip(cases, js(calls), strict=True):
        (said,) = found.values()  # a problem, or tokens
        assert expected in said if isinstance(expected, str) else said == expected


def test_beliefs_are_those_of_hmmlib(js):
    cases, calls, impossible = [], [], 0
    for model in map(random_memory_hmm, range(9)):
        cells, values = "cde"[: model.n_cells], ["vwx"[: model.n_memory]] * model.n_cells
        figure = interactive.belief_word_by_word(model, "pqrs", cells, values, "xy", "p")
        texts = random_texts(4, model.n_states, hmmlib.MASK)
        cases += [(model, tokens) for tokens in texts]
        calls += [["beliefs", "compute", [figure.data, tokens]] for tokens in texts]
    for (model, tokens), result in zip(cases, js(calls), strict=True):
        at = first_impossible(model, tokens)
        assert result["impossible"] == at
        assert len(result["beliefs"]) == len(result["next"]) == (at or len(tokens) + 1)
        impossible += at > 0
        for k, (belief, ahead) in enumerate(zip(result["beliefs"], result["next"], strict=True)):
            read = torch.tensor([[*tokens[:k], hmmlib.MASK]])  # a hidden word says nothing
            for j, cell in enumerate(belief["cells"]):
                close(cell, hmmlib.memory_posterior(model, read, j)[0])
            close(belief["state"], hmmlib.posterior(model, read, at=k)[0])
            close(ahead, hmmlib.masked_token_probs(model, read)[0, -1])
    assert 10 <= impossible <= len(cases) - 10


def test_what_moves_is_what_two_digits_show_and_the_likeliest_come_first(js):
    near = [{"cells": [[0.5 + 0.001 * n, 0.5 - 0.001 * n]]} for n in (0, 3, 10)]
    calls = [["beliefs", "moved", [[{"name": "a"}], other, near[0]]] for other in near[1:]]
    calls += [["beliefs", "largest", [[0.1, 0.0, 0.3, 0.3 + 1e-12, 0.2], most]] for most in (2, 9)]
    assert js(calls) == [[], ["a"], [2, 3], [2, 3, 4, 0]]


def test_trials_are_told_with_their_chains_and_tasks_and_the_tokens_that_states_of_both_signs_favour(js):
    stored = [result for result in hmmlib.load_results("smoke", STORE) if result.prompt_accuracy is not None]
    unknown = interactive.trial_by_trial(hmmlib.results("smoke", STORE).assign(learned=np.nan))._repr_html_()
    assert '"learned": null' in unknown
    told = interactive.trial_by_trial(hmmlib.results("smoke", STORE)).data["trials"]
    for trial, found in zip(told, sorted(stored, key=lambda result: result.spec.n_states), strict=True):
        numbers = found.spec.n_states, found.head_accuracy, found.prompt_accuracy, found.majority_rate
        assert (trial["size"], trial["head"], trial["prompt"], trial["majority"]) == numbers
        model = hmmlib.draw_model(found.spec)
        favourites, mu = model.emission.argmax(0).tolist(), hmmlib.draw_trial_task(found.spec, model).mu.tolist()
        assert trial["states"] == [*zip(favourites, mu, strict=True)]
    cases = [[[0, 1.0], [0, -0.5], [1, 2.0], [1, 0.0], [2, -1.0], [3, -1], [3, 1]], [[0, 1.0], [1, -1.0]], []]
    assert js([["trials", "contested", [case]] for case in cases]) == [[0, 3], [], []]
