"""What an answer says beside the name of its disease: "Gout (90% sure), start colchicine and drink water" is gout.

What stands around a name, evidence, advice or how sure the doctor is, is left out unless one of its clauses names another
disease without denying it, takes the first back, makes it somebody else's, long past or a mere possibility, or tells a
course, a type or a cause that the case's truth may not have (`answer_words.yaml` has the words). What stands before a
name must end as an introduction does, too. No answer is read as two diseases, so that a list earns no more than its
first name alone. Truths are not read so: they hold no advice, and what is behind their commas counts.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from clinic.matching import normalise
from clinic.naming import group_of, is_chinese
from clinic.reading import LONGEST_TEXT, SURE, Reading, diseases_in, readings, speaks_of_disease, takes_back

_FIELD = re.compile(  # of JSON, of a dictionary of Python
    r"\A\{\s*([\"'])(?:\w* ?_?diagnosis|诊断)\1\s*:\s*([\"'])((?:(?!\2).|(?<=\w)'(?=\w))+)\2"
    r"(?:\s*,\s*[\"'](?:confidence|probability|icd[-_ ]?\w*|code|置信度|概率|编码)[\"']\s*:\s*[\"']?[\w.%]+[\"']?)*\s*\}\Z",
    re.IGNORECASE,
)
_BOXED = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_MARKS = re.compile(r"\*{1,3}|_{2,3}|`+|\$+|</?[a-z\u4e00-\u9fff]{1,12}>", re.IGNORECASE)
_SQUARE = str.maketrans("[]【】", "()()")
_DASH = r"\s[–—-]+>?\s|[–—→⇒]+|->|=>"
_BOUNDARY = re.compile(
    rf"\s*(?:[,;:!(，。；：！]|\.(?!\d)|{_DASH})\s*"
    r"|\s+(?=(?:on the (?:left|right)|is what (?:i|you|we|this)|is (?:by far )?(?:the|my)"
    r"|(?:(?:can|could|would) )?(?:best )?(?:accounts? for|explains?|match(?:es)?|fits?)|w/|with|per|needing|requiring|needs|requires"
    r"|(?:in|of|on) (?:the |your |his |her )?(?:left|right|both)\b|(?:on|by|per) (?:ct|mri|hrct|x-?ray|imaging|ultrasound|echo|biopsy|exam\w*)"
    r"|causing|producing|(?:strongly|highly) (?:suspected|likely)|it is|(?:is|seems|looks) (?:favou?red|preferred|(?:far |much )?more (?:likely|probable))"
    r"|based on|given|because|as evidenced|to be|supported by|and (?:i|you|we|needs?|requires?|should|must))\b)"
    r"|(?<=[\u4e00-\u9fff])(?=伴|(?:引起|所致|导致)(?:\W|\Z)|诊断明确|(?:能够?|可以?)解释|的?表现\Z)",
    re.IGNORECASE,
)
_COLON = (
    "".join(rf"(?<!{noun})" for noun in "confidence probability likelihood certainty chance odds 度 率 性 握".split())
    + "[:：]"
)
_CLAUSE = re.compile(
    rf"\s(?:so|therefore|thus|hence)\s(?=(?:no|not|it|this)\b)|[,;!()，。；！]|{_COLON}|(?<!\d)\.|\.(?!\d)|{_DASH}"
)
# where an introduction may end and a name begin
_INTRODUCED = re.compile(
    r"(?:\b(?:is|are|has|have|'ve|’ve|be|likely|probably|certainly|definitely|probable|suspected|called|namely|suggests?|indicates?"
    r"|supports?|confirms?|conclude|diagnose|arrived at|explained by|points? to|(?:the|an?)(?<! of a)|[a-z]\d\d(?:\.\d+)?"
    r"|so|therefore|thus|hence|favou?rs?|fits?|meets?|means?|spells?|shows?|reveals?|got|caught|(?:call|makes?) (?:it|this|that)|bet on|with|of|for|(?:due|secondary) to|caused by|from)"
    r"|[:=;.!]|\((?:[a-e]|诊断|结论)\)|\b[a-e][.)])\s+|[:=]\s*|\((?:诊断|结论)\)|(?<=[\u4e00-\u9fff])(?:为|是|系|即|属于?|倾向于?|符合|考虑|出在|的|患|有|说明|提示|由)",
    re.IGNORECASE,
)
_ASKED = re.compile(
    r"\W*(?:if|when|were|had|should|unless|once|in case|provided|assuming|suppos\w+|is|are|do|does|did|can|would|will|what(?! (?:you|he|she|they|we|i)\b)|have|has|could)\b|.*\b(?:my|their|his|her)\s(?:son|daughter|child|baby|boy|girl)\b|\W*i have\b"
)
# by which what stands before it speaks for what stands behind
_CONCLUDES = re.compile(
    r"\b(?:is|are|means?|makes? (?:it|this|that)|fits?|match(?:es)?|suggests?|indicates?|supports?|confirms?|shows?|favou?rs?|points? to(?:wards?)?"
    r"|spells?|(?:pain|fever|cough|headache|symptoms|rash|swelling|vomiting)(?:,? (?:most )?(?:likely|probably))? (?:due|secondary) to|(?:is|are) (?:all )?(?:due to|caused by|(?:best )?explained by)|(?:consistent|compatible|in keeping) with|typical (?:of|for)|classic (?:of|for)"
    r"|characteristic of|suggestive of|indicative of|diagnostic of|therefore|hence|thus|so)\b",
    re.IGNORECASE,
)
_CONCLUDES_CHINESE = re.compile(r"由|说明|提示|支持|考虑|诊断|符合|属于?|就是|是|为|所以|因此|故")
_FEW = r"(?:(?:an?|the|any|signs? of|evidence of|features? of)\s)*(?!only\b|just\b|merely|simply|necessar|exclu|impossib|unlike|without|other\b|to\b)[\w'’-]+(?:\s[\w'’-]+){0,3}"
# a clause that denies one disease and says nothing else
_DENIES = re.compile(
    rf"\W*(?:(?:and |but |so |therefore |thus |hence |clearly |definitely |(?:(?:and |so )?(?:it|this) (?:is|was) ))?(?:not|no|without|rather than|instead of|negative for)\s{_FEW}(?:\s(?:n?or|and)\s{_FEW})?(?::.*)?"
    rf"|nothing (?:\w+ )?(?:suggests|supports|points to) {_FEW}(?:\s(?:n?or|and)\s{_FEW})?"
    rf"|(?:so )?(?:it|this) (?:is|was)n[’']t\s{_FEW}|(?:is|seems|looks) (?:favou?red|preferred|(?:far |much )?more (?:likely|probable)) (?:over|than)\s{_FEW}"
    rf"|{_FEW}\s(?:(?:is|was|has been|seems|already)\s)*(?:unlikely|less likely|excluded|ruled out))\W*",
    re.IGNORECASE,
)
_DENIES_CHINESE = re.compile(
    r"\W*(?:(?:也|并)?(?:不是|并非|而非|不支持|不考虑|不像|排除了?|没有|无|不伴|未见)(?![疑论非不])[\u4e00-\u9fff]{1,10}?(?:证据)?|[\u4e00-\u9fff]{1,10}?已?(?:经)?(?:排除|除外)(?![不]))\W*"
)
_NEVER_DENIED = re.compile(
    r"是不是|要不是|有无|无论|无非|不无|不得不|不能不|[需先应要]排除|建议排除|[没未](?:有|能|完全)?(?:排除|除外)|没有排除|就是|\b(?:doubt|question|less(?! likely)|far from|second|fully|yet|impossible|missed)\b"
)
_NOT_BUT = re.compile(
    rf"(?:(?:it|this) is )?not {_FEW},? but(?: rather)?\b|不是(?!不|只|因)[\u4e00-\u9fff]{{1,10}}?[，,]而?是(?!不)",
    re.IGNORECASE,
)
_LESS_THAN_EVEN = re.compile(
    r"(?<![\d.<>-])(?:[0-4]?\d(?:\.\d+)?|50) ?(?:%|percent)(?! ?(?:(?!sure|confiden|certain|chance|probab|likel|that|this|it|odds|of\b|possib|or\b|and\b|vs)[a-z]))|(?<![\d.])0?\.[0-4]\d*\b(?! ?(?!sure|confiden|certain|chance|probab|likel)[a-z])|< ?\d+ ?%"
    r"|(?:\A|[(,;:]\s*|(?:confidence|chance|probability|likelihood|odds)\W*)(?!(?:[6-9]|10) ?/ ?10\b)\d{1,3} ?/ ?\d+\W*(?:\Z|[,;)])|\d (?:in|of|out of) (?:a )?\d|\b\d+:\d+"
    r"|(?:confidence|chance|probability|likelihood|概率|把握|置信度)\W*(?:[0-4]?\d|50|one|two|three|four|zero|[一二三四零])(?![\d.%]| ?/)|[一二三四五]成|一半"
)
# a finding that is not there, which denies no disease: "no hives", "hCG negative", "未见异常"
_ABSENT = re.compile(
    r"\b(?:no|without)\s(?!(?:such|way|longer|doubt|evidence|good|real|one|more|it|this|that)\b)[a-z-]{3,}(?: [a-z-]+)?(?: (?:n?or|and) [a-z-]+(?: [a-z-]+)?)?"
    r"|\b(?!(?:tests?|results?|everything|all|back|exams?|examination|work-?up|investigations?|studies|findings?)\b)[\w-]{2,} (?:is |are |was |were |both |all )*(?:negative|normal|absent)\b"
)
_ABSENT_CHINESE = re.compile(
    r"(?:无|未见|未及|没有|否认)(?![疑法误错关论不此这该])(?:明显)?[\u4e00-\u9fff]{1,6}|[\w\u4e00-\u9fff]{2,}阴性"
)
_NO_LIST = re.compile(rf"\s*(?:[(:（：]|{_DASH})")
_MEASURED = re.compile(r"\d|[+↑↓±<>=]|\b-ve\b")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_STRUCK = re.compile(r"~~.*?~~|<(del|s|strike)>.*?</\1>", re.IGNORECASE)
_CROSSED = re.compile("[❌✗✘⛔🚫👎]")
_CUT = re.compile(r"[;:!?。；：！？]|\.(?!\d)|\A\W*\d+[.)、]")
_UNSETTLED = re.compile(r"\?|\A\{")
_RELATIVE = re.compile(r"\W*(?:which|that|who|as in|as with|any of)\b")
_MODAL = re.compile(
    r"\b(?:cannot|can|may|could|might|should) (?:be (?!ruled|excluded)|also|lead|cause|spread|get|make)"
)
_HEDGE = re.compile(SURE, re.IGNORECASE)
_INVISIBLE = "\ufe0f\u200d"  # they join pictures


@lru_cache(maxsize=65536)
def readings_of_answer(answer: str) -> tuple[Reading, ...]:
    """The names that an answer may be read as, likeliest first: `readings` of it and, where none of them is known, of what
    is left of it without the words that say nothing else of its disease. Never those of two diseases.
    """
    said = _STRUCK.sub(" ", answer)
    plain = _plain(said)
    if _CROSSED.search(said):
        return ()
    found = _read(said)
    if _lexicon()["reported"].match(plain.lower()):
        return found[:1]
    first = next((group for one in found if (group := group_of(one.name)) is not None), None)
    found = tuple(one for one in found if group_of(one.name) in (None, first))
    known = any(not one.asides and group_of(one.name) is not None for one in found)
    settled = not known and not _UNSETTLED.search(plain) and len(plain) <= LONGEST_TEXT
    if not settled or _lexicon()["unsettled"].search(plain.lower()):
        return found
    named = _read(_settled(plain))
    every = tuple(dict.fromkeys((*found, *_read(plain), *named)))
    one_disease = len({group_of(reading.name) for reading in every} - {None}) <= 1
    return every if one_disease and all(_holds(reading, named) for reading in found) else found


def _read(text: str) -> tuple[Reading, ...]:
    """The readings of a text behind whose names nothing takes them back or tells their kind; without the whole text if a
    sentence or the mark of a list was cut from it, since with the words of both it may name another disease
    ("Hypertension; pulmonary", "1. Diabetes").
    """
    found = readings(text)
    cut = found[1:] if len(found) > 1 and _CUT.search(found[0].name) else found
    return tuple(one for one in cut if _stands(one.name, text))


def _stands(name: str, text: str) -> bool:
    """Whether what follows a name at once tells no kind of it ("Pneumonia; viral") and, as a relative clause, takes
    nothing back ("which you do not have").
    """
    _, there, tail = text.lower().partition(name.lower()) if name else ("", "", "")
    first = next(iter(_clauses(_MODAL.sub(" ", _HEDGE.sub(" ", tail)))), "") if there else ""
    if speaks_of_disease(first):
        return True
    lexicon = _lexicon()
    return not (
        lexicon["kind"].search(lexicon["fixed"].sub(" ", first)) or (_RELATIVE.match(first) and _is_doubted(first))
    )


def _holds(reading: Reading, named: tuple[Reading, ...]) -> bool:
    """Whether a name stands in a reading; one in which it does not has been cut down to another."""
    texts = [normalise(text) for text in (reading.name, *reading.asides)]
    return any(normalise(one.name) in text for one in named for text in texts)


def _plain(answer: str) -> str:
    """Without the marks of Markdown, LaTeX, HTML and JSON, and without pictures."""
    text = _FIELD.sub(r"\3", unicodedata.normalize("NFKC", answer).strip())
    while (inside := _BOXED.sub(r"\1", text)) != text:
        text = inside
    text = _MARKS.sub(" ", text.translate(_SQUARE))
    text = "".join(";" if unicodedata.category(c) == "So" or c == "•" else c for c in text if c not in _INVISIBLE)
    return " ".join(text.split()).strip(" ;")


def _head(text: str) -> str:
    """What stands before the first boundary of a text behind which nothing else is said of the disease."""
    for found in _BOUNDARY.finditer(text):
        head, tail = text[: found.start()], text[found.start() :]
        if _is_word(head) and _says_nothing_else(tail, diseases_in(head) - {None}):
            return head
    return text


def _settled(text: str) -> str:
    """The name that a text settles on: behind the longest lead and before the first tail that say nothing else of it."""
    denied = _NOT_BUT.match(text)
    begin = denied.end() if denied and speaks_of_disease(denied[0]) and not _NEVER_DENIED.search(denied[0]) else 0
    starts = {found.end() for pattern in (_INTRODUCED, _CLAUSE) for found in pattern.finditer(text, begin)}
    name = _head(text[begin:])
    for start in sorted(starts):
        rest = text[start:].strip()
        if _is_word(rest) and _leads(text[begin:start]) and (_is_frame(text[begin:start]) or _names_first(rest)):
            name = _head(rest)
    return name


def _names_first(text: str) -> bool:
    """Whether a text begins with a clause that speaks of a disease and does not deny it."""
    first = next(iter(_clauses(text)), "")
    return speaks_of_disease(first) and not _denies_another(first)


def _is_word(text: str) -> bool:
    return sum(c.isalpha() for c in text) > 1


def _is_frame(lead: str) -> bool:
    return bool(_lexicon()["frame"].fullmatch(lead.lower()))


def _leads(lead: str) -> bool:
    """Whether the words before a name are what speaks for it and an introduction, and say nothing else of it."""
    low, reported = lead.lower(), _lexicon()["reported"]
    if _LESS_THAN_EVEN.search(low) or any(_ASKED.match(one) or reported.search(one) for one in _CLAUSE.split(low)):
        return False
    if lead.rstrip().endswith(("(", ",")) and not is_chinese(lead) and not _is_frame(lead):
        return False  # it may be one name: "Hand, foot and mouth disease"
    *said, last = _CLAUSE.split(lead)
    bare = bool(_NO_LIST.search(lead[-4:]))  # or in brackets
    return _are_asides(tuple(filter(_is_word, said)), bare=bare) and (_is_frame(last) or _concludes(last))


def _concludes(clause: str) -> bool:
    """Whether a clause that a name ends has a verb before it by which what stands there speaks for the name."""
    verbs = _CONCLUDES_CHINESE if is_chinese(clause) else _CONCLUDES
    verb = max(verbs.finditer(clause), key=lambda found: found.end(), default=None)
    if verb is None or not _is_frame(clause[verb.end() :]):
        return False
    before = clause[: verb.start()]
    return _is_frame(before) or not (speaks_of_disease(before) or _is_doubted(before))


def _says_nothing_else(tail: str, own: frozenset[int | None]) -> bool:
    """Whether what stands behind a name leaves its disease, which belongs to these bundled groups, as it is."""
    if _LESS_THAN_EVEN.search(tail.lower()) or _lexicon()["first"].match(tail.lower()):
        return False
    clauses = _clauses(tail)
    if not _are_asides(clauses, own, bare=bool(_NO_LIST.match(tail))):
        return False
    return not takes_back(tail) or (bool(clauses) and _denies_another(clauses[0]))


def _clauses(text: str) -> list[str]:
    return [clause for clause in _CLAUSE.split(text) if any(c.isalnum() for c in clause)]


def _are_asides(clauses: Sequence[str], own: frozenset[int | None] = frozenset(), bare: bool = False) -> bool:
    """Whether clauses say nothing of another disease but that it is not there, nor what kind of disease it is. Bare nouns
    behind a comma might be further guesses, or a kind.

    Args:
        clauses: without marks.
        own: the bundled groups of the disease that is named: its other names are no other disease.
        bare: whether bare nouns are evidence: in brackets, at a dash, a colon or an arrow.
    """
    left = [one for one in clauses if not _is_frame(one) and not _is_other_name(one, own)]
    if not all(_denies_another(one) if _names_another(one) else not _is_doubted(one) for one in left):
        return False
    return bare or not left or any(map(_is_no_noun, left))


def _is_other_name(clause: str, own: frozenset[int | None]) -> bool:
    return bool(own) and diseases_in(clause) == own and not _is_doubted(clause)


def _names_another(clause: str) -> bool:
    """Whether a clause speaks of a disease, findings that are called like one apart."""
    return speaks_of_disease(clause) and speaks_of_disease(_lexicon()["findings"].sub(" ", clause))


def _is_no_noun(clause: str) -> bool:
    """Whether a clause is evidence, advice or a denial and no bare noun: by its words, by a number or a sign, or because
    it is long.
    """
    low, lexicon = clause.lower(), _lexicon()
    plain = _ABSENT_CHINESE.sub(" ", _ABSENT.sub(" ", lexicon["fixed"].sub(" ", low)))
    told = plain != low or lexicon["aside"].search(low) or _MEASURED.search(low)
    return bool(told) or len(low.split()) > 3 or len(_CHINESE.findall(low)) > 4 or _denies_another(clause)


def _is_doubted(clause: str) -> bool:
    """Whether a clause has words by which the disease may be another, another's, of another kind or not there."""
    lexicon = _lexicon()
    plain = _ABSENT.sub(" ", lexicon["fixed"].sub(" ", clause.lower()))
    denied = lexicon["negative"].search(_ABSENT_CHINESE.sub(" ", plain))
    return any((denied, lexicon["against"].search(plain), lexicon["kind"].search(plain)))


