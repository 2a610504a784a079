"""Events as they are stored: the keys of the files, and back."""

import json

import pytest

from clinic.errors import ClinicError
from clinic.events import (
    Answered,
    Asked,
    Diagnosed,
    Examined,
    FoundPassage,
    Invalid,
    Searched,
    event_from_json,
    final_diagnosis,
    leaks_of,
    read_events,
    told_topics,
)

PASSAGE = FoundPassage(
    passage_id="book#3",
    title="胸膜炎",
    section="症状",
    text="呼吸时胸痛。\n多为感染所致。",
    source="a book",
    licence="CC0-1.0",
    score=0.625,
)
COUGH = Asked(text="Cough?", topic="cough", present=True, repeated=False, leaks=2, reply="Yes.")
WITHHELD = Asked(
    text="Cough?", withheld=True, topic=None, present=None, repeated=False, leaks=0, reply="Why do you ask?"
)
STORED = [
    (
        COUGH,
        '{"kind": "question", "text": "Cough?", "topic": "cough", "present": true, "repeated": false, "leaks": 2, "reply": "Yes."}',
    ),
    (
        WITHHELD,
        '{"kind": "question", "text": "Cough?", "withheld": true, "topic": null, "present": null, "repeated": false, "leaks": 0, "reply": "Why do you ask?"}',
    ),
    (
        Examined(text="X", topic=None, present=None, repeated=True),
        '{"kind": "test", "text": "X", "topic": null, "present": null, "repeated": true, "leaks": 0, "reply": ""}',
    ),
    (
        Examined(
            text="X",
            topic="a",
            present=True,
            repeated=False,
            further=(Examined(text="X", topic="b", present=True, repeated=False),),
        ),
        '{"kind": "test", "text": "X", "topic": "a", "present": true, "repeated": false, "leaks": 0, "reply": "", '
        '"further": [{"kind": "test", "text": "X", "topic": "b", "present": true, "repeated": false, "leaks": 0, "reply": ""}]}',
    ),
    (
        Searched("胸痛", (PASSAGE,)),
        '{"kind": "search", "text": "胸痛", "hits": 1, "passages": [{"passage_id": "book#3", "title": "胸膜炎", "section": "症状", "text": "呼吸时胸痛。\\n多为感染所致。", "source": "a book", "licence": "CC0-1.0", "score": 0.625}]}',
    ),
    (
        Searched("胸痛", repeated=True),
        '{"kind": "search", "text": "胸痛", "hits": 0, "passages": [], "repeated": true}',
    ),
    (Diagnosed("Flu", "Rest"), '{"kind": "diagnosis", "diagnosis": "Flu", "recommendation": "Rest"}'),
    (
        Diagnosed("Flu", "Rest", ("flu#0",)),
        '{"kind": "diagnosis", "diagnosis": "Flu", "recommendation": "Rest", "evidence": ["flu#0"]}',
    ),
    (Invalid("hello", "no tag"), '{"kind": "invalid", "text": "hello", "error": "no tag"}'),
    (Answered("An ECG."), '{"kind": "answer", "text": "An ECG."}'),
]


@pytest.mark.parametrize(("event", "line"), STORED)
def test_what_is_stored_reads_back(event, line):
    assert json.dumps(event.to_json(), ensure_ascii=False) == line
    assert event_from_json(json.loads(line)) == event


def test_a_search_stored_with_the_number_of_its_passages_alone_can_be_read():
    assert event_from_json({"kind": "search", "text": "x", "hits": 2}) == Searched("x")


def test_a_passage_stored_without_its_section_can_be_read():
    stored = {"passage_id": "a#0", "title": "A", "text": "one", "source": "s", "licence": "CC0", "score": 0.5}
    (passage,) = event_from_json({"kind": "search", "text": "x", "hits": 1, "passages": [stored]}).passages
    assert (passage.section, passage.shown) == ("", "[a#0] A: one")


@pytest.mark.parametrize(
    "spoilt",
    [
        {"text": "?"},
        {"kind": "ask", "text": "?"},
        {"kind": "question", "text": "?"},
        {"kind": "diagnosis"},
        {"kind": "search"},
    ],
)
def test_what_is_no_event_is_refused(spoilt):
    with pytest.raises(ClinicError, match="not an event of a consultation"):
        event_from_json(spoilt)


def test_readings_of_a_whole_consultation():
    events = read_events(json.loads(line) for _, line in STORED[:7])
    assert events == [event for event, _ in STORED[:7]]
    assert (told_topics(events), leaks_of(events)) == ({"cough", "a", "b"}, 2)
    assert final_diagnosis(events) == Diagnosed("Flu", "Rest")
    assert final_diagnosis(events[:-1]) is None
    assert final_diagnosis([]) is None
