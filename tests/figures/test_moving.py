"""The moving figures' JavaScript, run under Node, computes what hmmlib does, and puts what it finds into true words."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from constructions import behind_gap
from moving_figures import MU, THREE_STATES, WEATHER, WORDS, draws, language, prompt_figure

import hmmbook
import hmmlib
from hmmbook.experiments.store import STORE
from hmmbook.figures import interactive
from hmmlib.inference import reference


def close(computed, expected, tolerance=1e-12):
    assert np.shape(computed) == np.shape(expected)
    np.testing.assert_allclose(computed, expected, rtol=0, atol=tolerance)


def field(rows: list[dict], name: str) -> list:
    return [row[name] for row in rows]


def ask(js, script: str, function: str, *arguments):
    """What a function of a script gives."""
    (answer,) = js([[script, function, arguments]])
    return answer


def compute(js, script: str, data: dict, values) -> list[dict]:
    """What a figure's script computes of each value of what a reader moves."""
    return js([[script, "compute", [data, value]] for value in values])


def random_texts(seed: int, first: int = 0) -> list[list[int]]:
    """Texts of one to eight tokens from `first` to 3: in a sparse model many of them are impossible."""
    tokens = torch.randint(first, 4, (8, 8), generator=draws(seed))
    return [text[: k + 1] for k, text in enumerate(tokens.tolist())]


def random_memory_hmm(seed):
    """A model with up to three cells, many of whose texts are impossible."""
    n_cells = 1 + seed % 3
    return hmmlib.sparse_memory_hmm(2 + seed % 2, 2 * n_cells, 4, seed, 0.5, n_cells)


def first_impossible(model, tokens) -> int:
    """The first position whose token cannot follow those before it, or 0."""
    for k in range(1, len(tokens) + 1):
        if hmmlib.log_likelihood(model, [tokens[:k]]).item() == -torch.inf:
            return k
    return 0


# Section 3


@pytest.mark.parametrize("seed", range(5))
def test_prompts_condition_as_in_hmmlib(seed, js):
    model, mu, prompt, head, inputs, figure = prompt_figure(seed)
    random_prompt = torch.rand(4, generator=draws(seed), dtype=torch.float64)
    random_prompt[seed % 4] = 0
    labels = hmmlib.ground_truth(model, mu, inputs) >= 0
    texts = behind_gap(inputs)
    prompts = [prompt, torch.zeros_like(prompt), random_prompt]
    results = compute(js, "prompt", figure.data, torch.stack(prompts).tolist())
    for u, result in zip(prompts, results, strict=True):
        points = result["points"]
        gap = hmmlib.masked_token_probs(model, texts, u)[:, 1]
        right = (head(gap) >= 0) == labels
        next_state = model.transition @ (u * model.marginal(1))
        close(field(points, "latent"), hmmlib.latent_given_others(model, texts, u)[:, 1])
        close(field(points, "gap"), gap)
        assert field(points, "label") == labels.tolist()
        assert field(points, "right") == right.tolist()
        assert field(points, "occurs") == gap.any(1).tolist()
        assert result["possible"] == (next_state > 0).tolist()
    of_theorem, of_zeros, _ = results
    assert all(field(of_theorem["points"], "right"))
    assert not any(field(of_zeros["points"], "occurs"))


def test_prompts_condition_texts_of_any_length_and_a_text_that_cannot_occur_is_refused():
    weather = hmmlib.HMM([[0.9, 0.3], [0.1, 0.7]], [[0.7, 0.0], [0.3, 0.5], [0.0, 0.5]], [1.0, 0.0])
    head = hmmlib.LinearHead([1.0, -1.0, 0.0])
    everything = (weather, torch.ones(2), torch.ones(2), head, "ab")
    assert len(interactive.conditioning_by_a_prompt(*everything, [[0, 0, 1], [1, 1, 1]]).data["inputs"]) == 27
    impossible = hmmlib.HMM([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.5], [0.0, 0.5]], [0.5, 0.5])
    with pytest.raises(ValueError, match=r"the input \[0, 1\], which this model never emits"):
        interactive.conditioning_by_a_prompt(impossible, *everything[1:], [[0, 0], [0, 1]])


