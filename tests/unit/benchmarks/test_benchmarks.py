"""The arithmetic, tables, plots and equal conditions of the benchmark; nothing is timed."""

import asyncio
import math
from types import SimpleNamespace

import pytest
import torch

from benchmarks.engines import ENGINES, ForcedEngine, algorithm, missing, rollout_params
from benchmarks.figures import explained, exponent, medians, share_of_cores, training_flops
from benchmarks.parts.base import Part, matrix_weights
from benchmarks.parts.overhead import shares
from benchmarks.plots import draw
from benchmarks.setting import CPU, GPU, SMOKE, TINY, Shape, Task, build, context_of, longest_episode, tokenizer
from benchmarks.sides import updates
from benchmarks.sides.lockstep import play, seated
from benchmarks.sides.ours import Ours
from benchmarks.sides.updates import Load, experience
from benchmarks.table import render
from rl.chat import ChatFormat
from rl.engines.base import Completion, Finish, Request, Sampling
from rl.models import save_model
from tests.handing import watched

RUN = {
    "command": "python -m benchmarks",
    "date": "2024-05-21T10:00Z",
    "checkout": {"commit": "abc", "dirty": True},
    "repeats": 5,
    "versions": {"torch": "2", "vllm": None},
    "machine": {
        "cpu": "a processor",
        "cores": 2,
        "memory_gib": 8,
        "gpu": None,
        "threads": 1,
        "load_average": [0.1, 0.2, 0.3],
    },
}


def test_a_median_is_of_each_figure_that_all_repeats_have():
    assert medians([{"a": 1, "b": 5}, {"a": 9}, {"a": 2}]) == {"a": 2.0}
    assert medians([]) == {}


@pytest.mark.parametrize("power", [0.5, 1.0, 1.7])
def test_the_exponent_of_a_power_law_is_found(power):
    sizes = [16, 32, 64, 128]
    assert exponent(sizes, [3 * size**power for size in sizes]) == pytest.approx(power)


def test_the_exponent_is_a_least_squares_fit():
    """Logs of size 0, 1, 2 and of seconds 0, 0, 3: slope ((-1)(-1) + 0 + (1)(2)) / 2 = 1.5."""
    assert exponent([1, math.e, math.e**2], [1, 1, math.e**3]) == pytest.approx(1.5)


def test_one_size_has_no_exponent():
    with pytest.raises(ValueError, match="at least two different sizes"):
        exponent([8, 8], [1, 2])


def test_flops_by_hand():
    """N = 10 weights, lengths 3 and 1, 2 layers of width 4: 6*10*4 + 6*2*4*(9+1) = 240 + 480."""
    assert training_flops(10, 4, 10, 2, 4) == 720


def test_weights_that_multiply_are_counted_once():
    shape = Shape(
        family="qwen3",
        layers=1,
        width=8,
        inner=32,
        heads=2,
        shared_heads=1,
        head_width=4,
        vocabulary=100,
        dtype="float32",
    )
    # q, k, v, o; gate, up, down; the tied embedding
    assert matrix_weights(shape) == (8 * 8 + 8 * 4 + 8 * 4 + 8 * 8) + 3 * 8 * 32 + 100 * 8


def test_the_tiny_model_is_the_one_that_is_named():
    assert sum(p.numel() for p in build(TINY, 64).parameters()) == matrix_weights(TINY) + 6 * (2 * 256 + 2 * 32) + 256
    assert len(tokenizer()) == TINY.vocabulary


@pytest.mark.parametrize("scale", [CPU, GPU, SMOKE])
def test_turn_lengths_are_a_function_of_the_place_alone(scale):
    places = [(1, p, s, t) for p in range(2) for s in range(3) for t in range(scale.turns)]
    variable = [scale.length("variable", *place) for place in places]
    assert variable == [scale.length("variable", *place) for place in places]
    assert set(variable) <= set(range(scale.variable[0], scale.variable[1] + 1))
    assert len(set(variable)) > 2
    assert {scale.length("fixed", *place) for place in places} == {scale.fixed}
    assert [scale.length("variable", 2, *place[1:]) for place in places] != variable


