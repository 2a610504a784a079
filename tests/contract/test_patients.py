"""What every patient promises, on real cases: consultations end, nothing leaks, failures are data.

Real HTTP endpoint, real engine.
"""

import asyncio
import random
import re
import unicodedata
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from clinic.cases import Case, Fact
from clinic.config import CaseSource, ConsultationParams, SplitParams
from clinic.consultation import Consultation
from clinic.events import Inquiry, leaks_of
from clinic.experienced import NearestCase
from clinic.language import phrases
from clinic.loaders import load_source
from clinic.matching import MATCH_THRESHOLD, TopicMatcher
from clinic.patients.fidelity import fidelity
from clinic.patients.llm import LanguageModelPatient, PatientError
from clinic.patients.scripted import ScriptedPatient
from clinic.starter import draw_cases, load_starter
from doctor.parameters import ROOT, load_params
from rl.config import EndpointParams, LocalModelParams, RolloutParams
from rl.environment import Count, EpisodeSpec
from rl.errors import TrainingError
from rl.language_models import endpoint as door
from rl.language_models.endpoint import Endpoint
from rl.language_models.local import LocalModel
from rl.machine import Place
from rl.models import new_model, new_tokenizer, save_model
from rl.rollout import refuse_if_many_failed
from rl.workers.local import LocalSession
from tests.endpoint_server import MODEL, chat_server

DATA = ROOT.parent / "shared/data/cases"
SETS = {"agentclinic": "agentclinic_medqa.jsonl", "mtmeddialog_cases": "mtmeddialog_sft_cases.jsonl.gz"}
SPLIT = SplitParams(salt="anamnesis", validation=0.10, test=0.15)
RULES = ConsultationParams(
    turn_budget=8, instructions="full", search_results=2, search_tokens=96, max_questions=1, matching="lexical"
)
SIMPLE = {
    "а": "a",
    "е": "e",
    "о": "o",
    "р": "p",
    "с": "c",
    "х": "x",
    "у": "y",
    "і": "i",
    "0": "o",
    "1": "l",
    "3": "e",
    "4": "a",
    "5": "s",
    "α": "a",
    "ο": "o",
    "ι": "i",
}
BACK = {"a": "а", "e": "е", "o": "о", "p": "р", "c": "с", "i": "і"}
COMMON = {"and", "or", "of", "the", "a", "in", "to", "with"}


def endpoint(url: str, **changes) -> Endpoint:
    settings = {
        "model": MODEL,
        "key_env": "",
        "timeout_s": 5.0,
        "retries": 2,
        "concurrency": 64,
        "temperature": 0.0,
        "max_tokens": 100,
    }
    return Endpoint(EndpointParams(url=url, **settings | changes))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(door, "FIRST_PAUSE_S", 0.01)


@pytest.fixture(scope="module", params=SETS)
def real(request) -> tuple[list[Case], list[Case]]:
    """Cases to learn from, and a hundred to play."""
    path = DATA / SETS[request.param]
    if not path.exists():
        pytest.skip(f"{path.name} is not beside this checkout")
    cases, rejected = load_source(
        CaseSource(format=request.param, path=str(path), cases=0, licence="see its source"), SPLIT
    )
    assert all(record.reason for record in rejected)
    return cases[:-100], cases[-100:]


def actor(cases: list[Case], leak_share: float, disguise, seed: int = 0):
    """A stand-in for a model: reads the facts of the prompt, answers the last question with the nearest, and in a share
    of its replies says the diagnosis.
    """
    by_report = {case.self_report: case for case in cases}
    rng, planted = random.Random(seed), Counter()

    def reply(messages):
        prompt, question = messages[0]["content"], messages[-1]["content"]
        case = next(by_report[report] for report in by_report if f": {report}\n" in prompt or f"：{report}\n" in prompt)
        facts = [line[2:] for line in prompt.splitlines() if line.startswith("- ")]
        found = TopicMatcher({str(i): (fact,) for i, fact in enumerate(facts)}, 0.2).match(question)
        said = facts[int(found)] if found is not None else phrases(case.language).unknown
        said = said[:300]
        if rng.random() < leak_share:
            term = rng.choice([term for term in (case.diagnosis, *case.synonyms, *case.parents) if len(term) < 250])
            planted[case.case_id] += 1
            said = (
                f"{said} It is {disguise(term, rng)}, I think."
                if case.language == "en"
                else f"{said}我觉得是{disguise(term, rng)}。"
            )
        return said

    reply.planted = planted
    return reply


