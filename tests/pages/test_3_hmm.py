"""What the page on linear heads says, from its models."""

import itertools

import numpy as np
import pytest
import torch
from lessons import code_of, run, run_cells

from hmmbook.evidence import ledger
from hmmbook.evidence.random_models.section_3 import balanced
from hmmbook.parameters import INSTANCES
from hmmlib import (
    HMM,
    MASK,
    AssumptionError,
    Impossible,
    LinearHead,
    Undecided,
    assumption_3_1,
    assumption_3_2,
    fit_or_refute,
    ground_truth,
    log_likelihood,
    masked_token_probs,
    posterior,
    regular_hmm,
    theorem_3_3,
)

ALPHA, BETA, GAMMA, DELTA = range(4)
GREAT, OKAY, NO = range(3)
GLAD, TIRED, CROSS = range(3)
SIZES = [2, 3, 4, 5, 6, 8]
N_STEPS = 59
"""The slider's steps between apart and nearly equal."""
NOISE = 1e-3


@pytest.fixture(scope="module")
def page() -> dict:
    return run("3-hmm", instances=1)


@pytest.fixture(scope="module")
def moods(page) -> HMM:
    return page["moods"]


@pytest.fixture(scope="module")
def twins(page) -> HMM:
    return page["twins"]


def all_texts(length: int) -> torch.Tensor:
    """All texts of three tokens of a length."""
    return torch.tensor(list(itertools.product(range(3), repeat=length)))


def behind_mask(texts: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.full_like(texts[:, :1], MASK), texts], 1)


def at_the_mask(model: HMM, texts: torch.Tensor) -> torch.Tensor:
    return masked_token_probs(model, behind_mask(texts))[:, 0]


# A friend in three moods


def test_glad_mostly_means_great_tired_okay_and_cross_no_and_a_mood_seldom_changes(moods):
    assert moods.emission.argmax(0).tolist() == [GREAT, OKAY, NO]
    assert (moods.emission.amax(0) > 0.5).all()
    assert (moods.transition.diagonal() > 0.8).all()


def test_the_label_is_1_where_glad_is_at_least_as_probable_as_the_other_two_together(page, moods):
    belief = posterior(moods, page["texts"])
    glad = belief[:, GLAD] >= belief[:, TIRED] + belief[:, CROSS]

    assert torch.equal(glad, page["labels"])
    assert 0 < glad.sum() < len(glad)


# A line across a triangle


def test_the_line_separates_the_81_texts_without_an_error(page):
    assert len(page["texts"]) == 81
    assert torch.equal(page["head"](page["predictions"]) >= 0, page["labels"])


def test_every_prediction_mixes_the_crosses_with_the_belief_in_exactly_one_way(page, moods):
    belief = posterior(moods, behind_mask(page["texts"]), at=1)

    assert torch.linalg.matrix_rank(moods.emission) == 3
    assert torch.allclose(belief @ moods.emission.T, page["predictions"], atol=1e-14)