class Parrot:
    """An engine that says the same token as often as it may."""

    policy_version, shares_weights = 0, True

    def __init__(self):
        self.stops = set()

    async def generate(self, request):
        count = request.sampling.max_tokens
        self.stops.add(request.sampling.stop_id)
        return Completion((70,) * count, (-1.0,) * count, Finish.LENGTH, self.policy_version)

    def release(self, session):
        pass

    async def close(self):
        pass

    def take(self, handover):
        self.policy_version = handover.version

    def sleep(self):
        pass


@pytest.fixture
def task(tmp_path):
    model = build(TINY, 256)
    save_model(model, tokenizer(), tmp_path / "model")
    return Task(tmp_path / "model", TINY, SMOKE, "variable")


def test_both_sides_play_the_same_tokens(task):
    """The project's scheduler and the lock-step loop, with the same parrot, write the same dialogues, turn lengths and
    masks.
    """
    ours = Ours("transformers", task, learns=False)
    parrot = Parrot()
    ours.engine.engine = parrot
    ours.number = 1
    trajectories = ours.session.rollout(ours._specs(), 1.0)
    chat = ChatFormat(tokenizer())
    prompts = [p for p in range(SMOKE.prompts) for _ in range(SMOKE.samples)]
    dialogues = seated(chat, SMOKE, prompts, list(range(SMOKE.samples)) * SMOKE.prompts)
    play(dialogues, chat, SMOKE, "variable", 1, lambda _, lengths: [[70] * length for length in lengths])
    assert parrot.stops == {None}
    for trajectory, dialogue in zip(trajectories, dialogues, strict=True):
        assert list(trajectory.token_ids) == dialogue.opening + dialogue.ids
        assert list(trajectory.loss_mask) == [0] * len(dialogue.opening) + dialogue.mask
        assert [event["outcome"] for event in trajectory.events] == dialogue.rewards
        lengths = [
            SMOKE.length("variable", 1, int(trajectory.case_id), trajectory.sample, turn) for turn in range(SMOKE.turns)
        ]
        assert [end - start for start, end in trajectory.turns] == lengths
    longest = max(len(t.token_ids) for t in trajectories)
    assert longest == longest_episode(SMOKE, "variable", 1)
    assert longest < context_of(SMOKE)


def test_a_forced_engine_is_the_engine_otherwise():
    engine = ForcedEngine(Parrot(), lambda session, turn: turn + 2)
    request = Request("a", (1,), 0, Sampling(1.0, 99, 4))
    assert [len(asyncio.run(engine.generate(request)).token_ids) for _ in range(2)] == [2, 3]
    engine.release("a")
    assert len(asyncio.run(engine.generate(request)).token_ids) == 2
    engine.take(SimpleNamespace(version=7))
    assert engine.policy_version == engine.engine.policy_version == 7
    assert engine.take_s > 0


def test_the_engine_is_chosen_by_name():
    assert missing("transformers") is None
    params = rollout_params("transformers", prompts=3, slots=4)
    assert (params.prompts, params.slots) == (3, 4)
    assert [rollout_params(name).engine.kind for name in ENGINES] == list(ENGINES)


def test_our_rule_is_the_one_that_trl_calls_dapo():
    rule = algorithm(8, 64, 1000)
    recipe = rule.recipe
    assert (recipe.aggregation, recipe.clip_low, recipe.clip_high, recipe.divide_by_std, recipe.credit) == (
        "token",
        0.2,
        0.28,
        "group",
        "episode",
    )
    assert (rule.gradient_units, rule.frozen_roles, recipe.kl.place, recipe.entropy_coefficient) == (
        64,
        (),
        "none",
        0.0,
    )


def test_made_up_experience_is_the_same_for_both_sides():
    load = Load(64, 4, 2, 128)
    first, again = experience(load, 300, 0), experience(load, 300, 0)
    assert [t.token_ids for t in first] == [t.token_ids for t in again]
    for trajectory in first:
        assert 32 <= len(trajectory.token_ids) <= 64
        assert trajectory.sampled_tokens == sum(end - start for start, end in trajectory.turns)
        assert all(trajectory.loss_mask[start] for start, _ in trajectory.turns)


