"""DDXPlus: 49 conditions with P(evidence | condition), made into a `GenerativeClinic` from which patients are drawn.

One line of `conditions_en.jsonl` is a condition with its symptoms and antecedents. A yes/no evidence becomes a finding;
evidences with values (where, how intense, which colour) are returned as rejected: the file says that a value is
recorded, never which values are likely. As in DDXPlus, a patient opens with one symptom, never with an antecedent, and
an evidence that a condition does not list is absent. The findings are independent given the condition, which the
original patients are not.

Wordings come from `question_en`: the question as it stands and the statement it turns into ("Do you have a cough?" ->
"I have a cough"). The test wordings set the same sentence in another frame; real paraphrases do not exist here.

Source: Fansi Tchango et al., DDXPlus, NeurIPS 2022, arXiv:2205.09148; probabilities (`p_train`) counted by
medical-triage-moc.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clinic.cases import Case, Rejected
from clinic.config import CaseSource, SplitParams
from clinic.errors import ClinicError, shortened
from clinic.generative import Condition, Finding, GenerativeClinic, Wordings
from clinic.loaders.records import BadRecord, diagnosis_id, existing, lines, names_of, parse_line, text_at, value_at
from clinic.starter import draw_cases

NAME = "ddxplus"
DRAW_SEED = 0  # cases are a function of file and count alone
URGENT_SEVERITY = 2  # of 1 (most severe) to 5
# DDXPlus has none; by severity alone
NEXT_STEPS = {
    True: "Emergency care now",
    False: "See a doctor for examination and tests",
}
CHAPTERS = (  # ICD-10 chapters by the codes they begin at
    ("A00", "infections"),
    ("C00", "neoplasms"),
    ("D50", "blood"),
    ("E00", "endocrine"),
    ("F00", "mental"),
    ("G00", "nervous system"),
    ("H00", "eye and ear"),
    ("I00", "circulation"),
    ("J00", "respiration"),
    ("K00", "digestion"),
    ("L00", "skin"),
    ("M00", "joints and muscles"),
    ("N00", "kidney and urogenital"),
    ("O00", "pregnancy"),
    ("P00", "newborn"),
    ("Q00", "congenital"),
    ("R00", "symptoms"),
    ("S00", "injury and poisoning"),
    ("V00", "other"),
)
SYNONYMS = {  # what the abbreviated and misspelt names stand for
    "Acute COPD exacerbation / infection": ("acute COPD exacerbation", "COPD exacerbation"),
    "Acute dystonic reactions": ("acute dystonic reaction", "acute dystonia"),
    "Boerhaave": ("Boerhaave syndrome",),
    "Bronchospasm / acute asthma exacerbation": (
        "bronchospasm",
        "acute asthma exacerbation",
        "asthma exacerbation",
        "asthma attack",
    ),
    "Chagas": ("Chagas disease",),
    "Ebola": ("Ebola virus disease",),
    "GERD": ("gastroesophageal reflux disease", "gastro-oesophageal reflux disease"),
    "HIV (initial infection)": ("acute HIV infection", "primary HIV infection"),
    "Larygospasm": ("laryngospasm",),
    "PSVT": ("paroxysmal supraventricular tachycardia",),
    "Possible NSTEMI / STEMI": ("NSTEMI", "STEMI", "myocardial infarction", "heart attack"),
    "SLE": ("systemic lupus erythematosus",),
    "URTI": ("upper respiratory tract infection",),
}


@dataclass
class _Reading:
    """What has been read so far."""

    findings: dict[str, Finding] = field(default_factory=dict)
    conditions: dict[str, Condition] = field(default_factory=dict)
    rejected: dict[str, Rejected] = field(default_factory=dict)


def load(source: CaseSource, split: SplitParams) -> tuple[list[Case], list[Rejected]]:
    """Draw `source.cases` patients; see `clinic.loaders.load_source`."""
    clinic, rejected = read_ddxplus(Path(source.path))
    drawn = draw_cases(clinic, source.cases, DRAW_SEED, split, source.licence)
    common = dict(zip(clinic.finding_index, map(float, clinic.prior_C @ clinic.probability_CF), strict=True))
    return [_with_worth(case, common) for case in drawn], rejected


def _with_worth(case: Case, common: Mapping[str, float]) -> Case:
    """The case with the worth of its facts: equal shares, each times the square of the part of all patients who do not have
    that finding, so that a list of what most people have earns little.
    """
    told = sum(fact.present and fact.topic not in case.opening for fact in case.facts) or 1
    return replace(case, facts=tuple(replace(f, worth=round((1 - common[f.topic]) ** 2 / told, 4)) for f in case.facts))


def load_ddxplus(path: Path) -> GenerativeClinic:
    """The clinic "ddxplus" of a `conditions_en.jsonl`.

    Raises:
        ClinicError: the file is missing, or no line of it is a condition.
    """
    return read_ddxplus(path)[0]


def read_ddxplus(path: Path) -> tuple[GenerativeClinic, list[Rejected]]:
    """The clinic, and every line and every evidence that is not in it, with the reason."""
    reading = _Reading()
    for number, line in lines(existing(str(path))):
        try:
            _read_condition(reading, path, number, parse_line(line))
        except BadRecord as error:
            reading.rejected[f"line {number}"] = Rejected(str(path), number, shortened(str(error)))
    if not reading.conditions:
        raise ClinicError(f"{path} holds no condition; give the path of DDXPlus conditions_en.jsonl")
    return GenerativeClinic(NAME, tuple(reading.conditions.values()), tuple(reading.findings.values()), 0.0), list(
        reading.rejected.values()
    )


def _read_condition(reading: _Reading, path: Path, number: int, record: Any) -> None:
    name, icd10 = text_at(record, "condition"), text_at(record, "icd10").upper()
    key = diagnosis_id(name)
    if key in reading.conditions:
        raise BadRecord(f"condition {name} is defined twice")
    evidences = [(entry, kind) for kind in ("symptoms", "antecedents") for entry in _entries(record, kind)]
    yes_no = [
        (_finding(entry, kind), _probability(entry)) for entry, kind in evidences if text_at(entry, "data_type") == "B"
    ]
    listed = {finding.finding_id: p for finding, p in yes_no if p > 0}
    if not any(finding.complaint and finding.finding_id in listed for finding, _ in yes_no):
        raise BadRecord(f"condition {name} has no yes/no symptom to open with")
    urgent = _number(record, "severity") <= URGENT_SEVERITY
    prevalence = _number(record, "n_train_patients")
    if prevalence <= 0:
        raise BadRecord(f"n_train_patients = {prevalence:g} must be positive")
    for entry, _ in evidences:
        if entry["data_type"] != "B":
            reason = f"evidence {entry['evidence']} ({entry['question_en']}) takes values and the file has no distribution over them; left out of the clinic"
            reading.rejected.setdefault(str(entry["evidence"]), Rejected(str(path), number, shortened(reason)))
    for finding, _ in yes_no:
        reading.findings.setdefault(finding.finding_id, finding)
    reading.conditions[key] = Condition(
        condition_id=key,
        name=name,
        specialty=_chapter(icd10),
        icd10=icd10,
        synonyms=(*names_of(name)[1:], *SYNONYMS.get(name, ())),
        parents=(),
        prevalence=prevalence,
        urgent=urgent,
        red_flags=(),
        next_steps=(NEXT_STEPS[urgent],),
        findings=listed,
    )


def _entries(record: Any, kind: str) -> list[Any]:
    entries = value_at(record, kind)
    if not isinstance(entries, list):
        raise BadRecord(f"field {kind} is no list")
    for entry in entries:
        for name in ("evidence", "question_en", "data_type"):
            text_at(entry, name)
    return entries


def _number(record: Any, name: str) -> float:
    value = value_at(record, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise BadRecord(f"field {name} is no number")
    return float(value)


def _probability(entry: Any) -> float:
    p = _number(entry, "p_train")
    if not 0 <= p <= 1:
        raise BadRecord(f"P({entry['evidence']}) = {p:g} must lie in [0, 1]")
    return p


def _chapter(icd10: str) -> str:
    return next((name for start, name in reversed(CHAPTERS) if icd10[:3] >= start), "other")


def _finding(entry: Any, kind: str) -> Finding:
    evidence, question = text_at(entry, "evidence"), text_at(entry, "question_en")
    yes, no = statements(question)
    return Finding(
        finding_id=evidence,
        name=question.rstrip(" ?"),
        complaint=float(kind == "symptoms"),
        background=0.0,
        patient=Wordings((yes,), (f"as far as I can tell {yes}",)),
        denial=Wordings((no,), (f"as far as I can tell {no}",)),
        doctor=Wordings((question,), (f"Could you tell me: {question}",)),
    )


IRREGULAR = {  # questions that no rule turns round, and the statement that says yes
    "Have any of your family members ever had a pneumothorax?": "someone in my family has had a pneumothorax",
    "Have any of your family members been diagnosed with cluster headaches?": "someone in my family has been diagnosed with cluster headaches",
    "Are there any members of your family who have been diagnosed myasthenia gravis?": "someone in my family has been diagnosed with myasthenia gravis",
    "Are there members of your family who have been diagnosed with pancreatic cancer?": "someone in my family has been diagnosed with pancreatic cancer",
    "Do any members of your immediate family have a psychiatric illness?": "someone in my immediate family has a psychiatric illness",
    "Does your mother suffer from asthma?": "my mother suffers from asthma",
    "Have you or any member of your family ever had croup?": "I or someone in my family has had croup",
    "Have you ever had a migraine or is a member of your family known to have migraines?": "I have had a migraine or someone in my family is known to have migraines",
    "Are your symptoms worse when lying down and alleviated while sitting up?": "my symptoms are worse when lying down and better while sitting up",
    "Are your symptoms more prominent at night?": "my symptoms are more prominent at night",
    "Are the symptoms or pain increased with coughing, with an effort like lifting a weight or from forcing a bowel movement?": "the symptoms or the pain increase with coughing, with an effort like lifting a weight or from forcing a bowel movement",  # noqa: E501  a question of the data set
    "Do your symptoms of muscle weakness increase with fatigue and/or stress?": "my muscle weakness increases with fatigue or stress",
    "Is your skin much paler than usual?": "my skin is much paler than usual",
    "Is your BMI less than 18.5, or are you underweight?": "my BMI is less than 18.5 or I am underweight",
    "Are your vaccinations up to date?": "my vaccinations are up to date",
    "Does the person have a whooping cough?": "I have a whooping cough",
    "Is your nose or the back of your throat itchy?": "my nose or the back of my throat is itchy",
    "Did your cheeks suddenly turn red?": "my cheeks suddenly turned red",
    "In the last month, have you been in contact with anyone infected with the Ebola virus?": "in the last month I have been in contact with someone infected with the Ebola virus",
    "Did you previously, or do you currently, have any weakness/paralysis in one or more of your limbs or in your face?": "I have or had weakness or paralysis in one or more of my limbs or in my face",  # noqa: E501  a question of the data set
    "Do you currently, or did you ever, have numbness, loss of sensitivity or tingling anywhere on your body?": "I have or had numbness, loss of sensitivity or tingling somewhere on my body",  # noqa: E501  a question of the data set
    "Do you wheeze while inhaling or is your breathing noisy after coughing spells?": "I wheeze while inhaling or my breathing is noisy after coughing spells",
    "Are you more irritable or has your mood been very unstable recently?": "I am more irritable or my mood has been very unstable recently",
    "Do you ever temporarily stop breathing while you’re asleep?": "I stop breathing for a moment while I am asleep",
    "Were you born prematurely or did you suffer any complication at birth?": "I was born prematurely or suffered a complication at birth",
    "Do you feel like you are (or were) choking or suffocating?": "I feel or felt like I am choking or suffocating",
    "Do you feel like you are dying or were you afraid that you were about do die?": "I feel like I am dying or was afraid that I was about to die",
}
_BEGINNINGS = (  # of a question, of its yes and of its no; the first that fits
    ("Have you ever ", "I have ", "I have never "),
    ("Have you ", "I have ", "I have not "),
    ("Do you ", "I ", "I do not "),
    ("Did you ", "I did ", "I did not "),
    ("Are you ", "I am ", "I am not "),
    ("Were you ", "I was ", "I was not "),
)
_PERSONS = (  # second to first person, in this order
    (r"\bor do you\b", "or I"),
    (r"\bor are you\b", "or I am"),
    (r"\bor were you\b", "or I was"),
    (r"\bor did you\b", "or I did"),
    (r"\bor have you( ever)?\b", "or I have"),
    (r"\byou(?: are|’re|'re)\b", "I am"),
    (r"\byou were\b", "I was"),
    (r"\b(wake|keeping) you\b", r"\1 me"),
    (r"\byour\b", "my"),
    (r"\byou\b", "I"),
)
_SECOND_QUESTION = re.compile(r"\bor (?:do|are|were|did|have) you\b")


def statements(question: str) -> tuple[str, str]:
    """The yes and the no to a question as statements in the first person, without full stop."""
    yes = IRREGULAR.get(question)
    if yes is None:
        body = question.rstrip(" ?")
        beginning = next((forms for forms in _BEGINNINGS if body.startswith(forms[0])), None)
        if beginning is None:
            return f"the answer to '{body}' is yes", f"the answer to '{body}' is no"
        rest = body.removeprefix(beginning[0])
        yes = beginning[1] + re.sub(r"\bany\b", "some", _first_person(rest), count=1)
        if not _SECOND_QUESTION.search(rest):
            return yes, beginning[2] + _first_person(rest)
    return yes, f"it is not true that {yes}"


def _first_person(text: str) -> str:
    for pattern, words in _PERSONS:
        text = re.sub(pattern, words, text)
    return text