@pytest.mark.parametrize("mu", [[1.0, 2.0, -5.0], [-1.0, -1.0, 3.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
def test_for_another_task_the_head_still_makes_no_error(page, moods, mu):
    mu = torch.tensor(mu, dtype=torch.float64)
    head = LinearHead(page["theorem_head"](moods, mu))

    assert torch.equal(head.label(page["predictions"]), ground_truth(moods, mu, page["texts"]) >= 0)


def test_the_three_lines_are_the_head_of_the_theorem(page, moods):
    assert torch.allclose(page["head"].weights, theorem_3_3(moods, page["mu"]).weights, rtol=1e-12)


# The steps of the proof


def test_the_left_inverse_reads_off_the_belief_at_the_mask(page, moods):
    exact = posterior(moods, behind_mask(page["texts"]), at=1)

    assert torch.allclose(page["recovered"], exact, atol=1e-13)


def test_one_step_back_it_is_the_belief_before_the_text(page, moods):
    assert torch.allclose(page["before_text"], posterior(moods, page["texts"]), atol=1e-13)


def test_the_score_is_the_weighted_belief_times_a_positive_factor(page, moods):
    texts = page["texts"]
    factor = (log_likelihood(moods, texts) - log_likelihood(moods, behind_mask(texts))).exp()
    target = posterior(moods, texts) @ page["mu"]

    assert (factor > 0).all()
    assert torch.allclose(page["predictions"] @ page["head"].weights, factor * target, atol=1e-13)


def test_the_head_is_right_on_all_3279_texts_of_up_to_seven_tokens(page, moods):
    n_texts = 0
    for length in range(1, 8):
        texts = all_texts(length)
        n_texts += len(texts)
        labels = posterior(moods, texts) @ page["mu"] >= 0

        assert torch.equal(page["head"](at_the_mask(moods, texts)) >= 0, labels)
    assert page["n_texts"] == n_texts == 3279


# Two states that share a token


def test_alpha_and_beta_emit_token_0_gamma_1_and_delta_2_and_gamma_follows_only_alpha_delta_only_beta(twins):
    assert twins.emission.argmax(0).tolist() == [0, 0, 1, 2]
    assert (twins.emission.amax(0) == 1).all()
    assert (twins.transition[GAMMA, :2] > 0).tolist() == [True, False]
    assert (twins.transition[DELTA, :2] > 0).tolist() == [False, True]


def test_the_two_texts_show_alpha_and_beta_and_at_the_mask_is_token_0_in_both_cases(page, twins):
    start = posterior(twins, page["pair"])

    assert torch.allclose(start[:, :2], torch.eye(2, dtype=torch.float64))
    assert torch.allclose(page["pair_predictions"][:, 0], torch.ones(2, dtype=torch.float64))


def test_the_two_texts_have_different_labels_and_the_same_prediction(page):
    first, second = page["pair_predictions"]

    assert page["pair_labels"].tolist() == [True, False]
    assert torch.equal(first, second)


def test_the_pseudoinverse_reads_off_the_same_belief_for_both_and_it_is_not_the_exact_one(page):
    first, second = page["wrong"]

    assert torch.equal(first, second)
    assert (page["wrong"] - page["exact"]).abs().max() > 0.1


def test_only_assumption_3_1_fails_and_the_theorem_refuses(page, twins):
    assert not assumption_3_1(twins)
    assert assumption_3_2(twins)
    with pytest.raises(AssumptionError, match=r"Assumption 3\.1"):
        theorem_3_3(twins, page["alpha_or_beta"])


# More states than tokens


@pytest.fixture(scope="module")
def n_without(page) -> dict[int, int]:
    """How many of 20 tasks have no head at the page's defaults, by the number of states."""
    page["draws"].manual_seed(0)
    return {n_states: round(20 * page["share_without_head"](n_states, 20)) for n_states in SIZES}


def test_the_page_draws_20_tasks_for_each_number_of_states(page):
    assert page["sizes"] == SIZES
    assert max(10, INSTANCES["quick"] // 15) == 20


def test_with_two_and_three_states_every_task_has_a_head(n_without):
    assert n_without[2] == n_without[3] == 0


def test_beyond_three_states_more_and_more_tasks_have_none_and_18_of_20_with_eight(n_without):
    beyond = [n_without[n_states] for n_states in SIZES[2:]]

    assert beyond[0] > 0
    assert beyond == sorted(beyond)
    assert n_without[8] == 18


def test_a_refutation_is_one_point_that_mixes_predictions_of_both_labels(page):
    n_refuted = 0
    for seed in range(12):
        model = regular_hmm(6, 3, seed, zeros=0.0)
        weights = torch.as_tensor(np.random.default_rng(seed).normal(size=6))
        labels = balanced(posterior(model, page["texts"]) @ weights)
        predictions = at_the_mask(model, page["texts"])
        verdict = fit_or_refute(predictions, labels)

        assert not isinstance(verdict, Undecided)
        if isinstance(verdict, Impossible):
            n_refuted += 1
            point = verdict.positive @ predictions[labels]
            assert torch.allclose(point, verdict.negative @ predictions[~labels], atol=1e-6)
    assert n_refuted > 3


# Nearly dependent columns


def with_tired_near_glad(moods: HMM, gap: float) -> HMM:
    """Move the column of tired towards that of glad until a share of their distance is left."""
    emission = moods.emission.clone()
    emission[:, TIRED] = torch.lerp(emission[:, GLAD], emission[:, TIRED], gap)
    return HMM(moods.transition, emission, moods.initial, columns=True)


def head_of_half(page: dict, model: HMM, texts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Shift the task so that half of the texts have the label 1, and return its head and its labels."""
    beliefs = posterior(model, texts)
    targets = (beliefs @ page["mu"]).sort().values
    middle = len(targets) // 2
    mu = page["mu"] - targets[middle - 1 : middle + 1].mean()
    return page["theorem_head"](model, mu), beliefs @ mu >= 0


def test_without_noise_the_head_is_right_all_along_the_slider_and_its_weights_grow(page, moods):
    largest = []
    for step in range(0, N_STEPS + 1, 4):
        model = with_tired_near_glad(moods, 10 ** (-4 * step / N_STEPS))
        head, labels = head_of_half(page, model, page["texts"])

        assert labels.sum() in (40, 41)
        assert torch.equal(at_the_mask(model, page["texts"]) @ head >= 0, labels)
        largest.append(head.abs().max().item())
    assert largest == sorted(largest)
    assert largest[-1] > 1000 * largest[0]


def test_where_the_columns_nearly_coincide_noise_of_a_thousandth_makes_the_head_little_better_than_guessing(
    page, moods
):
    draws = torch.Generator().manual_seed(0)
    accuracies = []
    for gap in (1.0, 1e-3):
        model = with_tired_near_glad(moods, gap)
        head, labels = head_of_half(page, model, page["texts"])
        predictions = at_the_mask(model, page["texts"])
        noise = NOISE * torch.randn(100, *predictions.shape, generator=draws, dtype=torch.float64)
        answers = (predictions + noise).clamp(min=0) @ head >= 0
        accuracies.append((answers == labels).double().mean().item())

    assert accuracies[0] > 0.99
    assert accuracies[1] < 0.6


def test_the_figure_adds_this_noise(page, moods):
    data = page["interactive"].nearly_dependent_columns(moods, page["mu"], page["states"], words=page["words"]).data

    assert data["noiseSize"] == NOISE
    assert data["words"] == ["great", "okay", "no"]


# What to try, and exercises


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("torch.tensor([1.0, -1.0, -1.0]", "torch.tensor([1, 2, 3]"),
        ("initial=[0.3, 0.3, 0.4]", "initial=[1, 0, 0]"),
        ("length = 4", "length = 1"),
        ("length = 4", "length = 5"),
    ],
)
def test_a_reader_who_changes_a_number_of_the_model_is_shown_what_it_gives(line, changed):
    cells = []
    for cell in code_of("3-hmm"):
        if "share_without_head" not in cell and "ledger.run" not in cell:
            cells.append(cell.replace(line, changed))
    names = {}
    run_cells(cells, names)

    assert changed in "".join(cells)
    assert names["right"].all()


def test_the_theorem_holds_on_random_models_and_with_dependent_columns_it_fails():
    entry = ledger.run(ledger.find("Theorem 3.3"), instances=12, seed=0)

    assert entry.as_recorded
    assert entry.residual <= entry.tolerance
    assert "independent columns" in entry.broken
    assert entry.control_fails > 0


def test_after_a_start_in_one_mood_the_second_assumption_fails_and_the_head_is_still_right(page, moods):
    model = HMM(moods.transition, moods.emission, [1.0, 0.0, 0.0])
    head = LinearHead(page["theorem_head"](model, page["mu"]))

    assert not assumption_3_2(model)
    assert torch.equal(
        head.label(at_the_mask(model, page["texts"])), ground_truth(model, page["mu"], page["texts"]) >= 0
    )


def test_with_three_columns_on_a_line_the_columns_are_dependent_and_the_head_makes_errors(page, moods):
    emission = moods.emission.clone()
    emission[:, CROSS] = torch.tensor([0.45, 0.45, 0.1], dtype=torch.float64)
    model = HMM(moods.transition, emission, moods.initial, columns=True)
    head = LinearHead(page["theorem_head"](model, page["mu"]))
    labels = ground_truth(model, page["mu"], page["texts"]) >= 0

    assert not assumption_3_1(model)
    assert not torch.equal(head.label(at_the_mask(model, page["texts"])), labels)


@pytest.mark.parametrize("name", ["goes round", "gets stuck"])
def test_in_exercise_1_chains_without_a_row_of_zeros_are_enough(page, moods, name):
    chain = HMM(page["chains"][name], moods.emission, [0.2, 0.3, 0.5], columns=True)
    head = LinearHead(page["theorem_head"](chain, page["mu"]))
    labels = posterior(chain, page["texts"]) @ page["mu"] >= 0

    assert not assumption_3_2(chain)
    assert (chain.transition.sum(1) > 0).all()
    assert torch.equal(head.label(at_the_mask(chain, page["texts"])), labels)


def test_in_exercise_2_exactly_the_tasks_whose_weights_of_alpha_and_beta_differ_in_sign_have_no_head(twins):
    texts = all_texts(4)
    texts = texts[log_likelihood(twins, texts) > -torch.inf]
    predictions = at_the_mask(twins, texts)
    for weights in itertools.product([-1.0, 0.0, 1.0], repeat=3):
        if any(weights):
            verdict = fit_or_refute(predictions, ground_truth(twins, [*weights, 0.0], texts) >= 0)
            same_sign = (weights[ALPHA] >= 0) == (weights[BETA] >= 0)
            assert isinstance(verdict, LinearHead if same_sign else Impossible)


def test_in_exercise_2_a_text_that_begins_with_1_or_2_shows_alpha_or_beta_and_one_with_0_excludes_beta(twins):
    texts = all_texts(4)
    texts = texts[log_likelihood(twins, texts) > -torch.inf]
    start = posterior(twins, texts)
    ones = torch.ones(1, dtype=torch.float64)

    assert torch.linalg.matrix_rank(twins.emission[:, [ALPHA, GAMMA, DELTA]]) == 3
    assert not start[texts[:, 0] == 0, BETA].any()
    assert torch.allclose(start[texts[:, 0] == 1, ALPHA], ones)
    assert torch.allclose(start[texts[:, 0] == 2, BETA], ones)


@pytest.mark.parametrize("mu", [[1.0, 0.5, -1.0], [0.0, 1.0, 1.0], [-1.0, -2.0, 1.0], [-1.0, -0.5, 2.0]])
def test_in_exercise_2_where_the_signs_agree_the_head_for_alpha_gamma_and_delta_is_right(twins, mu):
    """The weights are those of α, β and γ. Token 2, which δ emits, comes right after β."""
    assert twins.transition[DELTA, BETA] == 1
    texts = all_texts(4)
    texts = texts[log_likelihood(twins, texts) > -torch.inf]
    mu = torch.tensor([*mu, 0.0], dtype=torch.float64)
    kept = [ALPHA, GAMMA, DELTA]
    one_step_back = (twins.initial / twins.marginal(1))[kept]
    b = torch.linalg.pinv(twins.emission[:, kept]).T @ (one_step_back * mu[kept])

    answers = at_the_mask(twins, texts) @ b >= -1e-12

    assert torch.equal(answers, ground_truth(twins, mu, texts) >= -1e-12)
