"""Episodes of a warm start, played in parts."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from doctor.parameters import load_params
from rl.chat import ChatFormat
from rl.environment import EpisodeSpec
from rl.experience import StopReason, Trajectory
from rl.models import new_model, save_model
from tasks import warm_start
from tasks.warm_start import fine_tune, in_parts
from tests.numerics.families import DATED
from tests.numerics.families import tokenizer_of as tokenizer_of_family
from tests.unit.doctor.test_patient_calibration import CASE

SPECS = [
    EpisodeSpec(
        case_id=f"case-{i}",
        group_id=f"group-{i}",
        sample=0,
        turn_budget=8,
        noise=(0, -3),
        case=None,
        privileged={},
    )
    for i in range(7)
]


def trajectory(spec: EpisodeSpec, stop: StopReason) -> Trajectory:
    return Trajectory(
        episode_id=spec.group_id,
        case_id=spec.case_id,
        group_id=spec.group_id,
        sample=0,
        policy_version=0,
        turn_budget=8,
        token_ids=(1, 2),
        logprobs=(0.0, -0.5),
        loss_mask=(0, 1),
        turns=((1, 2),),
        texts=({"role": "assistant", "content": "hello"},),
        events=({"kind": "diagnosed"},),
        stop_reason=stop,
        privileged={},
        started_s=0.0,
        ended_s=1.0,
    )


class Players:
    """Plays, and may end at a part, or fail in one."""

    def __init__(self, dies_at: int | None = None, fails_at: int | None = None) -> None:
        self.parts: list[list[str]] = []
        self._dies_at, self._fails_at = dies_at, fails_at

    def __call__(self, specs, progress):
        if len(self.parts) == self._dies_at:
            raise KeyboardInterrupt
        stop = StopReason.FAILED if len(self.parts) == self._fails_at else StopReason.ENDED
        self.parts.append([spec.case_id for spec in specs])
        return [trajectory(spec, stop) for spec in specs]


def sizes(players: Players) -> list[int]:
    return [len(part) for part in players.parts]


def test_all_are_played_in_order(tmp_path: Path) -> None:
    players = Players()
    played = in_parts(SPECS, players, 3, tmp_path)
    assert [one.case_id for one in played] == [spec.case_id for spec in SPECS]
    assert sizes(players) == [3, 3, 1]


def test_what_was_played_before_an_end_is_not_played_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        in_parts(SPECS, Players(dies_at=2), 3, tmp_path)
    players = Players()
    played = in_parts(SPECS, players, 3, tmp_path)
    assert players.parts == [["case-6"]]
    assert played == [trajectory(spec, StopReason.ENDED) for spec in SPECS]


def test_parts_of_another_size_are_played_again(tmp_path: Path) -> None:
    in_parts(SPECS, Players(), 2, tmp_path)
    players = Players()
    played = in_parts(SPECS, players, 4, tmp_path)
    assert [one.case_id for one in played] == [spec.case_id for spec in SPECS]
    assert sizes(players) == [4, 3]


def test_a_part_with_failures_and_a_damaged_one_are_played_again(tmp_path: Path) -> None:
    in_parts(SPECS, Players(fails_at=1), 3, tmp_path)
    first = tmp_path / "0000000-0000003.parquet"
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    players = Players()
    in_parts(SPECS, players, 3, tmp_path)
    assert players.parts == [["case-0", "case-1", "case-2"], ["case-3", "case-4", "case-5"]]


def test_a_start_without_a_training_reads_the_same_tomorrow(tmp_path: Path) -> None:
    """Else a run that is resumed on another day would read other tokens, and get other weights."""
    tokenizer = tokenizer_of_family("llama")
    assert tokenizer.chat_template == DATED
    save_model(new_model(tokenizer, 32, 1, 2, 512, 0), tokenizer, tmp_path / "base")
    params = load_params()
    start = params.warm_start.model_copy(update={"base": str(tmp_path / "base"), "start": "none"})
    fine_tune.fn(params.model_copy(update={"warm_start": start}), tmp_path, tmp_path, tmp_path / "out")
    read = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert "strftime_now" not in read.chat_template
    assert ChatFormat(read).tokenizer.chat_template == read.chat_template


def test_a_doctor_as_base_hands_on_which_cases_it_learned_from_and_any_other_model_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(warm_start, "save_model", lambda model, tokenizer, out: out.mkdir())
    base, out = tmp_path / "base", tmp_path / "out"
    base.mkdir()
    warm_start._save(None, None, str(base), [CASE], tmp_path / "plain")
    warm_start._save(None, None, "a/model-of-a-hub", [CASE], tmp_path / "hub")
    assert list((tmp_path / "plain").iterdir()) == list((tmp_path / "hub").iterdir()) == []
    (base / "learned_from.txt").write_text("before\n")
    warm_start._save(None, None, str(base), [CASE], out)
    assert (out / "learned_from.txt").read_text().split() == sorted(["before", CASE.case_id])
