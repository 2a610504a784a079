"""A case becomes an episode: who answers, what is searched, which budget, which noise."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import kb
from clinic.cases import QUESTIONS
from clinic.config import ConsultationParams
from clinic.consultation import Consultation, at_once
from clinic.openings import ChartConsultation, SearchedConsultation
from clinic.patients.llm import LanguageModelPatient
from clinic.patients.scripted import ScriptedPatient
from clinic.questions import SingleTurn
from clinic.starter import draw_cases
from doctor.environments import open_factory
from doctor.library import KEPT, Shelf
from doctor.parameters import ParameterError, load_params
from doctor.sources import cases_of_draw
from rl.config import EndpointParams

PARAMS = load_params()
ENDPOINT = EndpointParams(
    url="http://127.0.0.1:9/v1",
    model="m",
    key_env="",
    timeout_s=1.0,
    retries=0,
    concurrency=1,
    temperature=0.0,
    max_tokens=8,
)


def factory(**rules):
    """Of the shipped parameters, with rules of the consultation changed."""
    consultation = ConsultationParams.model_validate(PARAMS.consultation.model_dump() | rules)
    return open_factory(PARAMS.model_copy(update={"consultation": consultation}), Path("unused"))


@pytest.fixture(scope="module")
def cases():
    return list(draw_cases(open_factory(PARAMS, Path("unused")).clinic, 6, 1, PARAMS.patient_cases.split))


def test_a_case_is_a_consultation_with_a_scripted_patient(cases):
    consultation = factory().consultation(cases[0], 4)
    assert type(consultation) is Consultation
    assert isinstance(consultation._patient, ScriptedPatient)
    system, first = consultation.opening()
    assert (system["role"], first["role"]) == ("system", "user")
    assert first["content"].endswith("(4 left)")


def test_all_patients_share_an_embedder_by_which_vectors_are_kept():
    opened = factory(matching="hybrid")
    assert opened.embed is opened.embed


def test_patients_of_imported_cases_understand_by_what_the_parameters_say():
    assert factory(matching="lexical").understanding() == (None, None)
    hybrid, both = factory(matching="hybrid"), factory(matching="cross_encoder")
    assert hybrid.understanding() == (hybrid.embed, None)
    assert both.understanding() == (both.embed, both.compare)
    assert both.compare("A cough ? Do you smoke?", ["Social History: Has never smoked"])[0] > 0


def test_what_was_read_together_is_not_read_again():
    read = []

    class Counting:
        def compare(self, question, texts):
            read.append((question, *texts))
            return np.zeros(len(texts), dtype=np.float32)

    opened = factory(matching="cross_encoder")
    vars(opened)["_cross_encoder"] = Counting()
    for question, texts in (("A", ["x", "y"]), ("A", ["x", "y"]), ("A", ["x"]), ("B", ["x", "y"])):
        assert opened.compare(question, texts).tolist() == [0] * len(texts)
    assert read == [("A", "x", "y"), ("A", "x"), ("B", "x", "y")]


def test_a_case_of_another_clinic_needs_no_ways_of_asking_in_this_one(cases):
    chinese = factory(matching="hybrid")
    chinese = replace(chinese, starter=chinese.starter / "zh")
    with pytest.raises(ParameterError, match=r"matching is hybrid, but there is no asking\.yaml"):
        chinese.consultation(cases[0], 4)
    assert chinese.consultation(replace(cases[0], source="elsewhere"), 4)
    assert chinese.matchers.keys() == {chinese.clinic.name}


def test_a_cross_encoder_is_refused_beside_an_embedder_that_it_was_not_learned_on():
    opened = factory(matching="cross_encoder")
    base = opened.knowledge_base.model_copy(update={"embedder": "some/other"})
    with pytest.raises(
        ParameterError, match=r"reads with all-MiniLM-L6-v2, and knowledge_base.embedder is 'some/other'"
    ):
        replace(opened, knowledge_base=base).understanding()


def test_the_chart_comes_first_where_it_is_asked_for(cases):
    consultation = factory().consultation(cases[0], 1, opened="chart")
    assert type(consultation) is ChartConsultation
    told = consultation.opening()[1]["content"]
    present = [fact.text for fact in cases[0].facts if fact.present]
    assert sum(text in told for text in present) >= len(present) - 1  # a text that names the diagnosis is masked
    plain = factory().consultation(cases[0], 1).opening()[1]["content"]
    assert sum(text in plain for text in present) < len(present) - 1


def test_a_question_of_one_turn_is_its_own_environment(cases):
    assert isinstance(factory().consultation(replace(cases[0], source=QUESTIONS), 4), SingleTurn)


def test_a_model_plays_the_patient_where_one_is_named(cases):
    consultation = replace(factory(), patient_model=ENDPOINT).consultation(cases[0], 4)
    assert isinstance(consultation._patient, LanguageModelPatient)


def test_without_a_model_nobody_generates():
    with pytest.raises(ParameterError, match=r"language_models\.patient is null"):
        _ = factory().generate


def test_members_of_a_group_share_case_and_budget_and_never_a_name(cases):
    made = factory(turn_budget=-1)
    specs = made.episodes(cases, 3, 5, 2)
    assert len(specs) == 18
    assert len({(spec.group_id, spec.sample) for spec in specs}) == 18
    for start in range(0, 18, 3):
        group = specs[start : start + 3]
        assert len({(spec.case_id, spec.group_id, spec.turn_budget, spec.noise) for spec in group}) == 1
        assert [spec.sample for spec in group] == [0, 1, 2]
        one, other, _ = (made.seat(spec) for spec in group)
        assert one is not other
    assert len({spec.turn_budget for spec in specs}) > 1
    assert [s.turn_budget for s in made.episodes(cases, 3, 5, 2)] == [s.turn_budget for s in specs]
    assert [s.turn_budget for s in made.episodes(cases, 3, 5, 3)] != [s.turn_budget for s in specs]


def test_every_so_manieth_group_begins_behind_a_search(cases):
    made = factory()
    specs = made.episodes(cases, 2, 5, 2, searches_every=3)
    assert [spec.opened for spec in specs[::2]] == ["search", "", "", "search", "", ""]
    assert [spec.opened for spec in specs[1::2]] == [spec.opened for spec in specs[::2]]
    assert [spec.opened for spec in made.episodes(cases[:2], 1, 5, 3, first=2, searches_every=3)] == ["", "search"]
    assert {spec.opened for spec in made.episodes(cases, 2, 5, 2)} == {""}
    assert {spec.opened for spec in factory(search_results=0).episodes(cases, 2, 5, 2, searches_every=1)} == {""}


@pytest.mark.parametrize(("prompts", "every"), [(1, 3), (2, 4), (4, 3), (6, 4), (6, 1)])
def test_the_share_of_searches_is_the_same_however_many_groups_a_step_has(cases, prompts, every):
    specs = [
        one for step in range(1, 13) for one in factory().episodes(cases[:prompts], 1, 5, step, 0, searches_every=every)
    ]
    assert sum(spec.opened == "search" for spec in specs) == len(specs) // every


def test_an_episode_begins_as_its_spec_says(cases, monkeypatch):
    looked_up = []
    monkeypatch.setattr(Shelf, "find_beforehand", lambda _, queries: looked_up.extend(queries))
    made = factory()
    plain, searched = (replace(made.episodes(cases[:1], 1, 5, 2)[0], opened=opened) for opened in ("", "search"))
    assert type(made.seat(plain, len)) is Consultation
    assert looked_up == []
    assert type(made.seat(searched, len)) is SearchedConsultation
    assert looked_up == [cases[0].self_report]


@pytest.mark.parametrize("report", ["I am ill.", "ill " * 50 + "and tired"])
def test_a_search_in_the_opening_is_answered_within_an_event_loop_whatever_is_remembered(cases, monkeypatch, report):
    monkeypatch.setattr("doctor.environments.open_index", lambda _: SimpleNamespace(search_many=nothing))
    made = factory()
    (spec,) = made.episodes([replace(cases[0], source="mine", self_report=report)], 1, 5, 2, searches_every=1)

    async def opened():
        return made.seat(spec, len).opening()

    first = asyncio.run(opened())
    assert [message["role"] for message in first] == ["system", "user", "assistant", "user"]
    made.shelf.find_beforehand([str(number) for number in range(KEPT - 1)])  # what was remembered is the oldest
    assert asyncio.run(opened()) == first
    made.shelf.find_beforehand([str(number) for number in range(KEPT)])  # what was remembered is forgotten
    assert asyncio.run(opened()) == first


def nothing(queries, _):
    return [[] for _ in queries]


def test_a_later_draw_numbers_its_groups_on(cases):
    first, second = factory().episodes(cases[:2], 1, 0, 1), factory().episodes(cases[:2], 1, 0, 1, first=2)
    assert not {spec.group_id for spec in first} & {spec.group_id for spec in second}


def test_what_only_the_simulator_knows_travels_beside_the_episode(cases):
    (spec,) = factory().episodes(cases[:1], 1, 0, 1)
    assert spec.privileged["diagnosis_id"] == cases[0].diagnosis_id
    assert set(spec.privileged["present"]) == {fact.topic for fact in cases[0].facts if fact.present}
    assert cases[0].diagnosis.lower() not in str(factory().seat(spec).opening()).lower()


def test_every_case_is_played_once_an_epoch_in_another_order(cases):
    epoch = [case.case_id for number in range(3) for case in cases_of_draw(cases, 2, number, 0)]
    following = [case.case_id for number in range(3, 6) for case in cases_of_draw(cases, 2, number, 0)]
    assert sorted(epoch) == sorted(following) == sorted(case.case_id for case in cases)
    orders = {tuple(case.case_id for case in cases_of_draw(cases, 6, number, 0)) for number in range(8)}
    assert len(orders) > 4


def test_a_search_without_an_index_says_what_to_run(cases):
    consultation = factory().consultation(cases[0], 4, len)
    words = consultation._words
    with pytest.raises(Exception, match="unused"):
        at_once(consultation.step(f"<answer>{words.search}fever</answer>"))


def test_names_of_all_diseases_are_known(cases):
    known = factory().diseases
    clinic = factory().clinic
    assert {condition.name for condition in clinic.conditions} <= known
    assert all(synonym in known for condition in clinic.conditions for synonym in condition.synonyms)
    assert np.isfinite(len(known))


def test_the_embedder_is_loaded_when_a_text_is_embedded_and_never_for_an_index_of_words(tmp_path, monkeypatch):
    loaded = []

    class Ones:
        def encode(self, texts):
            return np.ones((len(texts), 1), np.float32)

    monkeypatch.setattr("doctor.environments.load_embedder", lambda *_: loaded.append("questions") or Ones())
    (tmp_path / "gout.md").write_text("Gout hurts the big toe at night.")
    given = PARAMS.knowledge_base
    words_alone = given.model_copy(update={"fusion": given.fusion.model_copy(update={"method": "lexical"})})
    kb.build([tmp_path / "gout.md"], tmp_path / "index", words_alone)
    monkeypatch.setattr("kb.search.load_embedder", lambda *_: pytest.fail("loaded for an index of words"))
    opened = open_factory(PARAMS, tmp_path / "index")
    assert [passage.passage_id for passage in at_once(opened.shelf.find("toe"))] == ["gout#0"]
    embed = opened.embed
    assert loaded == []
    assert embed(["toe"]).shape == opened.embed(["pain"]).shape == (1, 1)
    assert loaded == ["questions"]