def _denies_another(clause: str) -> bool:
    """Whether a clause denies one disease, or two, and says nothing else."""
    denial = _DENIES_CHINESE if is_chinese(clause) else _DENIES
    return bool(speaks_of_disease(clause) and denial.fullmatch(clause) and not _NEVER_DENIED.search(clause.lower()))


@lru_cache(maxsize=1)
def _lexicon() -> dict[str, re.Pattern[str]]:
    """Read `answer_words.yaml`: name of a list -> its words, of Latin letters whole ones."""
    content: dict[str, Any] = YAML(typ="safe").load(
        Path(__file__).with_name("answer_words.yaml").read_text(encoding="utf-8")
    )
    frame, first = content.pop("frame"), "|".join(content.pop("first"))
    content["aside"] = [line for lines in content["aside"].values() for line in lines]
    latin = "|".join(frame["words"])
    chinese = "|".join(sorted("|".join(frame["chinese"]).split("|"), key=len, reverse=True))
    found = {name: re.compile(rf"(?<![a-z])(?:{'|'.join(lines)})(?![a-z])") for name, lines in content.items()}
    found["findings"] = re.compile(found["findings"].pattern, re.IGNORECASE)
    found["first"] = re.compile(rf"\W*(?:{first})\b")
    # one reading of each place alone: a text made of such words would take for ever otherwise
    found["frame"] = re.compile(rf"(?>[^\w]|_|(?<![a-z])(?:{latin})(?![a-z])|{chinese})*+")
    return found
