"""What the gallery says of its ten tasks. What hangs on networks of the preset quick takes half a minute."""

import io
import re
from contextlib import redirect_stdout
from importlib.util import find_spec

import pytest
import torch
from lessons import NOTEBOOKS, code_of, run_cells
from record import slow

import hmmlib
from hmmbook import draw_model, results
from hmmbook.experiments.results import published
from hmmbook.experiments.section_5 import entropy_of_frequencies
from hmmbook.figures.stored_panels import panel_results
from hmmlib import MASK, assumption_3_1, assumption_3_2

PANEL_SIZES = [4, 8, 10, 15, 25, 30]


class Run:
    """Each task of the page, run after the first two cells alone: its names, and what it printed."""

    def __init__(self, preset: str):
        parameters, set_up, *tasks = code_of("gallery")
        shared = {}
        run_cells([parameters], shared)
        shared["preset"] = preset
        run_cells([set_up], shared)
        self.names = {}
        self.printed = {}
        for number, task in enumerate(tasks, start=1):
            output = io.StringIO()
            names = dict(shared)
            with redirect_stdout(output):
                run_cells([task], names)
            self.names[number] = names
            self.printed[number] = output.getvalue()

    def percentages(self, number: int) -> dict[str, float]:
        """The percentages that a task printed, by the names before them."""
        lines = re.findall(r"^(.+): ([\d.]+)%$", self.printed[number], re.MULTILINE)
        return {name: float(value) for name, value in lines}

    def share_learned(self) -> float:
        """The share of what there was to learn that the network of task 6 has learned."""
        names = self.names[6]
        return float((names["guess"] - names["loss"]) / (names["guess"] - names["least"]))


@pytest.fixture(scope="module")
def small_run() -> Run:
    return Run("smoke")


@pytest.fixture(scope="module")
def usual_run() -> Run:
    return Run("quick")


def test_there_are_ten_tasks_and_none_needs_another(small_run):
    assert sorted(small_run.names) == list(range(1, 11))
    text = (NOTEBOOKS / "gallery.md").read_text(encoding="utf8")
    assert re.findall(r"^## (\d+)\.", text, re.MULTILINE) == [str(number) for number in range(1, 11)]


def test_at_smoke_the_networks_learn_next_to_nothing_and_200_texts_are_labelled(small_run):
    assert abs(small_run.share_learned()) < 0.1
    assert small_run.names[9]["result"].network_loss > small_run.names[9]["result"].best_loss + 1
    assert len(small_run.names[8]["train"].labels) == 200
    assert set(small_run.names[10]["trials"].preset) == {"smoke"}


# 1: the weather


@pytest.fixture(scope="module")
def weather(small_run):
    return small_run.names[1]["weather"]


def test_there_is_a_belief_about_the_day_before_and_about_six_days(small_run):
    page = small_run.names[1]

    assert page["belief"].shape == (7, 3)
    assert len(page["days"]) == 7


def test_sun_is_most_likely_on_the_days_with_a_cap_and_rain_on_those_with_boots(small_run):
    belief = small_run.names[1]["belief"]

    assert belief[[1, 2]].argmax(1).tolist() == [0, 0]
    assert belief[[5, 6]].argmax(1).tolist() == [2, 2]


def test_on_the_day_that_nobody_saw_rain_is_most_likely_because_boots_follow(small_run, weather):
    belief = small_run.names[1]["belief"]
    without_boots = hmmlib.posteriors(weather, [[0, 0, 1, MASK]])[0]

    assert belief[4].argmax() == 2
    assert without_boots[4].argmax() != 2


# 2: the assumptions


def test_3_1_fails_because_the_column_of_clouds_is_the_mean_of_the_others_and_3_2_holds(small_run):
    unclear = small_run.names[2]["unclear"]

    assert torch.allclose(unclear.emission[:, 1], unclear.emission[:, [0, 2]].mean(1), atol=1e-15)
    assert not assumption_3_1(unclear)
    assert assumption_3_2(unclear)
    assert re.findall(r"Assumption (3\.\d) .* (holds|fails): ", small_run.printed[2]) == [
        ("3.1", "fails"),
        ("3.2", "holds"),
    ]


# 3: Theorem 3.3


