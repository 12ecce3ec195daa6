"""What the gallery says of its ten tasks. What hangs on networks of the preset quick takes half a minute."""

import io
import re
from contextlib import redirect_stdout
from importlib.util import find_spec

import jupytext
import pytest
import torch
from lessons import NOTEBOOKS, run, run_cells
from record import slow
from torch.nn.functional import pad

import hmmlib
from hmmbook import draw_task, mean_ci, results
from hmmbook.experiments.results import published
from hmmbook.experiments.section_5 import entropy_of_frequencies
from hmmbook.figures.stored_panels import panel_results
from hmmlib import MASK, assumption_3_1, assumption_3_2, masked_token_probs, random_hmm

PANEL_SIZES = [4, 8, 10, 15, 25, 30]


class Run:
    """The names of a run of the page, and what it printed."""

    def __init__(self, preset: str):
        output = io.StringIO()
        with redirect_stdout(output):
            self.names = run("gallery", preset=preset)
        self.printed = output.getvalue()


@pytest.fixture(scope="module")
def small_run() -> Run:
    return Run("smoke")


@pytest.fixture(scope="module")
def usual_run() -> Run:
    return Run("quick")


@pytest.fixture(scope="module")
def page(small_run) -> dict:
    return small_run.names


def percentages(name: str, printed: str) -> list[float]:
    """The percentages that stand behind a name in what was printed."""
    return [float(number) for number in re.findall(rf"{name}:? ([\d.]+)%", printed)]


def test_there_are_ten_tasks_of_at_most_ten_lines():
    cells = jupytext.read(NOTEBOOKS / "gallery.md").cells
    tasks = [cell.source for cell in cells if cell.cell_type == "code"][2:]  # after the parameters and the imports

    assert len(tasks) == 10
    for task in tasks:
        lines = [line for line in task.splitlines() if line.strip() and not line.startswith("#")]
        assert len(lines) <= 10


def test_the_tasks_that_the_table_says_are_needed_before_are_enough():
    """Each task runs after those in the table's last column alone."""
    text = (NOTEBOOKS / "gallery.md").read_text(encoding="utf8")
    before = {}
    for number, needed in re.findall(r"^\| (\d+)\. .* \| ([\d, ]*)\|$", text, re.MULTILINE):
        before[int(number)] = [int(task) for task in re.findall(r"\d+", needed)]
    codes = [cell.source for cell in jupytext.read(NOTEBOOKS / "gallery.md").cells if cell.cell_type == "code"]

    assert sorted(before) == list(range(1, 11))
    assert before[7] == [6]
    assert before[8] == [6, 7]
    assert before[5] == before[6] == before[9] == before[10] == []
    for number in (2, 3, 4):  # The others need nothing before them, or train networks.
        names = {}
        run_cells(codes[:1], names)
        names["preset"] = "smoke"
        tasks = [*before[number], number]
        run_cells([codes[1], *[codes[1 + task] for task in tasks]], names)


# 1 and 2: the weather


@pytest.fixture(scope="module")
def weather(page):
    return page["weather"]


@pytest.fixture(scope="module")
def belief(weather):
    return hmmlib.posteriors(weather, [[0, 0, 1, MASK, 2, 2]])[0]


def test_there_is_a_belief_about_each_of_six_days_and_the_start(belief, page):
    assert belief.shape == (7, 3)
    assert len(page["days"]) == 7


def test_sun_is_likeliest_on_the_days_with_a_cap_and_rain_on_those_with_boots(belief):
    assert belief[[1, 2]].argmax(1).tolist() == [0, 0]
    assert belief[[5, 6]].argmax(1).tolist() == [2, 2]


def test_on_the_day_that_nobody_saw_rain_leads_with_42_percent(belief):
    assert belief[4].argmax() == 2
    assert round(belief[4, 2].item(), 2) == 0.42


def test_weather_has_both_assumptions_and_unclear_lacks_3_1(page):
    assert assumption_3_1(page["weather"])
    assert assumption_3_2(page["weather"])
    assert not assumption_3_1(page["unclear"])
    assert assumption_3_2(page["unclear"])


def test_what_is_worn_under_clouds_is_half_of_sun_and_half_of_rain_so_the_rank_is_2(page):
    emission = page["unclear"].emission

    assert torch.allclose(emission[:, 1], emission[:, [0, 2]].mean(1), atol=1e-15)
    assert torch.linalg.matrix_rank(emission) == 2


# 3: Theorem 3.3


@pytest.fixture(scope="module")
def three_hundred_texts(weather):
    tokens = weather.sample(300, length=12, seed=0).tokens
    return tokens, masked_token_probs(weather, pad(tokens, (1, 0), value=MASK))[:, 0]


@pytest.mark.parametrize("mu", [[1, 0, -1], [1, -1, 0], [0.2, -1, 3]])
def test_score_and_exact_value_have_the_same_sign_on_all_300_texts_for_any_weights(weather, three_hundred_texts, mu):
    tokens, probs = three_hundred_texts
    score = hmmlib.theorem_3_3(weather, mu)(probs)
    truth = hmmlib.ground_truth(weather, mu, tokens)

    assert len(truth) == 300
    assert ((score >= 0) == (truth >= 0)).all()


def test_the_factor_between_them_is_near_1_and_both_labels_occur(weather, three_hundred_texts):
    tokens, probs = three_hundred_texts
    factor = hmmlib.theorem_3_3(weather, [1, 0, -1])(probs) / hmmlib.ground_truth(weather, [1, 0, -1], tokens)
    truth = hmmlib.ground_truth(weather, [1, 0, -1], tokens)

    assert factor.min() > 0.8
    assert factor.max() < 1.25
    assert truth.min() < 0 < truth.max()


