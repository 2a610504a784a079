from pathlib import Path

import pytest

from clinic.diagnoses import relation
from clinic.errors import ClinicError
from clinic.vocabulary import Term, Vocabulary, read_vocabulary, with_vocabulary

DOID = Path(__file__).parents[4] / "shared/data/terms/doid_terms.csv"
TABLE = """doid,label,synonyms_exact,parents
D:1,pneumonia,lung inflammation|Pneumonitis,lung disease
D:2,lung disease,,disease
D:3,pneumonitis,,lung disease
"""


@pytest.fixture
def vocabulary(tmp_path):
    (tmp_path / "terms.csv").write_text(TABLE)
    return read_vocabulary(tmp_path / "terms.csv")


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path, vocabulary):
    (tmp_path / "marked.csv").write_text(TABLE, encoding="utf-8-sig")
    assert len(read_vocabulary(tmp_path / "marked.csv")) == len(vocabulary)


def test_a_known_diagnosis_gets_id_synonyms_and_parents(make_case, vocabulary):
    case = with_vocabulary(make_case(parents=()), vocabulary)
    assert (case.diagnosis_id, case.parents) == ("D:1", ("lung disease",))
    assert case.synonyms == ("lung infection", "lung inflammation")  # pneumonitis is another term
    for name, expected in (
        ("Lung-Inflammation", "exact"),
        ("lung disease", "parent"),
        ("disease", "other"),
        ("gout", "other"),
    ):
        assert relation(case, name) == expected


def test_a_synonym_of_the_case_finds_it_too_and_a_label_beats_a_synonym(make_case, vocabulary):
    assert (
        with_vocabulary(
            make_case(diagnosis="You have a chest infection", synonyms=("PNEUMONIA",)), vocabulary
        ).diagnosis_id
        == "D:1"
    )
    assert vocabulary.find(["pneumonitis"]).term_id == "D:3"


def test_an_ambiguous_name_is_no_name_and_is_noted():
    one, two, three = (
        Term("D:1", "adrenoleukodystrophy", ("XLD", "Siemerling disease"), ()),
        Term("D:2", "alcoholic liver disease", ("XLD",), ()),
        Term("D:3", "Siemerling's disease", ("alcohol liver",), ()),
    )
    vocabulary = Vocabulary([one, two, three])
    assert vocabulary.find(["XLD"]) is None
    assert vocabulary.find(["XLD", "alcoholic liver disease"]) is two
    assert vocabulary.find(["Siemerling disease"]) is one
    assert vocabulary.synonyms(one) == ("Siemerling disease",)
    assert vocabulary.ambiguous == {"xld": ("adrenoleukodystrophy", "alcoholic liver disease")}


def test_names_of_the_bundled_list_and_its_corrections_are_not_taken_over(make_case):
    copd = Term("D:1", "chronic obstructive pulmonary disease", ("COLD", "COPD", "heart attack"), ())
    vocabulary = Vocabulary([copd])
    assert vocabulary.synonyms(copd) == ("COPD",)
    assert vocabulary.find(["common cold"]) is None
    assert vocabulary.find(["heart attack"]) is None
    case = with_vocabulary(
        make_case(diagnosis="COPD (chronic obstructive lung disease)", synonyms=(), parents=()), vocabulary
    )
    assert (case.diagnosis_id, case.synonyms) == ("D:1", ("chronic obstructive pulmonary disease", "COPD"))


def test_a_term_is_found_in_another_spelling_and_a_parent_of_the_same_words_is_none(make_case):
    terms = [
        Term("D:1", "leukaemia of the spleen", (), ("spleen leukemia", "blood cancer")),
        Term("D:2", "kidney cancer", (), ()),
    ]
    case = with_vocabulary(
        make_case(diagnosis="Most likely splenic leukemia", synonyms=(), parents=()), Vocabulary(terms)
    )
    assert (case.diagnosis_id, case.parents) == ("D:1", ("blood cancer",))
    both = Vocabulary([*terms, Term("D:3", "renal carcinoma", (), ())])
    assert both.find(["kidney cancer"]) is terms[1]
    assert both.find(["carcinoma of the kidney"]) is None


def test_an_unknown_diagnosis_stays_as_it_was(make_case, vocabulary):
    case = make_case(diagnosis="Gout", synonyms=())
    assert with_vocabulary(case, vocabulary) is case


def test_chinese_names_work(make_case):
    vocabulary = Vocabulary([Term("Z:1", "肺炎", ("肺部感染",), ("肺病",))])
    case = with_vocabulary(make_case(language="zh", diagnosis="肺炎。", synonyms=(), parents=()), vocabulary)
    assert (relation(case, "肺部感染"), relation(case, "肺病")) == ("exact", "parent")


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "doid,label,synonyms_exact,parents\n"])
def test_what_is_no_vocabulary_is_one_line(tmp_path, text):
    (tmp_path / "terms.csv").write_text(text)
    with pytest.raises(ClinicError, match=r"terms\.csv is no vocabulary: it needs the columns doid, label"):
        read_vocabulary(tmp_path / "terms.csv")
    with pytest.raises(ClinicError, match=r"none\.csv cannot be read"):
        read_vocabulary(tmp_path / "none.csv")


@pytest.mark.skipif(not DOID.exists(), reason="doid_terms.csv is not beside this checkout")
def test_the_disease_ontology_loads(make_case):
    vocabulary = read_vocabulary(DOID)
    assert len(vocabulary) > 20_000
    case = with_vocabulary(make_case(diagnosis="Appendicitis", synonyms=(), parents=()), vocabulary)
    assert (case.diagnosis_id, relation(case, "acute appendicitis"), relation(case, "appendix disease")) == (
        "DOID:8337",
        "exact",
        "parent",
    )
    copd = with_vocabulary(make_case(diagnosis="COPD", synonyms=(), parents=()), vocabulary)
    bowel = with_vocabulary(make_case(diagnosis="Irritable bowel syndrome", synonyms=(), parents=()), vocabulary)
    assert (relation(copd, "cold"), relation(copd, "common cold"), relation(bowel, "IBD")) == ("other",) * 3
    assert vocabulary.find(["ALD"]) is None