def plain(term, rng):
    return term


def capitals(term, rng):
    return term.upper() if rng.random() < 0.5 else term.title()


def hyphens(term, rng):
    if rng.random() < 0.5:
        return re.sub(r"\s", "-", term)
    at = rng.randrange(1, len(term))
    return f"{term[:at]}-{term[at:]}"


def lookalikes(term, rng):
    return "".join(BACK.get(c, c) if rng.random() < 0.6 else c for c in term)


def invisible(term, rng):
    at = rng.randrange(1, len(term))
    return f"{term[:at]}\u200b{term[at:]}"


def spelled(term, rng):
    return " ".join(term.replace(" ", "")) if len(term) < 40 else term


DISGUISES = (plain, capitals, hyphens, lookalikes, invisible, spelled)


def any_disguise(term, rng):
    return rng.choice(DISGUISES)(term, rng)


def names_it(case: Case, text: str) -> list[str]:
    """An independent search: every term, letter by letter with anything but letters between, as a whole word; after
    folding width, case, accents and look-alikes.
    """
    folded = "".join(
        SIMPLE.get(c, c)
        for c in unicodedata.normalize("NFKD", text).casefold()
        if not unicodedata.combining(c) and unicodedata.category(c) != "Cf"
    )
    found = []
    for term in (case.diagnosis, *case.synonyms, *case.parents):
        letters = [SIMPLE.get(c, c) for c in unicodedata.normalize("NFKD", term).casefold() if c.isalnum()]
        if not letters:
            continue
        chinese = "\u4e00" <= letters[0] <= "\u9fff"
        between = r"[\s\-_.·•*'’]{0,3}" if chinese or len(letters) > 4 else r"[\-_.·•*'’]?"
        body = between.join(map(re.escape, letters))
        if re.search(body if chinese else rf"(?<![a-z]){body}(?:s|es)?(?![a-z])", folded):
            found.append(term)
    return found


async def consult(doctor, consultation):
    """Play to the end; what the doctor heard, the events and the stop reason."""
    heard = [consultation.opening()[1]["content"]]
    events = []
    while True:
        reply = await consultation.step(doctor.turn())
        events.append(reply.event)
        if reply.text is None:
            return heard, events, reply.stop_reason
        heard.append(reply.text)


def play_all(seen, cases, seat):
    colleague = NearestCase(seen)

    async def everybody():
        return await asyncio.gather(
            *(consult(colleague.doctor(case, 7), Consultation(case, seat(case), RULES, 8, None)) for case in cases)
        )

    return asyncio.run(everybody())


def ended(played):
    """All hundred; a truth that is a very long sentence is no diagnosis by the grammar, so copying one can cost the
    last turn.
    """
    stops = Counter(stop for _, _, stop in played)
    assert stops.total() == 100
    assert stops["diagnosed"] >= 95
    assert set(stops) <= {"diagnosed", "out_of_turns"}


def test_a_hundred_real_consultations_end_with_the_scripted_patient(real):
    seen, cases = real
    played = play_all(seen, cases, lambda case: ScriptedPatient(case, None))
    ended(played)
    assert [
        (case.case_id, names)
        for case, (heard, _, _) in zip(cases, played, strict=True)
        for text in heard
        if (names := names_it(case, text))
    ] == []


@pytest.mark.parametrize("share", [0.0, pytest.param(0.2, marks=pytest.mark.slow)])
def test_a_hundred_real_consultations_end_with_a_model_that_leaks(real, share, record_property):
    seen, cases = real
    reply = actor(cases, share, any_disguise)
    with chat_server(reply) as server:
        model = endpoint(server.url, timeout_s=120.0)  # what is said twice would be planted twice
        played = play_all(seen, cases, lambda case: LanguageModelPatient(case, None, model.generate))
    ended(played)
    missed = [
        (case.case_id, names, text)
        for case, (heard, _, _) in zip(cases, played, strict=True)
        for text in heard
        if (names := names_it(case, text))
    ]
    removed = sum(leaks_of(events) for _, events, _ in played)
    planted = reply.planted.total()
    record_property("planted", planted)
    record_property("removed", removed)
    assert missed == []
    assert removed >= planted
    assert (planted > 50) == (share > 0)
    measures = fidelity(((case, events) for case, (_, events, _) in zip(cases, played, strict=True)), {})
    assert set(measures) == {"information_control", "completeness", "conflict"}
    assert all(0 <= value <= 1 for value in measures.values())