@pytest.mark.parametrize(("stays", "moves", "size", "refuted"), [(0, 1, 0.001, True), (0, 2, 0.2, False)])
def test_a_closing_gap_does_what_hmmlib_computes_and_says_whether_a_head_is_left(stays, moves, size, refuted, js):
    data = interactive.nearly_dependent_columns(THREE_STATES, MU, "abc", (stays, moves), size).data
    inputs = torch.tensor(data["inputs"])
    noise = torch.tensor(data["noise"], dtype=torch.float64)
    half = len(inputs) // 2
    assert data["refuted"] == refuted
    assert 0.9 < noise.std() / size < 1.1
    gaps = [1.0, 0.2, 0.01, 1e-4, 0.0]
    for gap, result in zip(gaps, compute(js, "columns", data, gaps), strict=True):
        emission = THREE_STATES.emission.clone()
        emission[:, moves] = torch.lerp(emission[:, stays], emission[:, moves], gap)
        moved = hmmlib.HMM(THREE_STATES.transition, emission, THREE_STATES.initial)
        beliefs = hmmlib.posterior(moved, inputs)
        guesses = hmmlib.masked_token_probs(moved, behind_gap(inputs))[:, 0]
        targets = (beliefs @ MU).sort().values
        task = MU - targets[half - 1 : half + 1].mean()
        labels = beliefs @ task >= 0
        points = result["points"]
        close(result["task"], task)
        close(field(points, "guess"), guesses)
        close(result["values"], torch.linalg.svdvals(emission), 1e-10)
        assert field(points, "label") == labels.tolist()
        assert result["dependent"] == (gap == 0)
        if gap == 0:
            assert result["head"] is None
            continue
        head = hmmlib.theorem_3_3(moved, task)
        noisy = (guesses + noise).clamp(min=0)
        ratios = np.array(result["head"]) / head.weights.numpy()
        close(ratios, np.ones(3), 1e-12 * head.condition)
        close(field(points, "noisy"), noisy)
        assert all(field(points, "right"))
        assert field(points, "rightNoisy") == ((head(noisy) >= 0) == labels).tolist()


# The gate

GATE_HEAD = [1.0, -0.4, -0.1]


def test_each_level_of_the_gate_shows_its_own_predictions_and_their_best_head(js):
    rng = np.random.default_rng(0)
    frames = rng.dirichlet(np.ones(3), (2, 2, 20)).round(4)
    labels = (frames[1, 1] @ GATE_HEAD > 0.1).tolist()
    figure = interactive.open_and_shut(frames, labels, [0] * 20, "a", "xyz")
    results = []
    for level in np.ndindex(2, 2):
        result = ask(js, "gate", "compute", figure.data, *level)
        results.append(result)
        close(result["points"], frames[level] / frames[level].sum(1, keepdims=True))
        answers = np.array(result["points"]) @ result["head"] >= 0
        assert result["right"] == (answers == labels).sum()
    assert results[-1]["right"] >= 19
    assert min(field(results, "right")) < 19


def test_the_best_head_parts_what_can_be_parted_and_no_more(js):
    points = np.random.default_rng(0).dirichlet(np.ones(3), 80)
    labels = points @ GATE_HEAD > 0.1
    assert ask(js, "gate", "best", points.tolist(), labels.tolist())["right"] >= 79
    equal_points = [[0.2, 0.3, 0.5]] * 10
    assert ask(js, "gate", "best", equal_points, [True] * 7 + [False] * 3)["right"] == 7


# Messages


