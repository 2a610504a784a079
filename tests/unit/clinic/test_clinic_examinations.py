"""Orders of examinations and tests, read against the results on record."""

import time

import pytest

from clinic.actions import examination
from clinic.cases import Fact
from clinic.consultation import Consultation, at_once
from clinic.events import event_from_json, inquiries, one_by_one, told_topics
from clinic.language import EN
from clinic.patients.base import test_matcher as matcher_of
from clinic.patients.scripted import ScriptedPatient
from clinic.understanding.examinations import MOST, ExaminationMatcher, examinations, named_result

RESULTS = {
    "Vital Signs: Temperature": "38.2 °C",
    "Vital Signs: Blood Pressure": "142/88 mmHg",
    "Vital Signs: Heart Rate": "98 bpm",
    "General Examination: Appearance": "Pale",
    "Abdominal Examination: Palpation": "Tender in the right upper quadrant",
    "Abdominal Examination: Auscultation": "Quiet",
    "Cardiac Examination": "A soft systolic murmur at the apex",
    "Neurological Examination: Reflexes": "Brisk at the knees",
    "Neurological Examination: Motor": "Full strength",
    "Ophthalmic Examination: Visual Acuity: Right Eye": "20/40",
    "Ophthalmic Examination: Visual Acuity: Left Eye": "20/20",
    "Laboratory Tests: Complete Blood Count: WBC": "14,000",
    "Laboratory Tests: Complete Blood Count: Hemoglobin": "9 g/dL",
    "Chemistry Panel: Electrolytes": "Within normal limits",
    "Chemistry Panel: Creatinine": "1.0 mg/dL",
    "Urinalysis: WBC": "30 per field",
    "Urinalysis: Nitrites": "Positive",
    "Stool Occult Blood Test": "Negative",
    "Lumbar Puncture: CSF Glucose": "40 mg/dL",
    "Lumbar Puncture: CSF Protein": "90 mg/dL",
    "Imaging: Abdominal X-ray: Findings": "Dilated loops",
    "Imaging: CT Head: Findings": "No bleeding",
    "Electrocardiogram: Findings": "Sinus tachycardia",
    "Biopsy: Skin: Histopathology": "Granulomas",
    "Serology: Anti-PGL-1 antibodies": "Positive",
    "Note (2)": "The echocardiogram shows a thickened septum.",
    "Lipid Panel": "Not performed",
}


@pytest.fixture
def find():
    matcher = ExaminationMatcher([Fact(topic, True, text) for topic, text in RESULTS.items()])
    return lambda order: [topic.removesuffix(": Findings").rsplit(": ", 1)[-1] for topic in matcher.match(order)]


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("BP", ["Blood Pressure"]),
        ("blood presure please", ["Blood Pressure"]),
        ("vitals", ["Temperature", "Blood Pressure", "Heart Rate"]),
        ("FBC", ["WBC", "Hemoglobin"]),
        ("white cell count", ["WBC"]),
        ("check for anaemia: Hb", ["Hemoglobin"]),
        ("serum potassium", ["Electrolytes"]),
        ("U&E", ["Electrolytes", "Creatinine"]),
        ("urine microscopy", ["WBC", "Nitrites"]),
        ("spinal tap", ["CSF Glucose", "CSF Protein"]),
        ("CSF glucose", ["CSF Glucose"]),
        ("palpate the belly", ["Palpation"]),
        ("listen for bowel sounds", ["Auscultation"]),
        ("abdominal examination", ["Palpation", "Auscultation"]),
        ("cardiac auscultation", ["Cardiac Examination"]),
        ("check reflexes", ["Reflexes"]),
        ("power in the legs", ["Motor"]),
        ("visual acuity of the right eye", ["Right Eye"]),
        ("AXR, erect", ["Abdominal X-ray"]),
        ("CT scan of the brain to rule out bleeding", ["CT Head"]),
        ("12-lead EKG", ["Electrocardiogram"]),
        ("cardiac ultrasound", ["Note (2)"]),
        ("skin bx", ["Histopathology"]),
        ("anti-PGL-1 antibody titre", ["Anti-PGL-1 antibodies"]),
        ("Stool Occult Blood Test", ["Stool Occult Blood Test"]),
        # near, but not on record
        ("HIV test", []),
        ("chest X-ray", []),
        ("CT of the abdomen", []),
        ("MRI of the head", []),
        ("urine culture", []),
        ("blood glucose", []),
        ("platelet count", []),
        ("liver function tests", []),
        ("slit lamp exam", []),
        ("liver biopsy", []),
        ("anti-dsDNA antibody", []),
        ("lung auscultation", []),
        ("lipid profile", []),
        ("tell me everything", []),
        ("", []),
    ],
)
def test_an_order_brings_what_was_ordered_and_nothing_else(find, order, wanted):
    assert find(order) == wanted


@pytest.mark.parametrize("order", ["physical examination", "labs", "imaging", "please do blood tests"])
def test_who_orders_everything_gets_one_result(find, order):
    assert len(find(order)) == 1


@pytest.mark.parametrize("order", ["CBC " * 4500, "hemoglobine qwertyuio " * 800, "x" * 18_000, "血常规" * 6000])
def test_an_endless_order_takes_no_time(find, order):
    began = time.process_time()
    find(order)
    assert time.process_time() - began < 1


