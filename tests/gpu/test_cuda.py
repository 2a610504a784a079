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
from rl.handover import handover_of, sequence_logprobs
from rl.machine import Place
from rl.models import load_model
from rl.policy import Policy
from rl.workers.local import LocalSession
from tests.handing import watched
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


def sessions(name: str, **places) -> list[LocalSession]:
    critic = {"critic": {"warmup_rollout_steps": 0}} if name == "ppo" else {}
    numbers = recipe(name, group_size=8, optimizer=OPTIMIZER | {"max_grad_norm": 1e9}, **critic)
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


def test_an_engine_samples_with_the_log_probabilities_of_the_processor():
    model, _ = load_model(BASE, "float32")
    on_gpu = TransformersEngine(copy.deepcopy(model).to("cuda").eval(), 16, 256)
    on_gpu.take(handover_of(Policy(on_gpu.model), 0))
    for ids, made in turns(on_gpu):
        plain = sequence_logprobs(Policy(model.eval()), [*ids, *made.token_ids])[-len(made.token_ids) :]
        torch.testing.assert_close(torch.tensor(made.logprobs), plain, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_a_learner_has_the_gradient_of_the_processor(name):
    cpu, gpu = sessions(name)
    trajectories, scores = experience(cpu)
    gradients = [watched(session.learner) for session in (cpu, gpu)]
    for session in (cpu, gpu):
        session.learn(trajectories, scores, 1)
    largest = max(float(value.abs().max()) for value in gradients[0].values())
    assert largest > 0
    for key, value in gradients[0].items():
        torch.testing.assert_close(gradients[1][key].cpu(), value, atol=1e-3 * largest, rtol=1e-3)


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
    gpu.learner.optimizer.register_step_pre_hook(lambda *_: seen.append(gpu.engine._cache is None))
    gpu.learn(trajectories, scores, 1)
    assert seen
    assert all(seen)
    gpu.hold()
    moments = 8 * sum(p.numel() for p in gpu.model.parameters())
    assert torch.cuda.memory_allocated() - playing < 1.1 * moments