def messages_case(seed):
    """A model of two states, a text with random masks, and its figure."""
    model = WEATHER
    if seed > 0:
        model = hmmlib.sparse_hmm(2, 2 + seed % 3, seed, 0.3 * (seed % 2))
    tokens = model.sample(1, 1 + seed % 5, seed).tokens
    masked = torch.rand(tokens.shape[1], generator=draws(seed)) < 0.4
    text = " ".join(map("abcd".__getitem__, tokens[0]))
    figure = interactive.passing_messages(model, "abcd"[: model.n_tokens], "xy", text)
    return model, torch.where(masked, hmmlib.MASK, tokens), masked.tolist(), figure


def first_steps(js, figure, masked, n_steps):
    calls = [["messages", "compute", [figure.data, masked, step]] for step in range(n_steps)]
    return js(calls)


@pytest.mark.parametrize("seed", range(8))
def test_messages_come_one_by_one_and_are_those_of_hmmlib(seed, js):
    model, tokens, masked, figure = messages_case(seed)
    last = tokens.shape[1]
    steps = first_steps(js, figure, masked, 2 * last + 1)
    for step, shown in enumerate(steps):
        for i, place in enumerate(shown["places"]):
            has_left = i <= step
            has_right = i >= min(last, 2 * last - step)
            assert bool(place["left"]) == has_left
            assert bool(place["right"]) == has_right
            assert bool(place["tau"]) == (has_left and has_right)
            assert bool(place["guess"]) == (has_left and has_right and i > 0)

    places = steps[-1]["places"]
    embeddings = model.embed(tokens)
    marginals, left, right = reference.left_and_right(model, embeddings)
    close(field(places, "left"), right[..., 0])
    shown_right = np.array(field(places, "right"))
    close(shown_right * marginals[..., 0].numpy(), left[..., 0])
    close(field(places[1:], "tau"), reference.tau(model, embeddings)[0])
    close(field(places[1:], "guess"), hmmlib.masked_token_probs(model, tokens)[0])
    start = np.array(places[0]["tau"])
    close(start.sum(), hmmlib.log_likelihood(model, tokens).exp().item())
    close(start / start.sum(), hmmlib.posterior(model, tokens)[0])


@pytest.mark.parametrize("seed", range(8))
def test_a_message_is_the_sum_that_is_written_beside_it(seed, js):
    _, tokens, masked, figure = messages_case(seed)
    _, *steps = first_steps(js, figure, masked, 2 * tokens.shape[1] + 1)
    sums = js([["messages", "sums", [figure.data, shown]] for shown in steps])
    for shown, written in zip(steps, sums, strict=True):
        message = shown["places"][shown["at"]]["left" if shown["rightwards"] else "right"]
        for entry, (terms, total) in zip(message, written, strict=True):
            value = 0.0
            for term in terms.split(" + "):  # a·b·c
                value += math.prod(map(float, term.split("·")))
            assert float(total) == pytest.approx(entry, rel=1e-3, abs=1e-12)
            assert value == pytest.approx(entry, rel=1e-3, abs=1e-12)


# Attention


@pytest.mark.parametrize("seed", range(9))
def test_attention_is_that_of_hmmlib(seed, js):
    """Of one model in four all scores tie."""
    model = random_memory_hmm(seed)
    draw = partial(torch.randn, generator=draws(seed), dtype=torch.float64)
    width = model.n_memory * model.n_states
    mu = draw(model.n_memory)
    query = draw(model.n_states + 1) * (seed % 4 > 0)
    key = draw(model.n_states + 1, 4)
    value = draw(width, 4)
    output = draw(width)
    head = hmmlib.AttentionHead(query, key, value, output, condition=3.0, n_cells=model.n_cells)
    cell = seed % model.n_cells
    syntax = [seed % 2]
    values = "vwx"[: model.n_memory]
    figure = interactive.attention_over_words(model, head, mu, "abcd", "a", values, syntax, "which?", cell)
    size = 1 + key.abs().max() + value.abs().max() ** 2
    rounding = 1e-12 * size.item()

    texts = random_texts(seed)
    results = compute(js, "attention", figure.data, texts)
    for tokens, result in zip(texts, results, strict=True):
        position = first_impossible(model, tokens)
        if position:
            assert result == {"impossible": position}
            continue
        probs = hmmlib.masked_token_probs(model, [tokens])
        embeddings = model.embed([tokens])
        close(result["posterior"], hmmlib.memory_posterior(model, [tokens], cell)[0])
        close(result["target"], hmmlib.ground_truth(model, mu, [tokens], cell)[0])
        close(result["scores"], head.scores(probs)[0], rounding)
        close(result["values"], head.values(probs, embeddings)[0], rounding)
        close(result["output"], head(probs, embeddings)[0], rounding)
        assert result["attended"] == head.attended(probs)[0].tolist()
        sure = hmmlib.concentrated(model, [tokens], cell, syntax)
        assert result["sure"] == sure[0].tolist()