def test_no_order_brings_more_than_the_most():
    facts = [Fact(f"Abdominal Examination: Palpation ({number})", True, str(number)) for number in range(MOST + 2)]
    assert len(ExaminationMatcher(facts).match("abdominal examination")) == MOST


LABS = "CRP 120 mg/L, WBC 16.2 x10^9/L, Hb 13.1 g/dL"
SCANS = "CT abdomen: gallstones, wall 6 mm. Chest x-ray normal."
MIXED = "FBC: Hb 9.1, platelets 450. Urine dip: WBC +, nitrites negative; HSV PCR positive. Blood culture: no growth"


@pytest.mark.parametrize("heading", ["Lab", "Labs", "Laboratory", "Lab results", "Blood tests", "Bloods"])
@pytest.mark.parametrize(
    ("order", "found"),
    [
        ("CRP", True),
        ("white cell count", True),
        ("blood count", True),
        ("haemoglobin", True),
        ("labs", True),
        ("troponin", False),
        ("platelets", False),
        ("urinalysis", False),
        ("liver function tests", False),
    ],
)
def test_a_laboratory_column_answers_by_its_content(heading, order, found):
    matcher = ExaminationMatcher([Fact(f"Test results: {heading}", True, LABS)])
    assert matcher.match(order) == ([f"Test results: {heading}"] if found else [])


@pytest.mark.parametrize(
    ("heading", "text", "found", "off"),
    [
        (
            "Imaging",
            SCANS,
            ["CT abdomen", "chest x-ray", "CT", "abdominal imaging", "imaging"],
            ["MRI head", "CT head", "CT chest", "abdominal x-ray", "ultrasound abdomen", "physical examination"],
        ),
        (
            "Imaging",
            "CT chest, abdomen and pelvis: calcium in the coronary arteries, no rectal mass",
            ["CT chest", "pelvic CT"],
            ["calcium", "rectal exam", "CT head"],
        ),
        ("Imaging", "CT. Head: no bleeding", ["CT head"], ["CT abdomen"]),
        ("Imaging: Abdominal imaging", "CT shows appendicitis", ["CT abdomen"], ["CT head"]),
        (
            "Labs",
            MIXED,
            ["FBC", "urinalysis", "nitrites", "HSV PCR", "blood culture"],
            ["WBC", "EBV PCR", "urine culture"],
        ),
        ("Labs", "WBC 12,400/mm3,Hb 11", ["white cells", "Hb"], ["platelets"]),
        ("Laboratory: Calcitonin", "120 pg/mL, calcium normal", ["calcitonin", "labs"], ["calcium"]),
    ],
)
def test_a_wide_heading_answers_by_the_parts_of_its_text(heading, text, found, off):
    matcher = ExaminationMatcher([Fact(f"Test results: {heading}", True, text)])
    assert [order for order in (*found, *off) if matcher.match(order)] == found


def test_a_precise_heading_goes_before_a_part_of_a_wide_one():
    facts = [Fact("Test results: Labs", True, LABS), Fact("C-reactive protein", True, "4 mg/L")]
    assert ExaminationMatcher(facts).match("CRP") == ["C-reactive protein"]


def test_every_measure_place_and_specimen_reads_its_own_words():
    words = examinations()
    for part, patterns in words._patterns.items():
        assert patterns, part
    assert words.read("CBC").measures == {"blood_count"}
    assert words.read("stool culture").specimens == {"stool"}
    assert words.read("right knee x-ray").places == {"knee"}


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("Vital Signs: Temperature", "Temperature: warm."),
        ("Chest X-ray: Findings", "Chest X-ray: warm."),
        ("Blood Pressure Monitoring: Recordings (2)", "Recordings: warm."),
    ],
)
def test_one_of_several_results_is_told_under_its_name(topic, said):
    assert named_result(topic, "warm") == said


@pytest.fixture
def seated(make_case, rules):
    facts = tuple(Fact(topic, True, text, 0.1) for topic, text in RESULTS.items())
    case = make_case(facts=facts, opening=(), source="records")
    return Consultation(case, ScriptedPatient(case, None), rules, 6, None)


def test_a_panel_is_one_turn_and_tells_nothing_twice(seated):
    def take(order):
        return at_once(seated.step(examination(order, EN)))

    first = take("heart rate").event
    assert (first.reply, first.further) == ("98 bpm", ())
    panel = take("vital signs")
    assert panel.text.startswith("Temperature: 38.2 °C. Blood Pressure: 142/88 mmHg. ")
    assert told_topics([panel.event]) == {"Vital Signs: Temperature", "Vital Signs: Blood Pressure"}
    assert not any(one.repeated for one in one_by_one([panel.event]))
    assert event_from_json(panel.event.to_json()) == panel.event
    assert inquiries(panel.event) == [panel.event]
    assert seated.left == 4
    again = take("Vital signs").event
    assert again.repeated
    assert again.further == ()


def test_chinese_results_are_found_by_their_words(make_case):
    case = make_case(language="zh", facts=(Fact("血常规", True, "白细胞 14×10^9/L"), Fact("心电图", True, "窦性心律")))
    assert matcher_of(case)("血常规检查") == ["血常规"]
    assert ScriptedPatient(case, None)._match_test("心电图") == ["心电图"]
