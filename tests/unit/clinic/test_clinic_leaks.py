import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clinic.cases import Fact
from clinic.leaks import LeakFilter, mentions, without_diagnosis
from clinic.telling import adjectives_of, telling_words

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


TOLD = [
    ("Nodular melanoma", "It was a melanoma, they said.", "melanoma"),
    ("Psoriatic arthritis", "My arthritis is bad today.", "arthritis"),
    ("Lobar pneumonia", "I was treated for pneumonias before.", "pneumonias"),
    ("Chronic obstructive pulmonary disease", "My COPD is worse.", "COPD"),
    ("Chronic obstructive pulmonary disease", "my copd is worse", "copd"),
    ("Chronic granulomatous disease", "They wrote CGD on it.", "CGD"),
    ("Urinary tract infection", "another u.t.i, I think", "u.t.i"),
    ("Myocardial infarction", "Was it a heart attack?", "heart attack"),
    ("Herpes zoster", "My aunt calls it shingles.", "shingles"),
    ("Type 2 diabetes mellitus", "I am diabetic.", "diabetic"),
    ("Asthma", "I have been asthmatic since school.", "asthmatic"),
    ("Acute appendicitis", "an appendiceal abscess", "appendiceal"),
    ("Schizophrenia", "my schizophrenic cousin said so", "schizophrenic"),
    ("Crohn disease", "It runs in the family, the Crohn's.", "Crohn's"),
    ("Crohn disease", "my uncle has crohns", "crohns"),
    ("Kaposi sarcoma", "They called it Kaposi’s.", "Kaposi’s"),
    ("Graves disease", "The other doctor spoke of Graves.", "Graves"),
    ("Still disease", "They said that it might be Still's.", "Still's"),
    ("Bronchitis", "I think it is bronchitus", "bronchitus"),
    ("Tuberculosis", "it may be tubercolosis", "tubercolosis"),
    ("Lung infection", "an infection of the lung", "infection of the lung"),
    ("Coarctation of the aorta", "the aortic coarctation", "aortic coarctation"),
    ("Chickenpox", "My sister had chicken pox.", "chicken pox"),
    ("Common cold", "I have a cold.", "cold"),
    ("Common cold", "It's just a cold, isn't it?", "cold"),
    ("Common cold", "It is cold, I think.", "cold"),
    ("Common cold", "I caught a nasty cold last week", "cold"),
    ("You most likely have gastritis.", "My gastritis is back.", "gastritis"),
    ("Pulmonary embolism", "CT shows bilateral pulmonary emboli", "pulmonary emboli"),
    ("Kidney stones", "CT shows renal calculi", "renal calculi"),
    ("Acute exacerbation of COPD", "an exacerbation of COPD, they said", "exacerbation of COPD"),
    ("Acute MI", "Was it a heart attack?", "heart attack"),
    ("Left leg DVT", "a deep vein thrombosis of the left leg", "deep vein thrombosis of the left leg"),
    ("Left leg DVT", "my second DVT", "DVT"),
    ("Left leg DVT", "a thrombosis, they said", "thrombosis"),
    ("Type 1 DM", "I am diabetic.", "diabetic"),
    ("Lower GI bleed", "They spoke of lower gastrointestinal bleeding.", "lower gastrointestinal bleeding"),
    ("甲状腺功能亢进症", "医生说是甲亢。", "甲亢"),
    ("急性心肌梗死", "说我是急性心肌梗塞", "急性心肌梗塞"),
    ("脑梗死", "以前得过脑梗", "脑梗"),
]
NOT_TOLD = [
    ("Burn", "It burns when I pass urine."),
    ("Stroke", "She strokes the cat."),
    ("Major depressive disorder", "The ECG shows ST depression and ST-segment depression."),
    ("Depression", "Respiratory depression after morphine."),
    ("Alcohol use disorder", "I use alcohol at weekends."),
    ("Tobacco use disorder", "I do not use tobacco."),
    ("Eating disorder", "I am eating well."),
    ("Bleeding disorder", "My gums are bleeding."),
    ("Gallbladder disease", "They took out my gallbladder."),
    ("Thyroid disease", "Nobody looked at my thyroid."),
    ("Seizure disorder", "He had a seizure."),
    ("Common cold", "I felt very cold last night."),
    ("Common cold", "My feet are cold."),
    ("Common cold", "I had a cold sweat and a cold drink."),
    ("Common cold", "I stood in the cold for an hour."),
    ("Chronic obstructive pulmonary disease", "I had a cold in spring."),
    ("Still disease", "It still hurts. Still, I can walk."),
    ("Wilson disease", "Dr. Wilson sent me."),
    ("Down syndrome", "I sit down and lie down."),
    ("Acute lymphoblastic leukemia", "All my joints hurt, all day."),
    ("Acute lymphoblastic leukemia", "ALL MY JOINTS HURT"),
    ("Ankylosing spondylitis", "As I said, it is stiff."),
    ("Lung cancer", "My lungs are fine."),
    ("Heart failure", "My heart is racing."),
    ("Tension headache", "I have a headache."),
    ("Abdominal aortic aneurysm", "I use a, a, a cream."),
    ("Shingles", "not a single spot"),
    ("Sciatica", "along the sciatic nerve"),
    ("The diagnosis is gastritis.", "Nobody gave me a diagnosis."),
    ("Kidney stones", "I teach calculus and lift stones."),
    ("Pulmonary embolism", "My lungs are clear."),
    ("Lower GI bleed", "My gums bleed, and so does my lower lip."),
    ("Acute MI", "my heart is heavy"),
    ("Acute exacerbation of COPD", "My COPD was well until Sunday."),
    ("Drug reaction with eosinophilia and systemic symptoms", "I dress without help."),
    ("急性上呼吸道感染", "晚上感觉冷，身上感染了。"),
    ("Bronchospasm / acute asthma exacerbation", "It can be a bitter taste."),
    ("HIV (initial infection)", "It is on his arm and his back."),
    ("Malignant otitis externa", "It hurts me."),
    ("Gastritis or enteritis", "The pain comes and goes."),
    ("尿路感染", "排尿感到疼"),
    ("脑梗死", "头晕，脑子不清楚。"),
]


