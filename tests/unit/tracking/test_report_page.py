"""The report page: whole without a network, safe against what doctors and patients write, and its counts right."""

import csv
import math
import re
import unicodedata
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from clinic.cases import Case, Fact
from clinic.events import Asked, Diagnosed, Event, Invalid
from clinic.metrics import MEASURES
from clinic.tables import Evaluation
from doctor.report_texts import language_of, texts
from tracking.report_page import (
    NO_DIAGNOSIS,
    RECORDED,
    SOMETHING_ELSE,
    Seen,
    accuracy_by_turns,
    confusion,
    recorded,
    report_html,
    write_accuracy_by_turns,
    write_confusion,
    write_report,
)

VOID = {"meta", "line", "circle", "polyline"}
HOSTILE = "<script>alert('x')</script> \"><img src=x onerror=y> {{ 7 * 7 }} \u202egnp.exe\u202c\u200b\ud800\x00"
INTERVAL = {"mean": 0.5, "low": 0.25, "high": 0.75}


class Page(HTMLParser):
    """Tags with their attributes, and the text of the page; open tags must close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())


def case(case_id: str = "c1", diagnosis: str = "Pneumonia", **changes: Any) -> Case:
    facts = (
        Fact("cough", True, "I cough"),
        Fact("night_sweats", True, "I sweat at night"),
        Fact("fever", False, "I have no fever"),
        Fact("rash", False, "no rash"),
    )
    fields: dict[str, Any] = {
        "case_id": case_id,
        "group_id": case_id,
        "split": "test",
        "source": "records",
        "licence": "CC0-1.0",
        "language": "en",
        "category": "chest",
        "persona": "plain",
        "self_report": "I cough.",
        "opening": ("cough",),
        "facts": facts,
        "diagnosis_id": diagnosis.lower(),
        "diagnosis": diagnosis,
        "synonyms": ("Lung infection",) if diagnosis == "Pneumonia" else (),
        "parents": (),
        "recommendation": "Rest",
        "urgent": True,
        "red_flags": ("night_sweats",),
        "flags": (),
    }
    return Case(**fields | changes)


def seen(
    patient: Case, named: str | None, questions: int = 1, reward: float | None = 0.0, correct: bool = False
) -> Seen:
    messages = [{"role": "system", "content": "Ask."}, {"role": "user", "content": patient.self_report}]
    events: list[Event] = []
    for _ in range(questions):
        messages += [
            {"role": "assistant", "content": "<think>Flu?</think><answer>Question: Any fever?</answer>"},
            {"role": "user", "content": "No."},
        ]
        events.append(Asked(text="Any fever?", topic="fever", present=False, repeated=False, reply="No."))
    if named is not None:
        messages.append({"role": "assistant", "content": f"<answer>Diagnosis: {named}\nRecommendation: Rest</answer>"})
        events.append(Diagnosed(named, "Rest"))
    rewards = (
        [] if reward is None else [*({"turn": -0.25, "information": 0.25} for _ in events[1:]), {"diagnosis": reward}]
    )
    return Seen(
        case=patient,
        messages=messages,
        events=events,
        rewards=rewards,
        stop_reason="out_of_turns" if named is None else "diagnosed",
        correct=correct,
    )


def page(played: Sequence[Seen] = (), **changes: Any) -> str:
    overall = {"cases": 4, "accuracy": INTERVAL, "reward": None}
    arguments: dict[str, Any] = {
        "title": "Doctor",
        "facts": {"seed": "0"},
        "metrics": {"trained": {"overall": overall, "chest": overall}},
        "curve": [],
        "seen": played,
    } | changes
    return report_html(**arguments | {"metrics": Evaluation.from_json(arguments["metrics"])})


def order(html: str) -> list[str]:
    return re.findall(r"<bdi>(case-\d+)</bdi></span>", html)


def test_confusion_knows_synonyms_strangers_and_silence() -> None:
    played = [
        seen(case(), "lung infection"),
        seen(case(), "PNEUMONIA"),
        seen(case(diagnosis="Flu"), "Lung  infection!"),
        seen(case(diagnosis="Flu"), "Dragon pox"),
        seen(case(), None),
        Seen(case=case(), messages=[], events=[], rewards=[], stop_reason="failed", correct=False),
    ]
    assert confusion(played) == [
        ("Pneumonia", "Pneumonia", 2),
        ("Pneumonia", NO_DIAGNOSIS, 2),
        ("Flu", "Pneumonia", 1),
        ("Flu", SOMETHING_ELSE, 1),
    ]


def test_interval_by_turns() -> None:
    played = [seen(case(), "Pneumonia", questions=1, correct=i < 8) for i in range(10)] + [
        seen(case(), "Flu", questions=3)
    ]
    two, four = accuracy_by_turns(played)
    assert (two["turns"], two["cases"], two["accuracy"]) == (2, 10, 0.8)
    assert (two["low"], two["high"]) == pytest.approx((0.4794, 0.9541), abs=1e-3)
    assert (four["turns"], four["cases"], four["low"]) == (4, 1, 0.0)
    assert four["high"] == pytest.approx(0.8325, abs=1e-4)


def test_page_is_well_formed_and_asks_for_nothing_from_outside() -> None:
    curve = [
        {"step": s, "reward/mean": s / 10, "rollout/accuracy": 0.5, "validation/accuracy": math.nan if s % 2 else 0.6}
        for s in range(1, 6)
    ]
    played = [
        seen(case(f"case-{i}", "Flu" if i % 3 else "Pneumonia"), "Flu", reward=i / 10, correct=bool(i % 3))
        for i in range(12)
    ]
    parsed = Page(page(played, curve=curve))
    assert parsed.open == []
    assert not {tag for tag, _ in parsed.tags} & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not [attrs for _, attrs in parsed.tags if {"src", "href", "xlink:href", "action"} & set(attrs)]
    assert "url(" not in page(played)
    assert "@import" not in page(played)
    # reward, training accuracy, validation accuracy
    assert len([tag for tag, _ in parsed.tags if tag == "polyline"]) == 3
    assert "0.500[0.250, 0.750]" in parsed.text.replace(" [", "[")


def test_hostile_texts_are_shown_and_do_nothing() -> None:
    bad = case(
        "<b>id",
        HOSTILE,
        language='en" onload="x',
        self_report=HOSTILE,
        synonyms=(HOSTILE,),
        facts=(Fact(HOSTILE, True, HOSTILE),),
        red_flags=(HOSTILE,),
        category=HOSTILE,
    )
    turn = {"role": "assistant", "content": HOSTILE}
    spoken = Seen(
        case=bad,
        messages=[{"role": "user", "content": HOSTILE}, turn, turn],
        events=[Invalid(HOSTILE, HOSTILE)],
        rewards=[{HOSTILE: 1.0}],
        stop_reason=HOSTILE,
        correct=False,
    )
    played = [spoken, seen(bad, HOSTILE.replace("\n", " ")), seen(case(), HOSTILE)]
    overall = {"cases": 1, "accuracy": INTERVAL}
    text = page(
        played, title=HOSTILE, facts={HOSTILE: HOSTILE}, metrics={HOSTILE: {"overall": overall, HOSTILE: overall}}
    )
    parsed = Page(text)
    assert not {tag for tag, _ in parsed.tags} & {"script", "img"}
    assert not [name for _, attrs in parsed.tags for name in attrs if name.startswith("on")]
    assert [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"] == []
    assert "alert('x')" in parsed.text
    assert "⟨U+202E⟩gnp.exe⟨U+202C⟩⟨U+200B⟩⟨U+D800⟩⟨U+0000⟩" in parsed.text
    assert "{{ 7 * 7 }}" in parsed.text
    text.encode()


def test_dialogue_shows_words_rewards_diagnosis_and_what_was_never_asked() -> None:
    text = Page(page([seen(case(), "Flu", questions=1, reward=-0.5)])).text
    for shown in (
        "doctor · question Flu? Any fever?",
        "+0.000 −0.250 turn +0.250 information",
        "doctor · diagnosis Flu recommendation Rest −0.500 −0.500 diagnosis",
        "True diagnosis Pneumonia urgent",
    ):
        assert shown in text
    unasked = text.partition("Facts never asked")[2]
    assert unasked.startswith(" I sweat at night night sweats red flag And 1 thing that the patient would have denied.")


def test_five_best_and_five_worst_by_reward_then_case_id() -> None:
    rewards = [0.3, 0.9, 0.1, 0.9, 0.5, 0.5, 0.2, 0.1, 0.4, 0.6, 0.45, 0.35]
    played = [seen(case(f"case-{i:02}"), "Flu", questions=0, reward=reward) for i, reward in enumerate(rewards)]
    shown = order(page(played[::-1]))
    assert shown == [f"case-{i:02}" for i in (1, 3, 9, 4, 5)] + [f"case-{i:02}" for i in (2, 7, 6, 0, 11)]
    assert order(page(played[:3])) == ["case-01", "case-00", "case-02"]  # none twice


def test_consultations_without_scores_are_not_ranked_among_scored_ones() -> None:
    played = [
        seen(case("case-1"), "Pneumonia", reward=None, correct=True),
        seen(case("case-2"), "Flu", reward=0.1),
        seen(case("case-3"), "Flu", reward=None),
    ]
    assert order(page(played)) == ["case-2"]
    alone = page([played[2], played[0]])
    assert order(alone) == ["case-1", "case-3"]
    assert "not scored" in alone


def test_heat_map_keeps_the_most_confused_and_loses_no_consultation() -> None:
    played = [
        seen(case(diagnosis=f"Illness {i:02}"), f"Illness {(i + 1) % 40:02}")
        for i in range(40)
        for _ in range(1 + (i < 2))
    ]
    played += [
        seen(case(diagnosis="Illness 00"), "Dragon pox"),
        seen(case(diagnosis="Never mistaken"), "Never mistaken"),
    ]
    table = re.search(r'<table class="heat">.*?</table>', page(played), re.DOTALL)[0]
    rows = table.partition("<tbody>")[2].split("<tr>")[1:]
    assert len(rows) <= 25
    assert max(row.count("<td") for row in rows) <= 25 + 1  # and the sum
    assert "Illness 00" in rows[0] + rows[1]
    assert "other conditions" in rows[-1]
    assert "Never mistaken" not in table
    assert sum(int(re.findall(r'<td class="number">(\d+)</td>', row)[0]) for row in rows) == len(played)
    # never mistaken; one folded condition taken for another
    assert re.findall(r"(\d+)&nbsp;\+&nbsp;(\d+)</td>", rows[-1]) == [("1", "17")]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"metrics": {}, "facts": {}},
        {"curve": [{"step": 1.0, "reward/mean": -2.0}]},
        {"curve": [{"step": 1.0, "reward/mean": math.inf}]},
    ],
)
def test_little_data_still_makes_a_page(changes: dict[str, Any]) -> None:
    assert Page(page(**changes)).open == []


def test_doctors_and_categories_that_lack_measures() -> None:
    one = {
        "overall": {"cases": 9, "accuracy": INTERVAL, "tokens": None, "top3": INTERVAL},
        "skin": {"cases": 9, "accuracy": INTERVAL},
    }
    other = {"overall": {"cases": 8, "accuracy": INTERVAL | {"mean": 0.625}}}
    text = Page(page(metrics={"trained": one, "other_doctor": other})).text
    table = text.partition("The doctor among others")[2]
    assert table.index("other doctor") < table.index("trained the doctor")
    assert "tokens" not in table
    assert "skin 9 fewer than 20 – 0.500 [0.250, 0.750]" in text


def test_a_doctor_who_missed_too_many_has_the_reason_and_no_figure() -> None:
    cut = {"cases": 50, "missing": {f"case-{i}": "without a turn" for i in range(6)}, "accuracy": None}
    some = {"cases": 50, "missing": {"case-1": "failed"}, "accuracy": INTERVAL}
    metrics = {
        "trained": {"overall": cut, "skin": cut},
        "warm_start": {"overall": cut},
        "fitted_bayes@records": {"overall": some, "skin": some},
    }
    text = Page(page(metrics=metrics)).text
    assert "n/a: 12% without a turn" in text.partition("The doctor among others")[2].partition("By category")[0]
    assert "skin 50 0.500 [0.250, 0.750] n/a: 12% without a turn –" in text
    assert "0.000" not in text
    assert "naive Bayes, fitted on training cases (1 of 50 cases missing)" in text


def test_the_lead_counts_the_cases_that_were_played() -> None:
    some = {"cases": 50, "missing": {"case-1": "failed"}, "accuracy": INTERVAL}
    assert "On 49 held-out cases the trained doctor" in Page(page(metrics={"trained": {"overall": some}})).text


def test_writers_leave_whole_files(tmp_path: Path) -> None:
    played = [
        seen(case(), "Lung infection", correct=True),
        seen(case(diagnosis="Flu, avian"), None),
        seen(case(), "Dragon pox"),
    ]
    write_confusion(played, tmp_path / "new" / "confusion.csv")
    write_accuracy_by_turns(played, tmp_path / "turns.csv")
    write_report(tmp_path / "report.html", "医生", {"种子": "0"}, Evaluation(), [], played)
    with (tmp_path / "new" / "confusion.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"actual": "Pneumonia", "predicted": "Pneumonia"},
            {"actual": "Flu, avian", "predicted": NO_DIAGNOSIS},
            {"actual": "Pneumonia", "predicted": SOMETHING_ELSE},
        ]
    assert (
        tmp_path / "turns.csv"
    ).read_text() == "turns,cases,accuracy,low,high\n1,1,0.0,0.0,0.8325\n2,2,0.5,0.0945,0.9055\n"
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == report_html(
        "医生", {"种子": "0"}, Evaluation(), [], played
    )
    assert not list(tmp_path.rglob("*.partial"))


def test_a_page_that_cannot_be_made_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("old")
    with pytest.raises(KeyError):
        write_report(tmp_path / "report.html", "Doctor", {}, Evaluation(), [{"reward/mean": 1.0}], [])
    assert (tmp_path / "report.html").read_text() == "old"


def test_a_doctor_without_accuracy_and_a_comparison_are_shown():
    overall = {"cases": 3, **dict.fromkeys(MEASURES), "reward": {"mean": 0.5, "low": 0.4, "high": 0.6}}
    metrics = {
        "trained@questions": {"overall": overall},
        "trained minus warm_start": {
            "accuracy": {"mean": 0.2, "low": 0.1, "high": 0.3, "only_first": 30, "only_second": 10, "p": 0.0022}
        },
    }
    page = report_html("x", {}, Evaluation.from_json(metrics), [], [])
    assert "trained@questions" in page
    assert (
        "+0.200 [+0.100, +0.300] in accuracy; 30 cases only the first got right, 10 only the second (McNemar&#39;s test: p = 0.0022)"
        in page.replace("McNemar's", "McNemar&#39;s")
    )


def test_a_chinese_run_has_a_chinese_page() -> None:
    facts = (Fact("咳嗽", True, "我咳嗽"), Fact("盗汗", True, "我夜里出汗"), Fact("dry_cough", True, "我干咳"))
    chinese = {
        "language": "zh",
        "category": "respiratory",
        "facts": facts,
        "opening": ("咳嗽",),
        "red_flags": ("盗汗",),
    }
    played = [
        seen(case(f"{i}", "肺炎", **chinese), named, reward=0.5 if named == "肺炎" else -0.5, correct=named == "肺炎")
        for i, named in enumerate(("肺炎", "流感", None))
    ]
    overall = {"cases": 9, **dict.fromkeys(MEASURES, INTERVAL)}
    cut = {"cases": 50, "missing": {f"case-{i}": "without a turn" for i in range(6)}, "accuracy": None}
    compared = {"accuracy": INTERVAL | {"only_first": 3, "only_second": 1, "p": 0.6}}
    text = page(
        played,
        title="医生",
        facts=dict.fromkeys(("algorithm", "reward", "seed", "turn budget", "patients", "all inputs"), "scripted"),
        metrics={
            **{name: {"overall": overall, "respiratory": overall} for name in texts("zh").doctors},
            "trained@自己的病例": {"overall": cut},
            "trained minus warm_start": compared,
        },
        curve=[{"step": 1.0, "reward/mean": 0.1, "reward/diagnosis": 0.2, "validation/accuracy": 0.5}],
    )
    assert '<html lang="zh">' in text
    text = text.partition("</style>")[2]
    for shown in (
        "训练后减训练前",
        "不适用：12% 一轮未说",
        "验证病例，最后 0.500",
        "没有诊断",
        "医生 · 提问",
        "轮数用完",
        "呼吸科",
    ):
        assert shown in text
    words = re.sub(r"<[^>]*>|Any fever\?|Flu\?|No\.|Ask\.|I cough\.|Rest|ROUGE-L|DoctorAgent-RL|McNemar|DEI", " ", text)
    attributes = " ".join(re.findall(r'(?:title|aria-label)="([^"]*)"', text))
    assert re.findall(r"[A-Za-z]{2,}", words + attributes) == []


def test_a_run_is_in_the_language_of_most_of_its_cases() -> None:
    assert language_of([]) == language_of(["zh", "en"]) == language_of(['en" onload="x']) == "en"
    assert language_of(["en", "zh", "zh"]) == "zh"


def test_the_copy_in_mlflow_says_when_and_of_what_it_was_recorded():
    page = report_html("t", {"seed": "0"}, Evaluation(), [], [])
    said = recorded(page, "2026-11-24 20:00 UTC", "0123abcd", {"git.sha": "f" * 40, "git.dirty": "true"})
    (line,) = (line for line in said.splitlines() if "0123abcd" in line)
    assert "2026-11-24 20:00 UTC" in line
    assert "commit ffffffffffff and uncommitted changes" in line
    assert said.replace(line, RECORDED) == page
    assert "uncommitted" not in recorded(page, "today", "1", {"git.sha": "a", "git.dirty": "false"})