@pytest.mark.parametrize("mu", [[1, 0, -1], [1, -1, 0], [0.2, -1, 3]])
def test_exact_value_and_score_have_the_same_sign_on_every_text_for_any_weights(small_run, mu):
    page = small_run.names[3]
    score = hmmlib.theorem_3_3(page["model"], mu)(page["probs"])
    exact_value = hmmlib.ground_truth(page["model"], mu, page["tokens"])

    assert len(exact_value) == 300
    assert torch.equal(score >= 0, exact_value >= 0)


def test_the_factor_between_them_is_positive_and_differs_and_both_labels_occur(small_run):
    page = small_run.names[3]
    exact_value = page["exact_value"]
    factor = page["head"](page["probs"]) / exact_value

    assert factor.min() > 0
    assert factor.max() > 1.2 * factor.min()
    assert exact_value.min() < 0 < exact_value.max()


# 4: Theorem 3.6


def test_no_head_alone_labels_the_texts_and_with_the_prompt_all_300_are_right(small_run):
    assert type(small_run.names[4]["verdict"]).__name__ == "Impossible"
    assert "right on 300 of 300" in small_run.printed[4]


def test_there_are_eight_states_and_three_tokens_so_3_1_fails(small_run):
    model = small_run.names[4]["model"]

    assert (model.n_states, model.n_tokens) == (8, 3)
    assert not assumption_3_1(model)


# 5: the memory


def test_the_more_tokens_are_read_the_surer_is_the_value_and_after_32_hardly_any_doubt_is_left(small_run):
    means = [interval.mean for interval in small_run.names[5]["means"].values()]

    assert list(small_run.names[5]["means"]) == [1, 2, 4, 8, 16, 32]
    assert means == sorted(means)
    assert round(means[0], 1) == 0.4
    assert means[-1] > 0.99


def test_before_the_first_token_each_value_has_a_probability_of_about_one_fifth(small_run):
    prior = small_run.names[5]["model"].memory

    assert prior.shape == (5,)
    assert torch.allclose(prior, torch.full_like(prior, 1 / 5), atol=0.01)


# 6: pretraining


def test_the_network_has_two_layers_and_width_64(small_run):
    shape = small_run.names[6]["shape"]

    assert (shape.layers, shape.width) == (2, 64)


def test_the_upper_line_is_the_loss_of_token_frequencies(small_run):
    page = small_run.names[6]

    assert float(page["guess"]) == pytest.approx(entropy_of_frequencies(page["chain"], 32), abs=0.02)
    assert page["losses"][0] > page["guess"] > page["least"]


@slow
def test_the_network_learns_most_of_what_there_is_to_learn(usual_run):
    page = usual_run.names[6]

    assert len(page["losses"]) == 300
    assert usual_run.share_learned() > 0.8
    assert usual_run.printed[6] == f"share learned: {usual_run.share_learned():.0%}\n"


# 7 and 8: tuning


@slow
def test_the_prompt_is_right_on_more_of_1000_new_texts_than_the_head_alone(usual_run):
    right = usual_run.percentages(7)

    assert len(usual_run.names[7]["test"].labels) == 1000
    assert len(usual_run.names[7]["tuned"].prompt) == 10
    assert right["prompt and head"] > right["head alone"] + 5


@slow
def test_without_pretraining_a_prompt_does_no_better_than_guessing_and_lora_learns_the_task(usual_run):
    right = usual_run.percentages(8)
    ones = usual_run.names[8]["test"].labels.double().mean().item()

    assert right["prompt"] == pytest.approx(100 * max(ones, 1 - ones), abs=0.6)
    if find_spec("peft"):
        assert right["lora"] > 95


# 9: a trial


def test_a_label_is_1_if_the_states_of_even_number_have_probability_one_half_or_more(small_run):
    page = small_run.names[9]
    task = page["even_states"](page["spec"], draw_model(page["spec"]))

    assert torch.equal(task.labels, task.posteriors[:, ::2].sum(1) >= task.posteriors[:, 1::2].sum(1))


def test_the_trial_has_the_preset_of_the_page(small_run):
    assert small_run.names[9]["spec"].preset == "smoke"


@slow
def test_on_its_1000_test_texts_the_prompt_is_right_more_often_than_the_head_alone(usual_run):
    result = usual_run.names[9]["result"]

    assert result.spec.test == 1000
    assert result.prompt_accuracy > result.head_accuracy + 0.05


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


def test_prompts_are_above_heads_at_every_number_of_states_in_the_mean(left_panel):
    assert (left_panel.groupby("n_states").gain.mean() > 0).all()


def test_prompts_stay_above_90_percent_and_heads_fall(left_panel):
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
