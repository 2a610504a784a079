"""The same model on a GPU and on the processor: log-probabilities, gradients, checkpoints. Run by `make gpu`."""

import asyncio
import copy
from pathlib import Path

import pytest
import torch

from rl.adapters import named_weights
from rl.algorithms import make_algorithm
from rl.config import RolloutParams
from rl.engines.base import Request, Sampling, noise_key
from rl.engines.transformers import TransformersEngine
from rl.experience import Scores, Trajectory
from rl.flex import read_rows, reads_rows, why_no_flex
from rl.handover import handover_of, sequence_logprobs
from rl.machine import Place
from rl.models import load_model
from rl.policy import Policy
from rl.workers.local import LocalSession
from tests.handing import watched
from tests.numerics.test_flex import batches, long_row, model_of, outcome
from tests.recipes import recipe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here"),
]
BASE = str(Path(__file__).parents[2] / "models/base")
ROLLOUT = RolloutParams(
    prompts=2,
    response_length=24,
    max_episode_tokens=256,
    slots=16,
    max_failed_share=0.0,
    ahead=0,
    engine={"kind": "transformers", "compile": False},
)
OPTIMIZER = {"num_epochs": 1, "mini_batch_size": 16, "learning_rate": 1e-4, "micro_batch_tokens": 1024}


