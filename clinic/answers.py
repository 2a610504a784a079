"""What an answer says beside the name of its disease: "Gout (90% sure), start colchicine and drink water" is gout.

What stands behind a name is left out if each of its clauses is one of advice, of how sure the doctor is or of what speaks
for it (`answer_words.yaml`), and none names another disease without denying it, takes the first back, makes it somebody
else's or long past, or tells a course, a type or a cause that the case's truth may not have. A bare noun behind a comma
might be a second guess and stays. What stands before a name is left out if it ends as an introduction does and says
nothing of the kind either. Truths are not read so: they hold no advice, and what is behind their commas counts.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from clinic.reading import LONGEST_TEXT, Reading, readings, speaks_of_disease, takes_back

_FIELD = re.compile(r"\A\{\s*[\"'](?:\w* ?_?diagnosis|诊断)[\"']\s*:\s*[\"']([^\"']+)[\"']\s*\}\Z", re.IGNORECASE)
_BOXED = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_MARKS = re.compile(r"\*{1,3}|_{2,3}|`+|\$+|</?[a-z\u4e00-\u9fff]{1,12}>", re.IGNORECASE)
_SQUARE = str.maketrans("[]【】", "()()")
_DASH = r"\s[–—-]+>?\s|[–—→⇒]+|->|=>"
_BOUNDARY = re.compile(
    rf"\s*(?:[,;:!(，。；：！]|\.(?!\d)|{_DASH})\s*"
    r"|\s+(?=w/|(?:od|os|ou)\Z|(?:(?:on|in|of) (?:both|(?:the|your|his|her) (?:left|right))|is what (?:i|you|we|this)"
    r"|is (?:by far )?(?:the|my)|(?:(?:can|could|would) )?(?:best )?(?:accounts? for|explains?|match(?:es)?|fits?)|with|without|per"
    r"|needing|requiring|needs|requires|based on|given|because|as evidenced|to be|supported by"
    r"|and (?:i|you|we|needs?|requires?|should|must))\b)|(?<=[\u4e00-\u9fff])(?=伴|诊断明确|(?:能够?|可以?)解释|的?表现\Z)",
    re.IGNORECASE,
)
_CLAUSE = re.compile(rf"[,;!()，。；！]|(?<!\d)\.|\.(?!\d)|{_DASH}")
# where an introduction may end and a name begin
_INTRODUCED = re.compile(
    r"(?:\b(?:is|are|has|have|'ve|’ve|be|likely|probably|certainly|definitely|probable|suspected|called|namely|suggests?|indicates?"
    r"|supports?|confirms?|conclude|diagnose|arrived at|points? to|(?:the|an?)(?<! of a)|[a-z]\d\d(?:\.\d+)?"
    r"|(?:consistent|compatible|dealing|presents?|presenting|in keeping)(?: only)? with|(?:diagnosis|impression|case|picture|one"
    r"|presentation|classic|typical|diagnostic|suggestive|indicative|characteristic|pathognomonic) (?:of|for))"
    r"|[:=;.!]|\((?:[a-e]|诊断|结论)\)|\b[a-e][.)])\s+|[:=]\s*|\((?:诊断|结论)\)|(?<=[\u4e00-\u9fff])(?:为|是|系|即|属于?|倾向于?|考虑|出在|的)",
    re.IGNORECASE,
)
_NOT_BUT = re.compile(r"(?:(?:it|this) is )?not\b[^,;.]*,? but(?: rather)?\b|不是[^，,]*[，,]而?是", re.IGNORECASE)
_LESS_THAN_EVEN = re.compile(r"(?<![\d.<>-])(?:[0-4]?\d(?:\.\d+)?|50) ?%|(?<![\d.])0?\.[0-4]\d*\b|< ?\d+ ?%")
_DENIAL = re.compile(r"\W*(?:不是|并非|而非|不像|没有|无|未见|不考虑|排除|除外)")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_INVISIBLE = "\ufe0f\u200d"  # they join pictures


@lru_cache(maxsize=65536)
def readings_of_answer(answer: str) -> tuple[Reading, ...]:
    """The names that an answer may be read as, likeliest first: `readings` of it, of what is left without words that say
    nothing else of the disease behind the name, and without those before it.
    """
    plain = _plain(answer)
    settled = len(plain) <= LONGEST_TEXT and "?" not in plain and not _lexicon()["unsettled"].search(plain.lower())
    texts = (answer, plain, *(_heads(plain) if settled else ()))
    names = (name for text in texts for name in _introduced(text)) if settled else ()
    return tuple(dict.fromkeys(reading for text in dict.fromkeys((*texts, *names)) for reading in readings(text)))


def _plain(answer: str) -> str:
    """Without the marks of Markdown, LaTeX, HTML and JSON, and without pictures."""
    text = _FIELD.sub(r"\1", unicodedata.normalize("NFKC", answer).strip())
    while (inside := _BOXED.sub(r"\1", text)) != text:
        text = inside
    text = _MARKS.sub(" ", text.translate(_SQUARE))
    text = "".join(";" if unicodedata.category(c) == "So" or c == "•" else c for c in text if c not in _INVISIBLE)
    return " ".join(text.split()).strip(" ;")


def _heads(text: str) -> Iterator[str]:
    """What stands before each boundary of a text behind which nothing else is said of the disease; longest first."""
    for found in reversed(list(_BOUNDARY.finditer(text))):
        head, tail = text[: found.start()], text[found.start() :]
        if any(c.isalnum() for c in head) and _says_nothing_else(tail):
            yield head


def _introduced(text: str) -> Iterator[str]:
    """What stands behind each introduction of a text; longest first."""
    start = denied.end() if (denied := _NOT_BUT.match(text)) and speaks_of_disease(denied[0]) else 0
    for found in _INTRODUCED.finditer(text, start):
        lead, name = text[start : found.end()].lower(), text[found.end() :]
        said, _, lead = lead.rpartition("，" if "，" in lead else ",") if _HAN.search(name) else ("", "", lead)
        plain = not (speaks_of_disease(said) or _casts_doubt(said) or _LESS_THAN_EVEN.search(lead))
        if plain and any(c.isalnum() for c in name) and _lexicon()["frame"].fullmatch(lead):
            yield name
    if start:
        yield text[start:].strip()


def _casts_doubt(text: str) -> bool:
    return any(_lexicon()[name].search(text) for name in ("against", "denying"))


def _says_nothing_else(tail: str) -> bool:
    low, lexicon = tail.lower(), _lexicon()
    if _LESS_THAN_EVEN.search(tail) or lexicon["first"].match(low):
        return False
    clauses = _clauses(low)
    denies_other = bool(clauses) and bool(_DENIAL.match(clauses[0])) and speaks_of_disease(clauses[0])
    return (denies_other or not takes_back(tail)) and all(map(_is_aside, clauses))


def _clauses(text: str) -> list[str]:
    return [clause for clause in _CLAUSE.split(text) if any(c.isalnum() for c in clause)]


def _is_aside(clause: str) -> bool:
    """Whether a clause says nothing of another disease, nor what kind of disease it is."""
    lexicon = _lexicon()
    if speaks_of_disease(clause):
        return bool(lexicon["denying"].search(clause))
    if any(lexicon[name].search(clause) for name in ("against", "kind")):
        return False
    return bool(lexicon["aside"].search(clause) or lexicon["frame"].fullmatch(clause))


@lru_cache(maxsize=1)
def _lexicon() -> dict[str, re.Pattern[str]]:
    """Read `answer_words.yaml`: name of a list -> its words, of Latin letters whole ones."""
    content: dict[str, Any] = YAML(typ="safe").load(
        Path(__file__).with_name("answer_words.yaml").read_text(encoding="utf-8")
    )
    found = {name: "|".join(_lines(entry)) for name, entry in content.items()}
    patterns = {name: re.compile(rf"(?<![a-z])(?:{words})(?![a-z])") for name, words in found.items()}
    latin = "|".join(content["frame"]["words"])
    chinese = "|".join(sorted("|".join(content["frame"]["chinese"]).split("|"), key=len, reverse=True))
    # one reading of each place alone: a text made of such words would take for ever otherwise
    patterns["frame"] = re.compile(rf"(?>[^\w]|_|(?<![a-z])(?>{latin})(?![a-z])|{chinese})*+")
    return patterns | {"first": re.compile(rf"\W*(?:{found['first']})\b")}


def _lines(entry: list[str] | dict[str, list[str]]) -> list[str]:
    return entry if isinstance(entry, list) else [line for lines in entry.values() for line in lines]
