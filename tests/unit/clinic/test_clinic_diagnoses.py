import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clinic.diagnoses import (
    DIAGNOSIS_IS_SENTENCE,
    flag_diagnosis,
    initials,
    is_placed,
    keys_of_run,
    relation,
    same_disease,
    with_names_of_run,
)
from clinic.matching import normalise
from clinic.reading import is_sentence, parts, readings

READ = [
    ("The most likely diagnosis is acute appendicitis.", "acute appendicitis"),
    ("My diagnosis is acute appendicitis", "acute appendicitis"),
    ("Final diagnosis: acute appendicitis", "acute appendicitis"),
    ("Likely acute appendicitis", "acute appendicitis"),
    ("most probably an acute appendicitis", "acute appendicitis"),
    ("Suspected acute appendicitis.", "acute appendicitis"),
    ("? acute appendicitis", "acute appendicitis"),
    ("acute appendicitis, most likely", "acute appendicitis"),
    ("acute appendicitis is the most likely diagnosis", "acute appendicitis"),
    ("I think you have acute appendicitis", "acute appendicitis"),
    ("I suspect that this is acute appendicitis", "acute appendicitis"),
    ("You are probably suffering from acute appendicitis.", "acute appendicitis"),
    ("Your symptoms are consistent with acute appendicitis", "acute appendicitis"),
    ("Based on what you told me, it appears that you have acute appendicitis.", "acute appendicitis"),
    ("It's a case of acute appendicitis", "acute appendicitis"),
    ("**acute appendicitis**", "acute appendicitis"),
    ("acute appendicitis, which is why it hurts to walk", "acute appendicitis"),
    ("acute appendicitis, likely due to a blocked opening", "acute appendicitis"),
    ("acute appendicitis. You need a surgeon today.", "acute appendicitis"),
    ("acute appendicitis, not gastroenteritis", "acute appendicitis"),
    ("severe acute appendicitis", "acute appendicitis"),
    ("acute appendicitis, unspecified type", "acute appendicitis"),
    ("acute appendicitis, site not specified", "acute appendicitis"),
    ("acute appendicitis without complications", "acute appendicitis"),
    ("Suspect acute appendicitis", "acute appendicitis"),
    ("High suspicion for acute appendicitis", "acute appendicitis"),
    ("Therefore, acute appendicitis", "acute appendicitis"),
    ("So this is acute appendicitis", "acute appendicitis"),
    ("Overall, this is acute appendicitis.", "acute appendicitis"),
    ("Most consistent with acute appendicitis", "acute appendicitis"),
    ("diagnosed as acute appendicitis", "acute appendicitis"),
    ("You have a condition called acute appendicitis", "acute appendicitis"),
    ("Primary: acute appendicitis", "acute appendicitis"),
    ("acute appendicitis seems most likely", "acute appendicitis"),
    ("acute appendicitis is my leading diagnosis", "acute appendicitis"),
    ("acute appendicitis, severe", "acute appendicitis"),
    ("acute appendicitis in a 45-year-old man", "acute appendicitis"),
    ("acute appendicitis, and needs surgery", "acute appendicitis"),
    ("acute appendicitis. Do not eat or drink.", "acute appendicitis"),
    ("acute appendicitis, which is not contagious", "acute appendicitis"),
    ("初步诊断为急性阑尾炎。", "急性阑尾炎"),
    ("您可能患有急性阑尾炎", "急性阑尾炎"),
    ("Everything fits acute appendicitis", "acute appendicitis"),
    ("Most probable cause: acute appendicitis", "acute appendicitis"),
    ("In my opinion, this is acute appendicitis", "acute appendicitis"),
    ("The symptoms are best explained by acute appendicitis", "acute appendicitis"),
    ("acute appendicitis pending lab results", "acute appendicitis"),
    ("acute appendicitis. You do not have to worry.", "acute appendicitis"),
    ("fever of unknown origin", "fever of unknown origin"),
    ("高度怀疑急性阑尾炎", "急性阑尾炎"),
    ("临床诊断：急性阑尾炎", "急性阑尾炎"),
    ("我认为这是急性阑尾炎", "急性阑尾炎"),
    ("急性阑尾炎的可能性较大", "急性阑尾炎"),
    ("急性阑尾炎（疑似）", "急性阑尾炎"),
    ("急性阑尾炎，请及时就医", "急性阑尾炎"),
    ("高度近视", "高度近视"),
]


@pytest.mark.parametrize(("text", "name"), READ)
def test_hedges_and_introductions_go(text, name):
    assert name in [reading.name for reading in readings(text)]


