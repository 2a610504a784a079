"""What searching costs and gives a doctor, counted on consultations that a script plays."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from clinic.actions import diagnosis, search
from clinic.cases import write_cases
from clinic.consultation import Consultation, at_once
from clinic.errors import ClinicError
from clinic.language import EN
from clinic.starter import draw_cases
from doctor import search_calibration
from doctor.environments import open_factory
from doctor.parameters import ROOT, Params, parse_params
from doctor.profiles import rewritten
from doctor.search_calibration import own_search_lines, search_lines
from kb.building import build_knowledge_base
from rl.environment import EpisodeSpec
from rl.experience import Trajectory


@pytest.fixture(scope="module")
def params() -> Params:
    return parse_params(
        YAML(typ="safe").load(io.StringIO(rewritten("rare")[ROOT / "params.yaml"])), ROOT / "params.yaml"
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, params: Params) -> tuple[Path, Path]:
    """A case table of common and rare patients, and an index of both kinds of articles, by words."""
    folder = tmp_path_factory.mktemp("clinic")
    build_knowledge_base(params.knowledge_base, ROOT, folder / "index")
    clinic = open_factory(params, folder / "index").clinic
    drawn = list(draw_cases(clinic, 400, 11, params.patient_cases.split, keep=["test"]))
    common = {condition.condition_id for condition in clinic.common.conditions}
    chosen = [case for case in drawn if case.diagnosis_id in common][:6]
    chosen += [case for case in drawn if case.diagnosis_id not in common][:4]
    (folder / "cases").mkdir()
    write_cases([replace(case, split="test") for case in chosen], folder / "cases" / "cases.parquet")
    return folder / "cases", folder / "index"


class Scripted:
    """A session whose doctor looks up the diagnosis of the chart and names the first line, else a common cold."""

    def __init__(self, _params: Params, _model: Path, seats: Mapping[str, Consultation]) -> None:
        self._seats = seats
        self.chat = type("Chat", (), {"count": staticmethod(lambda text: len(text.split()))})

    def close(self) -> None:
        """Nothing is held."""

    def rollout(self, specs: Sequence[EpisodeSpec], temperature: float) -> list[Trajectory]:
        del temperature
        return [self._played(spec) for spec in specs]

    def _played(self, spec: EpisodeSpec) -> Trajectory:
        seat = self._seats[spec.case_id]
        found = at_once(seat.step(search(spec.case.diagnosis, EN)))
        lines = [line for line in (found.text or "").splitlines() if line.startswith("[")]
        named = lines[0].split("] ")[1].split(",")[0] if lines else "Common cold"
        end = at_once(seat.step(diagnosis(named, "Rest.", EN)))
        return Trajectory(
            episode_id="", case_id=spec.case_id, group_id="", sample=0, policy_version=0, turn_budget=8, token_ids=(),
            logprobs=(), loss_mask=(), turns=(), texts=(), events=(found.event.to_json(), end.event.to_json()),
            stop_reason="diagnosed", privileged={}, started_s=0.0, ended_s=1.0,
        )  # fmt: skip


def test_what_own_searches_bring_is_told_by_who_could_know_it(monkeypatch, params, folders):
    monkeypatch.setattr(search_calibration, "_session", Scripted)
    learned, with_learned, alone, with_alone = own_search_lines(params, Path("any"), *folders, 200)
    assert (
        learned
        == "6 cases of conditions that it learned: 1.00 searches each, 100.0% of those who search are shown its name"
    )
    assert (
        alone
        == "4 cases that only the library knows: 1.00 searches each, 100.0% of those who search are shown its name"
    )
    assert with_learned.startswith("  accuracy 1.000, with nothing found 0.000, difference +1.000 [")
    assert with_alone.startswith("  accuracy 1.000, with nothing found 0.000, difference +1.000 [")


def test_a_doctor_that_never_searches_is_the_same_with_and_without(params, folders):
    """The bundled model asks and diagnoses; nobody taught it to look things up."""
    told = own_search_lines(params, ROOT / "models/base", *folders, 6)
    assert sum("0.00 searches each" in line for line in told) == len(told) / 2
    assert all("difference +0.000" in line for line in told[1::2])


@pytest.mark.slow
def test_more_cases_than_searches_are_remembered_are_measured_too(monkeypatch, params, folders):
    told = search_lines(params, ROOT / "models/base", *folders, 6)
    monkeypatch.setattr("doctor.library.KEPT", 4)
    assert search_lines(params, ROOT / "models/base", *folders, 6) == told


def test_a_forced_search_is_measured_beside_one_that_finds_nothing(params, folders):
    passages, nothing, less = search_lines(params, ROOT / "models/base", *folders, 6)
    assert passages.startswith("passages ")
    assert nothing.startswith("nothing found ")
    assert "0.0% name the condition; 0.0% out of tokens" in nothing
    assert less.startswith("accuracy, passages minus nothing found: ")


def test_a_search_that_would_take_the_only_turn_is_refused(params, folders):
    rules = params.consultation.model_copy(update={"turn_budget": 1})
    with pytest.raises(ClinicError, match="turn_budget is 1"):
        search_lines(params.model_copy(update={"consultation": rules}), ROOT / "models/base", *folders, 6)