@pytest.mark.parametrize(("truth", "text", "told"), TOLD)
def test_what_tells_the_diagnosis_is_masked(make_case, truth, text, told):
    said, leaks = LeakFilter(make_case(diagnosis=truth, synonyms=(), parents=())).clean(text)
    assert (told in said, leaks) == (False, 1)
    assert said.replace("that illness", told) == text


@pytest.mark.parametrize(("truth", "text"), NOT_TOLD)
def test_everyday_words_and_complaints_stay(make_case, truth, text):
    assert LeakFilter(make_case(diagnosis=truth, synonyms=(), parents=())).clean(text) == (text, 0)


def test_a_broader_term_is_masked_as_a_whole_alone(make_case):
    clean = LeakFilter(make_case(parents=("chest disease",))).clean
    assert clean("A chest disease? My chest hurts.") == ("A that illness? My chest hurts.", 1)


def test_a_finding_of_the_clinic_is_no_leak_but_a_stated_name_is(make_case):
    cold = make_case(
        diagnosis="Common cold", synonyms=(), facts=(Fact("recent_cold", False, "I had no cold"),), parents=()
    )
    assert LeakFilter(cold).clean("I had no cold") == ("I had no cold", 0)
    assert (
        LeakFilter(make_case(diagnosis="Cold", synonyms=(), facts=cold.facts, parents=())).clean("I had no cold")[1]
        == 1
    )


@pytest.mark.parametrize(
    ("word", "adjective"),
    [
        ("psoriasis", "psoriatic"),
        ("cirrhosis", "cirrhotic"),
        ("leukaemia", "leukemic"),
        ("hypothyroidism", "hypothyroid"),
        ("epilepsy", "epileptic"),
        ("eczema", "eczematous"),
        ("autism", "autistic"),
    ],
)
def test_adjectives(word, adjective):
    assert adjective in adjectives_of(word)


def test_a_complaint_has_no_telling_words():
    assert telling_words(("Constipation",)) == ()
    assert telling_words(("Fever",)) == ()


RUN = ("Asthma", "Gout", "Type 2 diabetes", "Headache", "Common cold", "COPD")


def test_what_the_doctor_names_is_masked_alike_whether_true_or_not(make_case):
    facts = (Fact("history", True, "I have had gout and asthma for years"),)
    replies = {
        truth: LeakFilter(make_case(diagnosis=truth, synonyms=(), parents=(), facts=facts), RUN).clean(
            facts[0].text, "Do you have asthma?"
        )
        for truth in ("Asthma", "Pneumonia")
    }
    assert replies == {
        "Asthma": ("I have had gout and that illness for years", 1),
        "Pneumonia": ("I have had gout and that illness for years", 0),
    }


def test_what_the_doctor_did_not_name_and_the_record_speaks_of_stays(make_case):
    facts = (Fact("history", True, "I have had gout for years"),)
    clean = LeakFilter(make_case(facts=facts, parents=()), RUN).clean
    assert clean("I have had gout, not diabetes, copd or a headache", "Any diseases?") == (
        "I have had gout, not that illness, that illness or a headache",
        0,
    )


def test_an_echo_is_masked_in_the_forms_that_would_tell_the_diagnosis(make_case):
    for truth in ("Type 2 diabetes", "Asthma"):
        case = make_case(diagnosis=truth, synonyms=(), parents=())
        said = "No, I am not diabetic, and not asthmatic."
        assert (
            LeakFilter(case, RUN).clean(said, "Are you diabetic or asthmatic?")[0]
            == "No, I am not that illness, and not that illness."
        )


def test_the_record_that_the_patient_plays_does_not_hold_the_diagnosis(make_case):
    case = make_case(
        self_report="Pneumonia again?", facts=(Fact("history", True, "pneumonia twice"), Fact("cough", True, "I cough"))
    )
    played = without_diagnosis(case)
    assert (played.self_report, [fact.text for fact in played.facts]) == (
        "that illness again?",
        ["that illness twice", "I cough"],
    )
    assert played.diagnosis == case.diagnosis
    assert [fact.topic for fact in played.facts] == ["history", "cough"]


def test_who_has_the_disease_answers_for_it_as_everybody_who_was_asked(make_case):
    """Findings with codes: silence, and a mask that only the true patient wears, would tell."""
    facts = (
        Fact("E_118", False, "I have never had pneumonia"),
        Fact("E_124", True, "I have asthma or I use a bronchodilator"),
    )
    others = ("Pneumonia", "Asthma", "Gout")
    replies = []
    for diagnosis in ("Pneumonia", "Asthma", "Gout"):
        case = make_case(diagnosis=diagnosis, synonyms=(), parents=(), facts=facts, opening=())
        assert without_diagnosis(case).facts == facts
        clean = LeakFilter(case, others).clean
        replies.append((clean(facts[0].text, "Have you ever had pneumonia?")[0], clean(facts[1].text, "A puffer?")[0]))
    assert set(replies) == {("I have never had that illness", "I have that illness or I use a bronchodilator")}


def test_a_record_in_words_is_played_without_its_diagnosis(make_case):
    case = make_case(facts=(Fact("past_history", True, "I had pneumonia before"),), opening=())
    assert without_diagnosis(case).facts[0].text == "I had that illness before"
