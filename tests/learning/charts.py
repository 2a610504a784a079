"""What the charts of the bundled clinic tell, and what its warm start makes of soft tokens: `python -m tests.learning.charts`.

First a linear reader of centred mean embeddings, of those as they are, and of each through random layers, as an encoder
begins with. Then the warm start plays test cases, told in its soft tokens a mixture of the placeholder's embedding and of a
vector that it was never taught to read. Nothing versioned is touched.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

import torch
from torch.nn.functional import layer_norm, rms_norm

from clinic.cases import Case, read_cases
from clinic.consultation import CHARTS, privileged
from doctor.evaluation import EVALUATION_STEP
from doctor.parameters import load_params, read_recipe
from doctor.scoring import accuracy
from rl.environment import EpisodeSpec
from tasks.command_line import USER_ERRORS, process
from tests.learning.clinic import CASES, Lesson

CENTRE, HIDDEN = 16, 64  # charts of a first rollout; width of the recipe's encoder
Tell = Callable[[EpisodeSpec], torch.Tensor]


@dataclass(frozen=True)
class Told:
    """A feature that says what it was made to say."""

    tokens: int
    placeholder: int
    tell: Tell

    async def __call__(self, spec: EpisodeSpec, dialogue: Sequence[int]) -> torch.Tensor:
        """See `rl.features.Feature`."""
        return self.tell(spec).expand(self.tokens, -1)


class Reading:
    """The warm start with the parts of `ppo_roa`, never trained."""

    def __init__(self) -> None:
        """Open it."""
        self.params = load_params(None, {"algorithm.name": "ppo_roa", "train_doctor.steps": 1, "seed": 0})
        self.lesson = Lesson(self.params, read_recipe("ppo_roa"), {}, None)
        self.session = self.lesson.run.session
        self.table = self.session.model.get_input_embeddings().weight.detach()

    def mean(self, text: str) -> torch.Tensor:
        """Mean embedding of a text's tokens."""
        return self.table[torch.tensor(self.session.chat.content_ids(text))].mean(0)

    def linear(self, cases: Sequence[Case], kind: str) -> None:
        """Print the accuracy of a linear reader on the last third of cases."""
        mean_CW = torch.stack([self.mean(privileged(case)["chart"][kind]) for case in cases])
        names = sorted({case.diagnosis for case in cases})
        named_C = torch.tensor([names.index(case.diagnosis) for case in cases])
        torch.manual_seed(0)
        random = torch.nn.Linear(mean_CW.shape[1], HIDDEN).requires_grad_(False)
        for how, from_W in (("as it is", torch.zeros(())), ("centred", mean_CW[:CENTRE].mean(0))):
            unit_CW = layer_norm(mean_CW - from_W, mean_CW.shape[1:])
            for through, read_CX in (("", unit_CW), (f", {HIDDEN} random tanh", torch.tanh(random(unit_CW)))):
                print(f"{kind}, {how}{through}: {read(read_CX, named_C, len(names)):.3f}", flush=True)

    def play(self, what: str, cases: Sequence[Case], tell: Tell) -> None:
        """Print the accuracy of the warm start that is told this."""
        run, student = self.lesson.run, self.session.learner.policy.adapt_ema
        student.feature = lambda _: Told(student.tokens, student.placeholder, tell)
        specs = run.factory.episodes(cases, 1, 0, EVALUATION_STEP)
        played = self.session.rollout(specs, self.params.decoding.evaluate.temperature, lambda _, __: None)
        turns = sum(len(one.turns) for one in played) / len(played)
        print(f"{what}: accuracy {accuracy(cases, played):.3f}, turns {turns:.1f}", flush=True)

    def soft(self, cases: Sequence[Case]) -> None:
        """Tell the warm start the placeholder, the diagnosis' own name, and charts."""
        head = self.session.learner.policy.encoder_priv.head

        def mixed(weight: float, of: Callable[[dict[str, str]], torch.Tensor]) -> Tell:
            def tell(spec: EpisodeSpec) -> torch.Tensor:
                said_W = of(spec.privileged["chart"])  # type: ignore[index]  # of a consultation
                moved_W = head.start_W + weight * rms_norm(said_W, said_W.shape)
                vector_W: torch.Tensor = head.scale * rms_norm(moved_W, moved_W.shape)
                return vector_W

            return tell

        self.play("placeholder", cases, lambda _: head.scale * head.start_W)
        for weight in (0.3, 1.0, 3.0):
            name = mixed(weight, lambda chart: self.mean(chart["facts_and_diagnosis"].rpartition("Diagnosis: ")[2]))
            self.play(f"name of the diagnosis, weight {weight}", cases, name)
        met = self.lesson.run.cases(1, 0)
        for kind in CHARTS:
            centre_W = torch.stack([self.mean(privileged(case)["chart"][kind]) for case in met]).mean(0)
            for weight in (0.3, 1.0):
                chart = mixed(weight, lambda chart, kind=kind, centre_W=centre_W: self.mean(chart[kind]) - centre_W)
                self.play(f"{kind}, centred, weight {weight}", cases, chart)


def read(read_CX: torch.Tensor, named_C: torch.Tensor, names: int) -> float:
    """Accuracy on the last third of a linear reader of the rest."""
    rest = len(read_CX) * 2 // 3
    reader = torch.nn.Linear(read_CX.shape[1], names)
    optimizer = torch.optim.AdamW(reader.parameters(), 1e-2, weight_decay=1e-2)
    for _ in range(300):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(reader(read_CX[:rest]), named_C[:rest]).backward()
        optimizer.step()
    return float((reader(read_CX[rest:]).argmax(1) == named_C[rest:]).float().mean())


def main() -> int:
    """Read, then play."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--charts", type=int, default=3000, help="that the reader sees and is asked about")
    parser.add_argument("--cases", type=int, default=200, help="that the warm start plays")
    args = parser.parse_args()
    with process("charts", *USER_ERRORS):
        logging.disable(logging.INFO)
        torch.set_num_threads(1)
        reading = Reading()
        with closing(reading.session):
            for kind in CHARTS:
                reading.linear(read_cases(CASES / "cases.parquet", "train")[: args.charts], kind)
            reading.soft(reading.lesson.test_set.cases[: args.cases])
    return 0


if __name__ == "__main__":
    sys.exit(main())