def test_leaks_in_chinese_are_removed(tmp_path: Path):
    clinic = load_starter(ROOT / "data/starter", 0.8, "zh")
    cases = list(draw_cases(clinic, 60, 3, SPLIT))
    colleague = NearestCase(cases[:10])
    matcher = TopicMatcher(
        {f.finding_id: (f.name, *f.doctor.train, *f.doctor.test) for f in clinic.findings}, MATCH_THRESHOLD
    )
    reply = actor(cases, 0.5, any_disguise)

    async def everybody(model):
        # the nearest case's topics are finding ids: ask in words
        wording = {f.finding_id: f.doctor.train[0] for f in clinic.findings}
        played = []
        for case in cases[10:]:
            doctor = colleague.doctor(case, 5)
            doctor._inquiries = iter([replace(fact, topic=wording[fact.topic]) for fact in list(doctor._inquiries)])
            played.append(
                await consult(
                    doctor,
                    Consultation(case, LanguageModelPatient(case, matcher.match, model.generate), RULES, 6, None),
                )
            )
        return played

    with chat_server(reply) as server:
        played = asyncio.run(everybody(endpoint(server.url)))
    assert reply.planted.total() > 60
    assert [
        (case.diagnosis, text)
        for case, (heard, _, _) in zip(cases[10:], played, strict=True)
        for text in heard
        if names_it(case, text)
    ] == []
    assert any("那个病" in text for heard, _, _ in played for text in heard)


# what the filter takes out beyond the names that the independent search knows: read in its texts, each tells the diagnosis
READ_AND_RIGHT = frozenset(
    [
        "gastritis",
        "ulcer",
        "ulcers",
        "cold",
        "arthritis",
        "cholecystitis",
        "esophagitis",
        "pharyngitis",
        "appendicitis",
        "keratitis",
        "gastroenteritis",
        "enteritis",
        "cirrhosis",
        "rds",
        "ptsd",
    ]
) | {
    "gastric ulcer",
    "gastric ulcers and gastritis",
    "gallbladder inflammation",
    "seborrheic keratoses",
    "stenosis in the femoropopliteal artery",
}


def test_nothing_else_is_redacted(real):
    """Over everything real patients of the set can say, the filter removes next to nothing (one text in a thousand) in
    which the independent search finds no name and a reader finds none either.
    """
    from clinic.leaks import LeakFilter

    seen, cases = real
    texts = removed = wrong = 0
    for case in (*seen, *cases):
        clean = LeakFilter(case).clean
        for text in (case.self_report, *(fact.text for fact in case.facts)):
            texts += 1
            said, leaks = clean(text)
            if leaks:
                removed += 1
                kept = "(.+?)".join(map(re.escape, said.split("that illness")))
                gone = re.fullmatch(kept, text, re.DOTALL)
                wrong += not names_it(case, text) and not (
                    gone and READ_AND_RIGHT.issuperset(map(str.lower, gone.groups()))
                )
    assert texts > 2000
    assert wrong <= 0.001 * texts, (texts, removed, wrong)


