import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clinic.leaks import LeakFilter, mentions

CAUGHT = [
    ("Asthma", "I have ASTHMA!"),
    ("Asthma", "a s t h m a, yes"),
    ("Asthma", "asth-ma"),
    ("Asthma", "аsthmа"),
    ("Asthma", "as\u200bthma"),
    ("Asthma", "asthma1"),
    ("Asthma", "Ａｓｔｈｍａ"),
    ("Asthma", "asthmás"),
    ("PE", "a P.E. it was"),
    ("lung clot", "lung-clot"),
    ("lung clot", "lungclots here"),
    ("lung clot", "lung\nclot"),
    ("Pneumonia", "pneum0nia"),
    ("Pneumonia", "PNEUMONIAS?"),
    ("Pneumonia", "p.n.e.u.m.o.n.i.a"),
    ("influenza", "inf1uenza"),
    ("Iron deficiency anaemia", "iron-deficiency anemia"),
    ("Gastro-oesophageal reflux disease", "gastroesophageal reflux disease"),
    ("eczema", "no eczema"),
    ("肺炎", "医生说我有肺炎。"),
    ("肺炎", "肺 炎"),
    ("肺炎", "肺-炎"),
    ("肺炎", "肺\u200b炎"),
    ("Type 2 diabetes", "TYPE-2 DIABETES"),
    ("Kidney stones", "a kidney stone"),
    ("Haemorrhoids", "a hemorrhoid"),
    ("Allergies", "an allergy"),
    ("Crohn's disease", "it is Crohn’s"),
    ("Crohn's disease", "Crohn disease"),
    ("Pneumonia", "pneu-\nmonia"),
    ("IBS", "IBS, they say"),
    ("IBS", "i.b.s."),
    ("COPD", "COPDs"),
    ("flu", "the FLU"),
    ("flu", "f-l-u"),
]
LEFT = [
    ("Asthma", "asthmatic"),
    ("Asthma", "my bronchasthma"),
    ("PE", "stop eating"),
    ("PE", "I hope every day"),
    ("flu", "If lucky"),
    ("flu", "influx"),
    ("Gout", "I go out"),
    ("cold", "scolded"),
    ("肺炎", "肺不好。炎症"),
    ("lung clot", "lung. Clot"),
    ("", "anything"),
    ("-", "a - b"),
]


@pytest.mark.parametrize(("term", "text"), CAUGHT)
def test_a_name_is_found_however_it_is_written(term, text):
    assert list(mentions(term, text))


@pytest.mark.parametrize(("term", "text"), LEFT)
def test_what_only_contains_the_letters_stays(term, text):
    assert list(mentions(term, text)) == []


def test_overlapping_mentions_are_one_and_all_is_in_the_patients_language(make_case):
    clean = LeakFilter(make_case(synonyms=("lung infection", "infection of the lung"), parents=("infection",))).clean
    assert clean("a lung infection, an infection of the lung, pneumonia") == (
        "a that illness, an that illness, that illness",
        3,
    )
    chinese = LeakFilter(make_case(language="zh", diagnosis="肺炎", synonyms=("肺部感染",), parents=())).clean
    assert chinese("是肺炎，肺部感染。") == ("是那个病，那个病。", 2)


@settings(max_examples=500, deadline=None)
@given(st.text(), st.text(max_size=12))
def test_any_text_passes_and_a_second_pass_finds_nothing_more(text, term):
    spans = list(mentions(term, text))
    assert all(0 <= start < end <= len(text) for start, end in spans)
    for start, end in spans:
        assert (0, end - start) in list(
            mentions(term, text[start:end])
        ) or term.isupper()  # where a sentence begins matters for abbreviations


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet="abcdefgh", min_size=4, max_size=10),
    st.sampled_from(["-", ".", "\u200b", "*", "_"]),
    st.integers(1, 3),
)
def test_joiners_hide_nothing(term, joiner, every):
    hidden = joiner.join(term[i : i + every] for i in range(0, len(term), every))
    assert list(mentions(term, f"it is {hidden}, they say"))


def test_nothing_of_the_word_is_left(make_case):
    clean = LeakFilter(make_case(diagnosis="Oedema", synonyms=("oesophagitis",), parents=())).clean
    assert clean("some oedema, no oesophagitis and edema") == ("some that illness, no that illness and that illness", 3)


def test_other_diseases_are_masked_where_a_model_could_echo_them(make_case):
    echo = "No, not gout, pneumonia or a heart attack."
    assert LeakFilter(make_case()).clean(echo) == ("No, not gout, that illness or a heart attack.", 1)
    assert LeakFilter(make_case(), ("Gout", "Heart attack", "Pneumonia")).clean(echo) == (
        "No, not that illness, that illness or a that illness.",
        1,
    )
    assert LeakFilter(
        make_case(diagnosis="Asthma", synonyms=(), parents=()), ("Gout", "Heart attack", "Pneumonia")
    ).clean(echo) == ("No, not that illness, that illness or a that illness.", 0)


def test_a_disease_that_the_record_itself_speaks_of_is_no_echo(make_case):
    clean = LeakFilter(make_case(self_report="My migraine is back."), ("Migraine", "Gout")).clean
    assert clean("A migraine, no gout.") == ("A migraine, no that illness.", 0)