# 4: Theorem 3.6


def test_no_head_alone_can_label_the_texts_and_with_the_prompt_all_300_are_right(page, small_run):
    assert type(page["verdict"]).__name__ == "Impossible"
    assert "with the prompt: right on 300 of 300" in small_run.printed


def test_there_are_eight_states_and_three_tokens_so_3_1_fails():
    model, pair = hmmlib.essential_hmm(8, n_tokens=3, n_essential=2, seed=0)

    assert (model.n_states, model.n_tokens) == (8, 3)
    assert not assumption_3_1(model)
    assert torch.linalg.matrix_rank(model.emission[:, list(pair)]) == 2


# 5: the memory


def test_the_belief_in_the_value_that_was_drawn_rises_with_the_text(page):
    means = [interval.mean for interval in page["means"].values()]

    assert list(page["means"]) == [1, 2, 4, 8, 16, 32]
    assert means == sorted(means)
    assert round(means[0], 1) == 0.4
    assert means[-1] > 0.99


# 6: pretraining


def test_the_network_has_2_layers_and_width_64_and_the_chain_15_states(page):
    assert (page["shape"].layers, page["shape"].width) == (2, 64)
    assert page["chain"].n_states == 15


def test_the_least_loss_is_0_2_and_frequencies_alone_give_about_2(page):
    assert round(float(page["least"]), 1) == 0.2
    assert float(page["guess"]) == pytest.approx(2, abs=0.2)
    assert float(page["guess"]) == pytest.approx(entropy_of_frequencies(page["chain"], 32), abs=0.02)


def test_the_curve_begins_at_2_3(page):
    assert round(page["losses"][0], 1) == 2.3


@slow
def test_it_falls_to_0_4_in_300_steps(usual_run):
    page = usual_run.names

    assert len(page["losses"]) == 300
    assert round(page["losses"][-1], 1) == 0.4
    assert round(float(page["loss"]), 1) == 0.4
    assert page["least"] < page["loss"] < page["guess"]


# 7 and 8: tuning


def test_the_more_frequent_label_is_on_67_percent_of_1000_new_texts():
    task = draw_task(random_hmm(15, 10, seed=0), length=17, sizes=(2000, 0, 1000), seed=0)
    ones = task.test.labels.double().mean().item()

    assert len(task.test.labels) == 1000
    assert round(max(ones, 1 - ones), 2) == 0.67


@slow
def test_with_a_prompt_of_ten_vectors_the_pretrained_network_labels_more_texts_correctly(usual_run):
    page = usual_run.names

    assert page["prompt_right"] > page["head_right"] > 0.67


@slow
def test_without_pretraining_the_prompt_is_right_on_67_percent_and_lora_learns_the_task(usual_run):
    of_task_8 = usual_run.printed.partition("\nprompt: ")[1:]

    assert percentages("prompt", "".join(of_task_8))[0] == pytest.approx(67, abs=0.6)
    if find_spec("peft"):
        assert percentages("lora", usual_run.printed)[0] > 95


# 9: a trial


def test_the_trial_is_on_ten_states_and_tested_on_100_texts(page):
    assert page["spec"].n_states == 10
    assert page["spec"].test == 100


@slow
def test_head_and_prompt_differ_by_eight_points(usual_run):
    result = usual_run.names["result"]

    assert round(100 * (result.prompt_accuracy - result.head_accuracy)) == 8


def test_a_label_is_1_if_an_even_state_is_more_likely(page):
    task = page["even"](page["spec"], random_hmm(10, 10, seed=0))

    assert torch.equal(task.labels, task.posteriors[:, ::2].sum(1) > task.posteriors[:, 1::2].sum(1))


# 10: Figure 3


@pytest.fixture(scope="module")
def left_panel():
    trials = results("quick").query("changes == '' and n_memory == 1 and seed < 20")
    return trials[trials.n_states.isin(PANEL_SIZES)]


def test_twenty_trials_of_each_size_are_drawn(left_panel, capsys):
    drawn = panel_results("left", "quick")

    assert drawn.n_states.value_counts().to_dict() == dict.fromkeys(PANEL_SIZES, 20)
    assert drawn.prompt_accuracy.mean() == pytest.approx(left_panel.prompt_accuracy.mean())
    assert capsys.readouterr().out == ""


def test_a_preset_without_trials_shows_the_largest_that_is_stored_and_the_command(capsys):
    drawn = panel_results("left", "gpu")
    printed = capsys.readouterr().out

    assert set(drawn.n_states) == set(PANEL_SIZES)
    assert "No trial of the left panel is stored at the preset gpu" in printed
    assert "--missing --preset gpu" in printed


def test_prompts_are_above_heads_at_every_size_at_4_states_by_less_than_their_uncertainty(left_panel):
    gains = left_panel.groupby("n_states").gain

    assert (gains.mean() > 0).all()
    assert mean_ci(gains.get_group(4)).low < 0


def test_prompts_stay_above_90_percent_and_heads_fall_below_80(left_panel):
    means = left_panel.groupby("n_states")[["head_accuracy", "prompt_accuracy"]].mean()

    assert means.prompt_accuracy.min() > 0.9
    assert means.head_accuracy[4] > 0.9
    assert means.head_accuracy[30] < 0.8


@pytest.mark.parametrize("n_states", [15, 25, 30])
def test_from_15_states_on_the_published_prompts_fall_much_farther_than_ours(left_panel, n_states):
    ours = left_panel.groupby("n_states").prompt_accuracy.mean()
    theirs = published("left")["prompt tuning"].map(lambda interval: interval.mean)

    our_fall = ours[10] - ours[n_states]
    assert theirs[10] - theirs[n_states] > 3 * our_fall