@pytest.mark.slow
def test_a_model_of_this_machine_plays_the_patient(tmp_path: Path):
    """Random weights: what it says is noise, but the protocol holds: every consultation ends or fails as data."""
    tokenizer = new_tokenizer(["You play a patient in a consultation. I have a cough. I do not know."] * 4, 400)
    save_model(
        new_model(tokenizer, width=32, layers=1, heads=2, context=16384, seed=0), tokenizer, tmp_path / "patient"
    )
    model = LocalModel(
        LocalModelParams(
            model=str(tmp_path / "patient"),
            device="cpu",
            dtype="float32",
            slots=8,
            context=16384,
            temperature=1.0,
            max_tokens=12,
        ),
        0,
    )
    clinic = load_starter(ROOT / "data/starter", 0.8)
    cases = list(draw_cases(clinic, 6, 3, SPLIT))
    first = asyncio.run(model.generate([{"role": "user", "content": "Do you cough?"}]))
    assert first == asyncio.run(model.generate([{"role": "user", "content": "Do you cough?"}]))
    for case in cases:
        result = Fact("Chest X-ray: Findings", True, "Clear lungs")
        patient = LanguageModelPatient(replace(case, facts=(*case.facts, result)), None, model.generate)
        assert [one.topic for one in asyncio.run(patient.examine("chest X-ray"))] == [result.topic]
        assert [one.topic for one in asyncio.run(patient.examine(case.facts[0].text))] == [None]
    colleague, stops = NearestCase(cases[:2]), Counter()
    for case in cases[2:]:
        try:
            _, events, stop = asyncio.run(
                consult(
                    colleague.doctor(case, 3),
                    Consultation(case, LanguageModelPatient(case, None, model.generate), RULES, 4, None),
                )
            )
            stops[stop] += 1
            assert all(names_it(case, event.reply) == [] for event in events if isinstance(event, Inquiry))
        except PatientError:
            stops["no patient"] += 1
    assert stops.total() == 4
    assert stops["diagnosed"] > 0
    with pytest.raises(TrainingError, match="raise context"):
        asyncio.run(model.generate([{"role": "user", "content": "cough " * 20000}]))


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "count",
    [pytest.param(200, marks=pytest.mark.slow), pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.course])],
)
def test_many_consultations_with_failing_patients(count: int):
    """10% of the requests never answered, 5% garbage, one try each: every episode ends with a stop reason, failures
    teach nothing, and too many stop the run.
    """
    params = load_params()
    clinic = load_starter(ROOT / "data/starter", 0.8)
    cases = list(draw_cases(clinic, count // 4, 3, SPLIT))
    matcher = TopicMatcher({f.finding_id: (f.name, *f.doctor.train) for f in clinic.findings}, MATCH_THRESHOLD).match
    rollout = RolloutParams.model_validate(params.rollout.model_dump() | {"slots": 1000, "max_failed_share": 0.5})
    faults = random.Random(5)
    kinds = {}

    def fault(number: int) -> str | None:
        draw = faults.random()
        kinds[number] = "hang" if draw < 0.10 else "garbage" if draw < 0.15 else None
        return kinds[number]

    with chat_server(lambda messages: "Yes, I have that.", fault) as server:
        model = endpoint(server.url, timeout_s=12.0, retries=0, concurrency=256)

        def seat(spec: EpisodeSpec, _: Count) -> Consultation:
            patient = LanguageModelPatient(spec.case, matcher, model.generate)
            return Consultation(spec.case, patient, params.consultation, spec.turn_budget, None)

        doctor = LocalSession(str(ROOT / "models/base"), Place(), rollout, None, 0, seat=seat)
        specs = [
            EpisodeSpec(
                case_id=case.case_id,
                group_id=f"{i}",
                sample=sample,
                turn_budget=3,
                noise=(0, i),
                case=case,
                privileged={},
            )
            for i, case in enumerate(cases)
            for sample in range(4)
        ]
        played = doctor.rollout(specs, 0.5)
    stops = Counter(trajectory.stop_reason for trajectory in played)
    assert stops.total() == count
    assert set(stops) <= {"diagnosed", "out_of_turns", "out_of_tokens", "failed"}
    assert server.peak > 30
    assert Counter(kinds.values())["hang"] > count / 20
    failed = [trajectory for trajectory in played if trajectory.stop_reason == "failed"]
    assert count / 10 < len(failed) < count / 2
    assert all(trajectory.sampled_tokens == 0 for trajectory in failed)
    assert all(trajectory.sampled_tokens for trajectory in played if trajectory.stop_reason != "failed")
    refuse_if_many_failed(played, rollout)
    with pytest.raises(
        TrainingError, match=rf"{len(failed)} of {count} episodes failed, more than rollout\.max_failed_share = 0\.1"
    ):
        refuse_if_many_failed(played, rollout.model_copy(update={"max_failed_share": 0.1}))
