"""Lists that share a word, written out: "back or loin pain" tells of a pain in the back and of one in the loin."""

import re

_PART = (
    r"(?:(?:left|right|upper|lower|mid|middle|both)[ -])?(?:head|face|jaw|eyes?|ears?|nose|mouth|tongue|throat|neck|shoulders?|chest|ribs?|"
    r"breasts?|back|flanks?|loins?|sides?|tummy|belly|stomach|abdomen|abdominal|abdo|pelvis|pelvic|groin|testic\w+|hips?|arms?|elbows?|wrists?|"
    r"hands?|fingers?|legs?|thighs?|knees?|calf|calves|ankles?|foot|feet|toes?|limbs?|joints?|muscles?|bones?|teeth|gums?|sinus|facial|body)"
)
_WHAT = (
    r"(?:pains?|aches?|aching|sore|soreness|tenderness|discomfort|cramps?|swelling|swollen|weakness|weak|numbness|numb|tingling|stiffness|stiff|"
    r"rash|itching|lumps?|redness|discharge|bleeding|tightness|burning|injury|hurt|ache|sore|swell|sting)"
)
_AND = r"(?:,? (?:and|or|nor) (?:any |in |of )?|, ?| ?/ ?)"
_WHOSE = r"(?:(?:your|the|his|her|their|my|its) )?"
_BEFORE = re.compile(rf"\b((?:{_PART}{_AND}{_WHOSE})+)({_PART}) ({_WHAT})\b")
_AFTER = re.compile(rf"\b({_WHAT}) ((?:(?:in|of|at|on|from|around) )?){_WHOSE}({_PART}(?:{_AND}{_WHOSE}{_PART})+)\b")
_SHARED = re.compile(rf"\b({_PART}) ({_WHAT}(?:{_AND}{_WHAT})+)\b")
_WHATS = re.compile(rf"\b{_WHAT}\b")
_PARTS = re.compile(rf"\b{_PART}\b")


def written_out(text: str) -> str:
    """A text in small letters, with what a list of parts of the body shares said of each."""
    text = _BEFORE.sub(
        lambda found: " or ".join(f"{part} {found[3]}" for part in _PARTS.findall(found[1] + found[2])), text
    )
    text = _SHARED.sub(lambda found: " or ".join(f"{found[1]} {what}" for what in _WHATS.findall(found[2])), text)
    return _AFTER.sub(
        lambda found: " or ".join(f"{found[1]} {found[2]}{part}" for part in _PARTS.findall(found[3])), text
    )
