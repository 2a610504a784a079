"""Free text of a case, parted into facts: each a sentence or less, present or denied, under a topic.

A sentence is parted where it turns ("... but denies fever"), and what follows a denial at its commas ("denies fever,
chills, or cough" are three). Topics are the headings of sections where there are any ("PMH: ..."), else the kind of
sentence by its words (`sentences.yaml`); a sentence of no kind of its own goes on with the examination or test before
it. Left out are questions, which are the examiner's, and sections of what a doctor concluded ("Diagnosis: ...").

Source of denials: after NegEx, Chapman et al., Journal of Biomedical Informatics 34:301 (2001), shortened.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ruamel.yaml import YAML

from clinic.simplified import simplified

MAX_DENIED_WORDS = 8  # an item of a list of denials is short; a longer one is a sentence of its own kind
MAX_OPENING_WORDS = 60
_ADJECTIVE = re.compile(r"\A\w+(?:al|ar|ary|ic|ive|ous)\Z")  # "urinary or fecal incontinence" is no list of two things


@dataclass(frozen=True)
class Statement:
    """What one fact will be."""

    topic: str
    present: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """How texts of one language are parted and read; `kinds` and what follows come from `sentences.yaml`."""

    heading: re.Pattern[str]  # at the beginning of a line
    end: re.Pattern[str]  # of a sentence
    turn: re.Pattern[str]  # within one
    denied: re.Pattern[str]  # who, the words of denial, and the rest
    comma: re.Pattern[str]  # between things denied
    comma_text: str  # stripped at the end of a part
    stop: str
    characters: int  # that count as one word; 0: words are parted by spaces
    presentation: str
    history: str
    kinds: tuple[tuple[str, re.Pattern[str]], ...]
    goes_on: Mapping[str, str]
    unless: re.Pattern[str]
    verdicts: re.Pattern[str]
    denies: re.Pattern[str]
    still_there: re.Pattern[str]

    def length(self, text: str) -> int:
        return -(-len(text) // self.characters) if self.characters else len(text.split())


_SHAPES = {
    "en": {
        "heading": re.compile(r"\A\s*([A-Z][A-Za-z][A-Za-z /&'-]{0,38}):\s*(?![\s\d+<>-])"),
        "end": re.compile(
            r"(?<!\b[A-Z]\.)(?<!\bDr\.)(?<!\bMr\.)(?<!\bMs\.)(?<!\bMrs\.)(?<!\bvs\.)(?<=[.!?])[\"”']?\s+(?=[A-Z\d\"“(])|(?<=[a-z]\.)(?=[A-Z][a-z])"
        ),
        "turn": re.compile(
            r"\s*(?:;|,?\s+\b(?:but|however|although)\b,?|,?\s+(?=without (?!any |the |his |her |relief|improve|success|help|\w+ing\b)|with no (?!improve|relief|help|success))"
            r"|,?\s+\band\b(?=\s+(?:he |she |the patient )?(?:den(?:ies|ied)|has no|had no|reports no|is negative for)\b))\s*",
            re.IGNORECASE,
        ),
        "denied": re.compile(
            r"\A(?P<who>(?:(?:the )?(?:patient|he|she|they)|there) )?(?:also |otherwise |currently )?"
            r"(?P<cue>(?:(?:has|have|had|is|are|was|were|reports?|reported) )?"
            r"(?:not had (?:any )?|no (?:known )?(?:history of |evidence of )?|negative for |without (?:any )?|with no )"
            r"|den(?:ies|ied|ying) (?:having (?:any |had )?|any |ever )?|absence of )(?P<rest>.+?)\.?\Z",
            re.IGNORECASE | re.DOTALL,
        ),
        "comma": re.compile(r",\s*(?:or|and|nor)?\s+|\s+(?:or|nor)\s+|,\s*"),
        "comma_text": ", ",
        "stop": ".",
        "characters": 0,
    },
    "zh": {
        "heading": re.compile(r"\A\s*([\u4e00-\u9fff]{2,8})[：:]\s*(?![\d+<>-])"),
        "end": re.compile(r"(?<=[。！？；])\s*"),
        "turn": re.compile(r"[；;，,]\s*(?=(?:但|而|且)?(?:[无無]|[没沒]有|否[认認]|未[见見]|不伴))|[；;]|，(?=但)"),
        "denied": re.compile(
            r"\A(?P<who>患者|病人)?(?:但|而|且)?(?P<cue>[无無]明[显顯]|[无無]|[没沒]有|否[认認]有?|未[见見]明[显顯]|未[见見]|不伴有?)(?P<rest>.+?)[。，]?\Z",
            re.DOTALL,
        ),
        "comma": re.compile(r"[、，,]|及|或"),
        "comma_text": "，, ",
        "stop": "。",
        "characters": 2,
    },
}


@cache
def _rules(language: str) -> _Rules:
    said = YAML(typ="safe").load(Path(__file__).with_name("sentences.yaml"))[language]
    whole = r"\b(?:{})\b" if language == "en" else "(?:{})"

    def any_of(fragments: Sequence[str]) -> re.Pattern[str]:
        return re.compile(whole.format("|".join(fragments)), re.IGNORECASE)

    return _Rules(
        **_SHAPES[language],  # type: ignore[arg-type]  # one kind of value a key
        presentation=said["presentation"],
        history=said["history"],
        kinds=tuple((kind, any_of(fragments)) for kind, fragments in said["kinds"].items()),
        goes_on=said["goes_on"],
        unless=re.compile("|".join(said["unless"]), re.IGNORECASE),
        verdicts=re.compile(rf"(?:{'|'.join(said['verdicts'])})\Z", re.IGNORECASE),
        denies=any_of(said["denies"]),
        still_there=any_of(said["still_there"]),
    )


def opening_of(text: str, language: str) -> str:
    """The first sentence, which a patient comes with; cut after `MAX_OPENING_WORDS` words."""
    rules = _rules(language)
    first = next((sentence for _, sentence in _sentences(text, rules)), "")
    if rules.length(first) <= MAX_OPENING_WORDS:
        return first
    if rules.characters:
        return first[: MAX_OPENING_WORDS * rules.characters]
    return " ".join(first.split()[:MAX_OPENING_WORDS])


def statements_of(text: str, language: str, topic: str | None = None) -> Iterator[Statement]:
    """The facts of a text in its order; the first sentence is the presentation, unless a `topic` is given for all."""
    rules, kind = _rules(language), ""
    for place, (heading, sentence) in enumerate(_sentences(text, rules)):
        if topic is None and not place:
            yield Statement(rules.presentation, True, sentence)
            continue
        kind = heading or _kind(sentence, rules, kind)
        for part in _parts(sentence, rules):
            yield Statement(topic or kind, is_present(part, language), part)


def is_present(text: str, language: str) -> bool:
    """Whether a statement says that something is there; False where it is denied or not found."""
    rules = _rules(language)
    return rules.denies.search(rules.still_there.sub(" ", simplified(text))) is None


def _sentences(text: str, rules: _Rules) -> Iterator[tuple[str, str]]:
    """(heading of its section, or "", and sentence) in order, without questions."""
    heading = ""
    for line in re.split(r"\s*\n\s*", text.strip()):
        found = rules.heading.match(line)
        heading = found[1].strip() if found else heading
        for sentence in rules.end.split(line[found.end() :] if found else line):
            stripped = sentence.strip(' \t"“”')
            if stripped and stripped[-1] not in "?？:：" and not rules.verdicts.match(simplified(heading)):
                yield heading, stripped


def _kind(sentence: str, rules: _Rules, before: str) -> str:
    for kind, words in rules.kinds:
        if words.search(simplified(sentence)):
            return kind
    goes_on = rules.goes_on.get(before) if not rules.unless.search(sentence) else None
    return goes_on or rules.history


def _parts(sentence: str, rules: _Rules) -> Iterator[str]:
    """A sentence parted where it turns, and lists of denials at their commas."""
    for part in filter(None, (piece.strip(rules.comma_text) for piece in rules.turn.split(sentence))):
        found = rules.denied.match(part)
        items = [item.strip() for item in rules.comma.split(found["rest"])] if found else []
        short = all(0 < rules.length(item) <= MAX_DENIED_WORDS for item in items)
        if found and len(items) > 1 and short and not any(_ADJECTIVE.match(item) for item in items[:-1]):
            yield from (_finished(f"{found['who'] or ''}{found['cue']}{item}", rules) for item in items)
        else:
            yield _finished(part, rules)


def _finished(text: str, rules: _Rules) -> str:
    """With a capital and a stop."""
    return text[:1].upper() + text[1:] + ("" if text[-1:] in ".!。！" else rules.stop)