@pytest.mark.parametrize(
    "text",
    [
        "pneumonia or asthma",
        "pneumonia, asthma",
        "Pneumonia. Asthma. Gout.",
        "pneumonia; asthma",
        "pneumonia, which could also be asthma",
        "not pneumonia",
        "You do not have pneumonia",
        "I don't think you have pneumonia",
        "It is not pneumonia",
        "pneumonia is unlikely",
        "pneumonia has been ruled out",
        "rule out pneumonia",
        "pneumonia, which has been excluded",
        "pneumonia, which is very unlikely",
        "pneumonia, which is not the case",
        "pneumonia, which you do not have",
        "pneumonia. It has been ruled out.",
        "pneumonia. Unlikely.",
        "pneumonia. This is wrong.",
        "pneumonia, not present",
        "pneumonia; not",
        "pneumonia - not this",
        "pneumonia. The diagnosis is not this.",
        "pneumonia is the wrong diagnosis",
        "pneumonia is the least likely diagnosis",
        "low suspicion for pneumonia",
        "pneumonia (low probability)",
        "pneumonia 60%, asthma 40%",
        "pneumonia (asthma)",
        "pneumonia (COPD)",
        "asthma (pneumonia)",
        "aspiration pneumonia",
        "pneumonia due to influenza",
        "chronic pneumonia",
        "pneumonia-like illness",
        "severe combined pneumonia",
        "pneumonia " * 200,
    ],
)
def test_lists_denials_and_other_diseases_are_not_exact(make_case, text):
    assert relation(make_case(), text) == "other"


@pytest.mark.parametrize(
    ("truth", "said"),
    [
        ("Chronic obstructive pulmonary disease (COPD)", "COPD"),
        ("Chronic obstructive pulmonary disease", "chronic obstructive lung disease (COPD)"),
        ("COPD", "Chronic obstructive pulmonary disease"),
        ("Myocardial infarction", "heart attack"),
        ("Herpes zoster", "Shingles, most likely"),
        ("Chronic granulomatous disease", "CGD"),
        ("Gastritis and enteritis", "enteritis with gastritis"),
        ("Gastritis and enteritis", "Gastritis, enteritis"),
        ("Hypertension and gout", "gout and high blood pressure"),
        ("Enteritis (intestinal inflammation)", "enteritis"),
        ("Left inguinal hernia", "inguinal hernia"),
        ("Inguinal hernia", "right inguinal hernia"),
        ("Crohn disease", "regional enteritis, also known as Crohn's disease"),
        ("You most likely have the common cold.", "a cold"),
        ("类风湿關節炎", "類風濕关节炎"),
        ("Heart failure", "心衰"),
        ("急性心肌梗死", "Acute MI"),
        ("Essential (primary) hypertension", "essential hypertension"),
        ("Pneumonia, unspecified organism", "pneumonia"),
        ("2型糖尿病", "糖尿病2型"),
        ("帕金森病", "帕金森"),
        ("Pneumonia", "pneumonia (90%)"),
        ("Pneumonia", "pneumonia (high confidence)"),
        ("Pneumonia", "pneumonia (clinical diagnosis)"),
        ("Pneumonia", "pneumonia - 90% confidence"),
        ("Inguinal hernia", "inguinal hernia (left-sided)"),
    ],
)
def test_other_names_of_the_disease_are_exact(make_case, truth, said):
    assert relation(make_case(diagnosis=truth, synonyms=(), parents=()), said) == "exact"


@pytest.mark.parametrize(
    ("truth", "said"),
    [
        ("Chronic obstructive pulmonary disease", "cold"),
        ("Common cold", "COLD"),
        ("Irritable bowel syndrome", "IBD"),
        ("Crohn disease", "ulcerative colitis"),
        ("Gastritis and enteritis", "gastritis"),
        ("Gastritis", "gastritis and enteritis"),
        ("HIV (initial infection)", "AIDS"),
        ("Left inguinal hernia", "right inguinal hernia"),
        ("Left ventricular failure", "ventricular failure"),
        ("Abdominal compartment syndrome", "ACS"),
        ("Alzheimer disease", "AD"),
        ("Cushing disease", "Cushing's syndrome"),
        ("Lobar pneumonia", "pneumonia"),
        ("Fever", "fever of unknown origin"),
        ("Acute kidney injury", "chronic kidney disease"),
        ("帕金森病", "帕金森综合征"),
        ("2型糖尿病", "糖尿病1型"),
        ("近视", "高度近视"),
        ("急性阑尾炎", "我认为不是急性阑尾炎"),
        ("急性阑尾炎", "急性阑尾炎。已排除"),
        ("Thyroid disease", "thyroid"),
    ],
)
def test_neighbours_parts_and_shared_abbreviations_are_not(make_case, truth, said):
    assert relation(make_case(diagnosis=truth, synonyms=(), parents=()), said) == "other"