def test_random_models_have_possible_and_impossible_texts():
    impossible = 0
    for seed in range(9):
        model = random_memory_hmm(seed)
        for tokens in random_texts(seed):
            impossible += first_impossible(model, tokens) > 0
    assert 8 <= impossible <= 52  # of 72


def test_ties_are_those_up_to_rounding(js):
    scores = [1, 1 - 1e-15, 0.5, 1 - 1e-9]
    assert ask(js, "attention", "argmax", scores, 1) == [True, True, False, False]
    assert ask(js, "attention", "argmax", scores, 1e5) == [True, True, False, True]


def test_zeros_are_those_up_to_rounding(js):
    ones = [1.0, 1, 1]
    assert 0.1 + 0.2 - 0.3 > 0
    assert ask(js, "kit", "score", [0.1, 0.2, -0.3], ones) == 0
    assert ask(js, "kit", "score", [0.1, 0.2, -0.3 + 1e-14], ones) > 0
    diagonal = np.diag([0.1, 0.2, -0.3]).tolist()
    head = {"value": diagonal, "output": ones, "condition": 1}
    assert ask(js, "attention", "valueOf", head, ones, ones) == 0


def test_softmax_goes_to_the_shared_maximum_and_does_not_overflow(js):
    model, head = language()
    text = "the horse a cow the field cow a horse"
    head = replace(head, query=3.0 * head.query)
    data = interactive.softmax_and_its_limit(model, head, WORDS, text).data
    tokens = [list(map(WORDS.index, text.split()))]
    probs = hmmlib.masked_token_probs(model, tokens)
    embeddings = model.embed(tokens)
    unit = head.query.norm().item()
    norms = [0.1, 1.0, 7.0, 300.0, 1e4]
    results = compute(js, "softmax", data, norms)
    for norm, result in zip(norms, results, strict=True):
        weights = (norm / unit * head.scores(probs)).softmax(1)[0]
        close(result["weights"], weights)
        close(result["output"], weights @ head.values(probs, embeddings)[0])
        close(result["exact"], head(probs, embeddings)[0])
    assert sum(data["attended"]) == 2
    close(results[-1]["weights"], np.array(data["attended"]) / 2)
    assert ask(js, "softmax", "softmax", [1.0, 1.0, 0.5], 1e300) == [0.5, 0.5, 0]


# Texts that a reader writes


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (WORDS, "zebra cow", "Not in this language: zebra. It has 6 words: a, the, cow, horse, barn and field."),
        (WORDS, "cow gnu, zebra [mask]", "gnu, zebra and [mask]"),
        (WORDS, "the ho", "can become horse"),
        (WORDS, "  ", "Write a text"),
        (WORDS, "cow " * 11, "At most 10 words fit here, and these are 11."),
        (hmmlib.sentences().words, "zebra", "It has 80 words, such as "),
    ],
)
def test_a_text_with_a_problem_gives_a_clear_message(words, text, message, js):
    assert message in ask(js, "writing", "parse", words, text, 10)["problem"]


