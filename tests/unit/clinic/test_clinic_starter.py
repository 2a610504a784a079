import dataclasses
import re

import pytest

from clinic.cases import mention_of
from clinic.errors import ClinicError
from clinic.generative import GenerativeClinic
from clinic.starter import bayes_accuracy, check_articles, check_worth_learning, draw_cases, load_starter


def test_a_sound_clinic_loads(clinic_files, write_clinic):
    clinic = load_starter(write_clinic(clinic_files), 0.4)
    assert [c.condition_id for c in clinic.conditions] == ["flu", "measles", "bronchitis"]
    assert clinic.probability_CF.tolist() == [[0.9, 0.6, 0.05, 0.3], [0.8, 0.2, 0.95, 0.3], [0.1, 0.97, 0.05, 0.7]]
    assert clinic.prior_C.tolist() == [0.5, 0.1, 0.4]


def spoil(files, kind, row, **changes):
    files[kind][row].update(changes)


PLANTED = {
    "unknown finding": (
        lambda f: f["conditions"][0]["findings"].update(hiccups=0.5),
        r"all\.yaml: flu: finding 'hiccups' is defined in no file",
    ),
    "probability 0": (
        lambda f: f["conditions"][1]["findings"].update(fever=0),
        r"measles: P\(fever\) = 0\.0 must lie in \(0, 1\]",
    ),
    "probability 1.2": (
        lambda f: f["conditions"][1]["findings"].update(fever=1.2),
        r"measles: P\(fever\) = 1\.2 must lie in \(0, 1\]",
    ),
    "background 0": (lambda f: spoil(f, "findings", 0, background=0), r"fever: background 0\.0 must lie in \(0, 1\]"),
    "prevalence 0": (lambda f: spoil(f, "conditions", 0, prevalence=0), r"flu: prevalence 0\.0 must be positive"),
    "red flag": (
        lambda f: spoil(f, "conditions", 0, red_flags=["rash"]),
        r"flu: red flag 'rash' is not among its findings",
    ),
    "no test wording": (
        lambda f: f["findings"][2]["doctor"].update(test=[]),
        r"rash: each wording list needs a train and a test entry",
    ),
    "missing key": (lambda f: f["findings"][1].pop("complaint"), r"finding 'cough' lacks or mistypes 'complaint'"),
    "no number": (lambda f: spoil(f, "conditions", 2, prevalence="often"), r"condition 'bronchitis' lacks or mistypes"),
    "no mapping": (lambda f: f["conditions"].append("gout"), r"must be a list of entries with an id, not 'gout'"),
    "same wording": (
        lambda f: f["findings"][1]["patient"]["test"].append("I HAVE fever"),
        r"wording 'i have fever' is used twice",
    ),
    "same id": (lambda f: spoil(f, "conditions", 1, id="flu"), r"id 'flu' is used twice"),
    "same name": (lambda f: spoil(f, "conditions", 1, synonyms=["flu"]), r"name 'flu' is used twice"),
    "lone text": (
        lambda f: spoil(f, "conditions", 0, synonyms="grippe"),
        r"entry 'flu': synonyms must be a list of texts, not 'grippe'",
    ),
    "lone wording": (
        lambda f: f["findings"][2]["doctor"].update(train="Rash?"),
        r"entry 'rash': train must be a list of texts, not 'Rash\?'",
    ),
    "alike": (
        lambda f: spoil(f, "conditions", 1, findings={"fever": 0.9, "cough": 0.5}),
        r"flu and measles have nearly the same findings",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_error_is_named(name, clinic_files, write_clinic):
    plant, message = PLANTED[name]
    plant(clinic_files)
    with pytest.raises(ClinicError, match=message) as caught:
        load_starter(write_clinic(clinic_files), 0.4)
    assert "\n" not in str(caught.value)


def test_an_empty_folder_and_bad_yaml_are_one_line(tmp_path, clinic_files, write_clinic):
    with pytest.raises(ClinicError, match=r"holds no \.yaml file; point patient_cases\.starter\.directory"):
        load_starter(tmp_path, 0.4)
    folder = write_clinic(clinic_files)
    (folder / "conditions" / "all.yaml").write_bytes("- id: Fläche".encode("cp1252"))
    with pytest.raises(ClinicError, match=r"all\.yaml is not valid YAML: byte 0xe4 is no UTF-8"):
        load_starter(folder, 0.4)
    (folder / "conditions" / "all.yaml").write_text("7", encoding="utf-8")
    with pytest.raises(ClinicError, match=r"all\.yaml must be a list of entries with an id, not 7"):
        load_starter(folder, 0.4)
    (folder / "conditions" / "all.yaml").write_text("- id: [", encoding="utf-8")
    with pytest.raises(ClinicError, match=r"all\.yaml is not valid YAML") as caught:
        load_starter(folder, 0.4)
    assert "\n" not in str(caught.value)


def test_articles_must_be_there_and_long_enough(clinic_files, write_clinic):
    folder = write_clinic(clinic_files)
    clinic = load_starter(folder, 0.4)
    (folder / "articles").mkdir()
    for name in ("flu", "measles", "bronchitis"):
        (folder / "articles" / f"{name}.md").write_text(f"---\ntitle: {name}\n---\n" + "word " * 300, encoding="utf-8")
    check_articles(folder, clinic)
    (folder / "articles" / "measles.md").write_text("---\ntitle: measles\n---\n" + "word " * 299, encoding="utf-8")
    with pytest.raises(ClinicError, match=r"measles\.md has 299 words; an article needs at least 300"):
        check_articles(folder, clinic)
    (folder / "articles" / "measles.md").unlink()
    with pytest.raises(ClinicError, match=r"measles\.md is missing; every condition needs an article"):
        check_articles(folder, clinic)


def with_findings(clinic: GenerativeClinic, prevalence, findings) -> GenerativeClinic:
    conditions = [
        dataclasses.replace(c, prevalence=p, findings=f)
        for c, p, f in zip(clinic.conditions, prevalence, findings, strict=True)
    ]
    return dataclasses.replace(clinic, conditions=tuple(conditions))


def test_a_task_that_is_not_worth_learning_is_refused(toy):
    sure = [{"fever": 0.999}, {"cough": 0.999}, {"rash": 0.999}]
    lonely = dataclasses.replace(toy, findings=tuple(dataclasses.replace(f, background=1e-4) for f in toy.findings))
    with pytest.raises(ClinicError, match=r"with the whole chart is .*; it must lie in \.85 to \.98"):
        check_worth_learning(with_findings(lonely, [1, 1, 1], sure), 200, 0)
    with pytest.raises(ClinicError, match=r"with the whole chart is .*; it must lie in \.85 to \.98"):
        check_worth_learning(with_findings(toy, [1, 1, 1], [{"fever": 0.5}] * 3), 200, 0)
    with pytest.raises(ClinicError, match=r"with no question is .*; it must be at most \.40"):
        check_worth_learning(
            with_findings(toy, [9, 0.6, 0.4], [{"fever": 0.9}, {"rash": 0.9}, {"cough": 0.9, "age": 0.9}]), 400, 0
        )


def test_the_bundled_clinic_is_large_and_worth_learning(starter, starter_folder):
    assert len(starter.conditions) >= 48
    assert len({c.specialty for c in starter.conditions}) >= 8
    assert len(starter.findings) >= 110
    check_articles(starter_folder, starter)
    accuracy = check_worth_learning(starter, 1500, 0)
    assert accuracy["no_questions"] <= 0.40
    assert 0.85 <= accuracy["full_information"] <= 0.98
    assert accuracy == bayes_accuracy(starter, 1500, 0)


def test_no_bundled_wording_names_a_condition(starter):
    """Else the leak filter itself tells: "there was no that illness sweat" is heard from one condition alone."""
    mention = mention_of(frozenset(term for c in starter.conditions for term in (c.name, *c.synonyms, *c.parents)))
    texts = [text for f in starter.findings for w in (f.patient, f.denial) for text in w.train + w.test]
    named = {text: found[0] for text in texts if (found := mention.search(text))}
    assert named == {}


def test_drawn_cases_are_sound(starter, split):
    cases = list(draw_cases(starter, 400, 11, split))
    assert len({c.case_id for c in cases}) == len({c.group_id for c in cases}) == 400
    for case in cases:
        facts = {fact.topic: fact for fact in case.facts}
        assert len(facts) == len(starter.findings)
        assert 1 <= len(case.opening) <= 2
        assert all(
            facts[topic].present and facts[topic].text.lower() in case.self_report.lower() for topic in case.opening
        )
        assert re.fullmatch(r"[A-Z].*\.", case.self_report)
        assert case.flags == ()
    assert cases[:50] == list(draw_cases(starter, 50, 11, split))
    assert cases[:50] != list(draw_cases(starter, 50, 12, split))


def test_a_clinic_that_runs_out_of_patients_says_so(toy, split, monkeypatch):
    monkeypatch.setattr("clinic.starter.MAX_MISSES", 2000)
    with pytest.raises(
        ClinicError, match=r"clinic toy: found \d+ distinct patients of 1000 asked for; ask for fewer cases"
    ):
        list(draw_cases(toy, 1000, 0, split))