def test_both_updates_have_the_same_gradient():
    load = Load(64, 4, 2, 128)
    sides = [kind(TINY, load) for kind in (updates.Ours, updates.Naive)]
    found = watched(sides[0].learner)
    for side in sides:
        side.step()
    ours = torch.cat([found[name].flatten() for name, _ in sides[0].model.named_parameters()])
    naive = torch.cat([p.grad.flatten() for p in sides[1].model.parameters()])
    assert ours.norm() > 0
    torch.testing.assert_close(naive, ours, rtol=1e-3, atol=1e-4 * float(ours.abs().max()))


def test_overhead_is_what_no_phase_explains():
    figures = {
        "wall_s": 10.0,
        "rollout_s": 6.0,
        "update_s": 3.0,
        "score_task_s": 0.2,
        "save_task_s": 0.3,
        "record_step_task_s": 0.1,
        "patients_s": 1.5,
    }
    made = shares(figures)
    assert made["outside_s"] == pytest.approx(1.0)
    assert made["outside_share"] == pytest.approx(0.1)
    assert made["rest_s"] == pytest.approx(0.4)
    assert made["patients_share_of_rollout"] == pytest.approx(0.25)


def results():
    step = Part(notes=["a note"])
    step.rows = [
        {
            "model": "tiny",
            "variant": "fixed",
            "side": "ours, transformers",
            "median": {"wall_s": 2.0, "rollout_s": 1.0, "update_s": 1.0, "peak_bytes": 2.0**30},
            "raw": [],
        },
        {"model": "tiny", "variant": "fixed", "side": "ours, vllm", "skipped": "not installed"},
    ]
    step.goal("ratio", 1.5, 1.6)
    step.goal("other", None, 0.85)
    step.goal("growth", 1.0, 1.05, at_least=False)
    growth = [
        {
            "model": "tiny",
            "factor": f,
            "episodes": 4 * f,
            "median": {"rollout_s": float(f), "update_s": 2.0 * f},
            "raw": [],
        }
        for f in (1, 2, 4)
    ]
    return {
        "rl_step": {"run": RUN, **vars(step)},
        "growth": {"run": RUN, "rows": growth, "goals": [], "notes": []},
        "rollout": {"run": RUN, "failed": "no memory"},
    }


def test_a_table_shows_figures_reasons_and_goals():
    page = render(results())
    assert "| tiny | fixed | ours, transformers | 2 | 1 | 1 | 1,024 MiB |" in page
    assert "skipped: not installed" in page
    assert "- ratio: 1.5 (goal: at least 1.6) **missed**" in page
    assert "- other: (goal: at least 0.85) **not measured here**" in page
    assert "- growth: 1 (goal: at most 1.05) **reached**" in page
    assert "uncommitted changes" in page
    assert "vllm not installed" in page
    assert "Failed: no memory" in page
    widths = {line.count("|") for line in page.splitlines() if line.startswith("| tiny | fixed")}
    assert len(widths) == 1


def test_a_plot_is_drawn(tmp_path):
    draw(results(), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5_000


def test_what_a_share_of_the_processor_explains() -> None:
    alone = {1: 12.0, 2: 8.0, 4: 6.0}
    assert share_of_cores(1, 4, 3) == 1.0
    assert share_of_cores(4, 4, 4) == 2.0
    assert share_of_cores(2, 4, 2) == 2.0
    assert share_of_cores(1, 4, 7) == 0.5
    assert explained(alone, 2, 4, 2) == 8.0
    assert explained(alone, 1, 4, 7) == 24.0
    assert explained(alone, 4, 4, 4) == 8.0
    assert explained(alone, 4, 4, 1) == pytest.approx(8 / 3.2 + 4.0)  # 4 s that no thread shortens, 8 s of work
    assert explained({1: 3.0}, 4, 4, 0) == 3.0