def test_initials_in_brackets_make_no_second_diagnosis_of_one(make_case):
    fracture, _ = (
        make_case(diagnosis=name, synonyms=(), parents=()) for name in ("Spontaneous rib fracture", "Localized edema")
    )
    assert [relation(fracture, said) for said in ("SRF", "Spontaneous rib fracture (SRF)")] == ["exact"] * 2
    for said in ("Localized edema (SRF)", "Localized edema, also known as SRF"):
        assert relation(fracture, said) == "other"


def test_a_listed_parent_stays_a_parent_though_the_bundled_names_would_make_it_exact(make_case):
    case = make_case(diagnosis="Eczema", synonyms=(), parents=("dermatitis",))
    said = ("dermatitis", "most likely a dermatitis", "mild dermatitis", "dermatitis disease", "dermatitis (disease)")
    assert {relation(case, name) for name in said} == {"parent"}
    assert relation(case, "most likely an eczema") == "exact"


def test_the_starter_clinic_judges_its_own_names_as_literally_as_ever(starter):
    names = {name for c in starter.conditions for name in (c.name, *c.synonyms, *c.parents)}
    for condition in starter.conditions:
        own = {normalise(name) for name in (condition.name, *condition.synonyms)}
        broader = {normalise(name) for name in condition.parents} - own
        for name in names:
            expected = "exact" if normalise(name) in own else "parent" if normalise(name) in broader else "other"
            assert relation(condition, name) == expected, (condition.name, name)


def test_parts_of_a_list():
    assert parts("gastritis, enteritis and a cold") == ("gastritis", "enteritis", "cold")
    assert parts("gastritis") == ("gastritis",)


def test_initials_leave_small_words_out():
    assert initials("Disease of the hip-joint") == "DHJ"


def test_a_truth_that_is_a_sentence_without_a_name_is_flagged_once(make_case):
    truth = "It could be the stomach or the bowel, and you need further tests."
    case = flag_diagnosis(make_case(diagnosis=truth, synonyms=()))
    assert case.flags == (DIAGNOSIS_IS_SENTENCE,)
    assert flag_diagnosis(case) is case
    named = make_case(diagnosis=truth, synonyms=("gastritis",))
    readable = make_case(diagnosis="You most likely have gastritis.", synonyms=())
    assert [flag_diagnosis(one) for one in (named, readable)] == [named, readable]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Bipolar I disorder", False),
        ("Rupture of the flexor digitorum profundus tendon at its point of insertion", False),
        ("HIV (initial infection)", False),
        ("CA 19-9 is a marker for this condition.", True),
        ("孩子感冒了", True),
    ],
)
def test_sentences_have_a_verb(text, sentence):
    assert is_sentence(text) is sentence


def test_an_answer_is_placed_by_the_run_the_list_or_its_ending(make_case):
    known = keys_of_run([make_case(diagnosis="Blue finger", synonyms=("Achenbach",), parents=())])
    assert all(
        is_placed(said, known)
        for said in ("Most likely Achenbach's", "heart attack", "a perivasculitis", "blue finger and gout")
    )
    assert not any(is_placed(said, known) for said in ("Something with the toe", "", "I cannot say", "blue"))


def test_a_name_of_two_diseases_counts_for_neither_and_is_reported(make_case):
    cases = [
        make_case(diagnosis_id="cb", diagnosis="Chronic bronchitis", synonyms=("smoker's lung", "CB")),
        make_case(diagnosis_id="e", diagnosis="Emphysema", synonyms=("smoker's lungs", "chronic bronchitis")),
        make_case(diagnosis_id="cb", diagnosis="chronic bronchitis.", synonyms=("smoker's lung",)),
    ]
    settled, taken = with_names_of_run(cases)
    assert [case.diagnosis for case in settled] == [case.diagnosis for case in cases]
    assert [case.synonyms for case in settled] == [("CB",), (), ()]
    assert taken == {
        "chronic bronchitis": ("Emphysema",),
        "smoker's lung": ("Chronic bronchitis", "chronic bronchitis."),
        "smoker's lungs": ("Emphysema",),
    }