@pytest.fixture(autouse=True, scope="module")
def full_precision():
    """Products in float32, not in TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def sessions(name: str, optimizer: dict | None = None, **places) -> list[LocalSession]:
    critic = {"critic": {"warmup_rollout_steps": 0}} if name == "ppo" else {}
    numbers = recipe(name, group_size=8, optimizer=OPTIMIZER | {"max_grad_norm": 1e9} | (optimizer or {}), **critic)
    return [
        LocalSession(BASE, place, ROLLOUT, make_algorithm(numbers), 0, temperature=1.0)
        for place in (Place(), Place("cuda", **places))
    ]


def turns(engine: TransformersEngine, count: int = 16) -> list:
    async def one(number: int):
        ids = tuple((37 * number + 11 * place) % 300 + 10 for place in range(20 + number))
        made = await engine.generate(Request(f"s{number}", ids, noise_key(number), Sampling(1.0, 24, None)))
        engine.release(f"s{number}")
        return ids, made

    async def all_of_them():
        made = await asyncio.gather(*(one(number) for number in range(count)))
        await engine.close()
        return made

    return asyncio.run(all_of_them())


def experience(session: LocalSession) -> tuple[list[Trajectory], list[Scores]]:
    """Two groups of eight, played by the engine of a session, with made-up scores."""
    session.hold()
    trajectories = []
    for number, (ids, made) in enumerate(turns(session.engine)):
        logprobs = [0.0] * len(ids) + list(made.logprobs)
        trajectories.append(
            Trajectory(
                episode_id=f"{number // 8}/{number}",
                case_id=f"{number // 8}",
                group_id=f"{number // 8}",
                sample=number % 8,
                policy_version=0,
                turn_budget=1,
                token_ids=ids + made.token_ids,
                logprobs=tuple(logprobs),
                loss_mask=(0,) * len(ids) + (1,) * len(made.token_ids),
                turns=((len(ids), len(ids) + len(made.token_ids)),),
                texts=(),
                events=({},),
                stop_reason="ended",
                privileged={},
                started_s=0.0,
                ended_s=1.0,
            )
        )
    return trajectories, [Scores(t.episode_id, ({"outcome": float(t.sample % 3)},)) for t in trajectories]


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.timeout(600))])
def test_an_engine_samples_with_the_log_probabilities_of_the_processor(compiled):
    """From recorded steps, none of which was done without."""
    model, _ = load_model(BASE, "float32")
    on_gpu = TransformersEngine(copy.deepcopy(model).to("cuda").eval(), 16, 256, compiled=compiled)
    on_gpu.take(handover_of(Policy(on_gpu.model), 0))
    for ids, made in turns(on_gpu):
        plain = sequence_logprobs(Policy(model.eval()), [*ids, *made.token_ids])[-len(made.token_ids) :]
        torch.testing.assert_close(torch.tensor(made.logprobs), plain, atol=1e-4, rtol=0)
    assert on_gpu.refused == {}


def test_recorded_steps_say_what_ordinary_decoding_says():
    """A second time after sleep, which gives recordings and cache back."""
    model = load_model(BASE, "float32")[0].to("cuda").eval()
    ordinary = turns(TransformersEngine(model, 16, 256, static=False))
    recorded = TransformersEngine(model, 16, 256)
    for _ in range(2):
        for (_, ours), (_, theirs) in zip(turns(recorded), ordinary, strict=True):
            assert ours.token_ids == theirs.token_ids
            torch.testing.assert_close(torch.tensor(ours.logprobs), torch.tensor(theirs.logprobs), atol=1e-4, rtol=0)
        recorded.sleep()
        recorded.take(handover_of(Policy(model), 1))


@pytest.mark.parametrize("optimizer", [{}, {"gradient_checkpointing": True}, {"compile": True}])
@pytest.mark.parametrize("name", ["grpo", "ppo"])
@pytest.mark.timeout(600)
def test_a_learner_has_the_gradient_of_the_processor(caplog, name, optimizer):
    cpu, gpu = sessions(name, optimizer)
    assert reads_rows(gpu.model.get_decoder())
    trajectories, scores = experience(cpu)
    gradients = [watched(session.learner) for session in (cpu, gpu)]
    for session in (cpu, gpu):
        session.learn(trajectories, scores, 1)
    largest = max(float(value.abs().max()) for value in gradients[0].values())
    assert largest > 0
    for key, value in gradients[0].items():
        torch.testing.assert_close(gradients[1][key].cpu(), value, atol=1e-3 * largest, rtol=1e-3)
    assert "cannot be compiled" not in caplog.text


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["qwen2", "mistral-window", "gemma2"])
def test_flex_attention_works_here(family, dtype):
    assert why_no_flex(model_of(family).to("cuda"), dtype) is None


@pytest.mark.parametrize("family", ["qwen2", "mistral-window", "gemma2", "gemma3"])
def test_rows_have_the_gradients_of_the_padded_path_on_the_processor(family):
    made = [batch for kind in ("packed", "siblings", "branches") for batch in batches(kind)] + long_row()
    model = model_of(family)
    expected = outcome(model, made)
    model.to("cuda")
    read_rows(model)
    ours = outcome(model, made)
    torch.testing.assert_close(ours[0].cpu(), expected[0], atol=1e-4, rtol=0)
    for key, value in expected[1].items():
        assert float((ours[1][key].cpu() - value).norm() / value.norm()) < 1e-3, key


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_a_checkpoint_of_a_gpu_is_read_on_the_processor(tmp_path, compute):
    cpu, gpu = sessions("grpo", compute=compute, offload=True)
    trajectories, scores = experience(gpu)
    gpu.learn(trajectories, scores, 1)
    cpu.restore(gpu.save(tmp_path / "run", 1))
    assert cpu.policy_version == gpu.policy_version == 1
    written = dict(named_weights(gpu.model))
    assert all(torch.equal(value, written[name].cpu()) for name, value in named_weights(cpu.model))
    if compute == "float32":
        ids = list(range(10, 40))
        here, there = (sequence_logprobs(Policy(session.model.eval()), ids) for session in (cpu, gpu))
        torch.testing.assert_close(here, there, atol=1e-4, rtol=0)


def test_the_engine_gives_its_memory_back_while_the_policy_learns():
    _, gpu = sessions("grpo", compute="bfloat16")
    trajectories, scores = experience(gpu)
    playing = torch.cuda.memory_allocated()
    seen = []
    gpu.learner.optimizers.of["policy"].register_step_pre_hook(lambda *_: seen.append(gpu.engine._cache is None))
    gpu.learn(trajectories, scores, 1)
    assert seen
    assert all(seen)
    gpu.hold()
    moments = 8 * sum(p.numel() for p in gpu.model.parameters())
    assert torch.cuda.memory_allocated() - playing < 1.1 * moments