def test_a_text_becomes_tokens(js):
    plain = ask(js, "writing", "parse", WORDS, " The cow,  the BARN. ", 10)
    assert plain == {"tokens": [1, 2, 1, 4]}
    with_mask = ask(js, "writing", "parse", [".", *WORDS], "the . COW,[mask].", 10, "[mask]")
    assert with_mask == {"tokens": [2, 0, 3, hmmlib.MASK, 0]}


# Beliefs, and trials


@pytest.mark.parametrize("seed", range(9))
def test_beliefs_are_those_of_hmmlib(seed, js):
    model = random_memory_hmm(seed)
    values = ["vwx"[: model.n_memory]] * model.n_cells
    figure = interactive.belief_word_by_word(model, "pqrs", "cde"[: model.n_cells], values, "xy", "p")
    texts = random_texts(model.n_states, hmmlib.MASK)
    results = compute(js, "beliefs", figure.data, texts)
    for tokens, result in zip(texts, results, strict=True):
        position = first_impossible(model, tokens)
        assert result["impossible"] == position
        assert len(result["beliefs"]) == len(result["next"]) == (position or len(tokens) + 1)
        for k, belief in enumerate(result["beliefs"]):
            read = [[*tokens[:k], hmmlib.MASK]]  # A hidden word says nothing.
            for j, cell in enumerate(belief["cells"]):
                close(cell, hmmlib.memory_posterior(model, read, j)[0])
            close(belief["state"], hmmlib.posterior(model, read, at=k)[0])
            close(result["next"][k], hmmlib.masked_token_probs(model, read)[0, -1])


def test_what_moves_is_what_two_digits_show(js):
    cells = [{"name": "a"}]
    before = {"cells": [[0.5, 0.5]]}
    hardly_moved = {"cells": [[0.503, 0.497]]}
    moved = {"cells": [[0.51, 0.49]]}
    assert ask(js, "beliefs", "moved", cells, hardly_moved, before) == []
    assert ask(js, "beliefs", "moved", cells, moved, before) == ["a"]


def test_the_likeliest_come_first(js):
    probs = [0.1, 0.0, 0.3, 0.3 + 1e-12, 0.2]
    assert ask(js, "beliefs", "largest", probs, 2) == [2, 3]
    assert ask(js, "beliefs", "largest", probs, 9) == [2, 3, 4, 0]


def test_trials_are_told_with_their_chains_and_tasks():
    stored = sorted(hmmbook.load_results("smoke", STORE), key=lambda result: result.spec.n_states)
    with_prompt = [result for result in stored if result.prompt_accuracy is not None]
    trials = interactive.trial_by_trial(hmmbook.results("smoke", STORE)).data["trials"]
    for trial, result in zip(trials, with_prompt, strict=True):
        assert trial["size"] == result.spec.n_states
        assert trial["head"] == result.head_accuracy
        assert trial["prompt"] == result.prompt_accuracy
        assert trial["majority"] == result.majority_rate
        model = hmmbook.draw_model(result.spec)
        favourites = model.emission.argmax(0).tolist()
        mu = hmmbook.draw_trial_task(result.spec, model).mu.tolist()
        assert trial["states"] == list(zip(favourites, mu, strict=True))


def test_a_trial_whose_share_learned_is_unknown_is_told():
    results = hmmbook.results("smoke", STORE).assign(learned=np.nan)
    assert '"learned": null' in interactive.trial_by_trial(results)._repr_html_()


def test_tokens_are_contested_that_states_of_both_signs_favour(js):
    both_signs = [[0, 1.0], [0, -0.5], [3, -1], [3, 1]]
    never_negative = [[1, 2.0], [1, 0.0]]
    assert ask(js, "trials", "contested", both_signs + never_negative) == [0, 3]
    assert ask(js, "trials", "contested", [[0, 1.0], [1, -1.0]]) == []
    assert ask(js, "trials", "contested", []) == []