def test_sentences_about_one_disease_leave_it_its_name(make_case):
    """An explanation that speaks of a disease is no other disease: such cases could not be answered."""
    told = {
        "enteritis": "You have enteritis, which is likely causing your gastritis and diarrhea.",
        "gastritis": "Based on your symptoms, the diagnosis is gastritis, likely with accompanying acid reflux issues.",
        "constipation": "You are experiencing constipation, specifically a condition called tenesmus.",
    }
    cases = [
        make_case(diagnosis_id=name, diagnosis=diagnosis, synonyms=(name,), parents=())
        for name, sentence in told.items()
        for diagnosis in (sentence, f"The diagnosis is {name}.")
    ]
    settled, taken = with_names_of_run(cases)
    assert taken == {}
    for case in settled:
        assert [name for name in told if relation(case, name) == "exact"] == [case.diagnosis_id]


def test_an_abbreviation_of_two_diseases_counts_where_the_run_has_one_of_them(make_case):
    eczema, dementia = (
        make_case(diagnosis_id=name, diagnosis=name, synonyms=(), parents=())
        for name in ("Atopic dermatitis", "Alzheimer's disease")
    )
    alone, _ = with_names_of_run([eczema])
    both, _ = with_names_of_run([eczema, dementia])
    assert [relation(case, "AD") for case in (*alone, *both)] == ["exact", "other", "other"]
    assert with_names_of_run([])[0] == []


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80))
def test_any_answer_can_be_read(text):
    assert readings(text)
    assert is_placed(text) in (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "Pneumonia 0%",
        "Pneumonia (0% likely)",
        "pneumonia with 1% probability",
        "30% pneumonia",
        "Pneumonia, which does not fit",
        "Pneumonia. It doesn't fit",
        "Pneumonia; that cannot be",
        "Pneumonia, which I reject",
        "Pneumonia, which was disproved",
        "Pneumonia, which you never had",
        "Pneumonia. No, wait",
        "Pneumonia. Disregard",
        "Pneumonia. Just kidding",
        "Pneumonia. Or not",
        "Pneumonia. I made that up",
        "Pneumonia. It is common. Scratch that",
        "My father has pneumonia",
        "Pneumonia needs to be ruled out urgently",
        "Pneumonia, admit to rule out",
    ],
)
def test_what_is_taken_back_or_hardly_believed_is_no_diagnosis(text):
    assert not same_disease(text, ("Pneumonia",))


@pytest.mark.parametrize(
    "text",
    [
        "90% pneumonia",
        "I'm 90% sure it's pneumonia",
        "pneumonia (90% likely)",
        "pneumonia, confidence high",
        "pneumonia without doubt",
        "uncomplicated pneumonia",
        "pneumonia, start antibiotics",
        "pneumonia needs antibiotics",
        "pt has pneumonia",
        "c/w pneumonia",
        "A: pneumonia",
        "query pneumonia",
        "a bad case of pneumonia",
        "pneumonia (ICD-10: J18.9)",
        "J18.9 pneumonia",
        "<b>pneumonia</b>",
        "You have pneumonia, which is not dangerous.",
        "Pneumonia. You don't have to worry.",
        "Pneumonia, which cannot be treated at home",
        "Pneumonia. Never stop the antibiotics early",
        "Pneumonia. Wait and see.",
        "Pneumonia. You don't have an infection of the ear.",
        "Pneumonia. Please ignore what the neighbours say",
        "Your son has pneumonia",
    ],
)
def test_how_a_diagnosis_is_put_wins_and_loses_nothing(text):
    assert same_disease(text, ("Pneumonia",))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Kidney failure due to heart disease", "Heart failure due to kidney disease"),
        ("Brain cancer with lung metastasis", "Lung cancer with brain metastasis"),
        ("Breast cancer metastatic to bone", "Bone cancer metastatic to breast"),
        ("Meningitis after pneumonia", "Pneumonia after meningitis"),
    ],
)
def test_a_cause_is_not_its_consequence(one, other):
    assert not same_disease(one, (other,))
    assert same_disease(one, (one,))


def test_a_consequence_may_be_put_in_other_words():
    assert same_disease("AKI due to dehydration", ("Acute kidney injury due to dehydration",))
    assert same_disease("Liver metastases from colon cancer", ("Colon cancer with liver metastases",))


def test_a_point_within_a_number_counts():
    assert not same_disease("25%", ("2.5%",))
    assert same_disease("2.5%", ("2.5%",))


@pytest.mark.parametrize(
    ("said", "true"),
    [
        ("low blood sugar", "Hypoglycaemia"),
        ("broken hip", "Hip fracture"),
        ("lazy eye", "Amblyopia"),
        ("bed wetting", "Enuresis"),
        ("womb cancer", "Endometrial carcinoma"),
        ("water infection", "Urinary tract infection"),
    ],
)
def test_plain_names_are_names(said, true):
    assert same_disease(said, (true,))
