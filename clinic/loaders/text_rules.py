"""How texts of one language are parted and read into facts (`clinic.loaders.free_text`): patterns that stand here, words
in `sentences.yaml`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ruamel.yaml import YAML

FOREIGN_WORDS = 3  # fewer may be names ("de Quervain")
_END = r"(?:(?<=[.!?…])|(?<=[.!?…][\"”']))\s+(?=[A-Z\d\"“(]|[+＋]\s?[a-z])|(?<=[a-z]\.)(?=[A-Z][a-z])"
_ONLY_THERE = (
    r"(?:at (?:rest|night|work|home|school)|with (?:rest|exercise|meals|food|activity|exertion)"
    r"|during|when|after|before|while)"
)  # "but not at rest" denies no finding


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How texts of one language are parted and read; `kinds` and what follows come from `sentences.yaml`."""

    heading: re.Pattern[str]  # at the beginning of a line
    end: re.Pattern[str]  # of a sentence
    lower_end: re.Pattern[str]  # where none begins with a capital
    abbreviation: re.Pattern[str]  # before a stop that ends none
    turn: re.Pattern[str]  # within one
    denied: re.Pattern[str]  # who, the words of denial, and the rest
    clause: re.Pattern[str]  # between clauses
    comma: re.Pattern[str]  # between things denied
    comma_text: str  # stripped at the end of a part
    stop: str
    characters: int  # that count as one word; 0: words are parted by spaces
    presentation: str
    history: str
    kinds: tuple[tuple[str, re.Pattern[str]], ...]
    goes_on: Mapping[str, str]
    unless: re.Pattern[str]
    verdicts: re.Pattern[str]  # with their colon
    sections: re.Pattern[str]  # with theirs
    line_verdicts: re.Pattern[str]  # with a dash, or a line of their own
    line_sections: re.Pattern[str]
    asked: re.Pattern[str]  # a thing with a question mark, and the yes or no behind it
    answered: re.Pattern[str]  # the thing before its yes or no
    result: re.Pattern[str]  # at the end of what was looked for
    answers: re.Pattern[str]  # what makes a thing of a heading before it: "Fever: no."
    nameless: re.Pattern[str]  # headings that say nothing of what stands under them
    person: re.Pattern[str]  # a sentence of these alone tells age and sex
    says: re.Pattern[str]  # the end of what introduces words that were said, and is no heading
    soap: Mapping[str, str]  # letter of a section -> its heading, "" where the kinds of its sentences say more
    doctor: re.Pattern[str]  # with its colon, at the beginning of a line
    patient: re.Pattern[str]
    denies: re.Pattern[str]
    still_there: re.Pattern[str]
    carries: re.Pattern[str]
    own: re.Pattern[str]  # how a clause begins that no denial before it reaches
    acts: re.Pattern[str]  # verbs at the beginning of a clause that is no end of a list
    leads: re.Pattern[str]  # how one begins that tells nothing yet
    affirms: re.Pattern[str]
    others: re.Pattern[str]  # how a clause begins that denies all but what was said
    elsewhere: re.Pattern[str]  # where else a patient was seen, and can tell of the tests there
    found: re.Pattern[str]  # sections of examinations and tests
    doubted: re.Pattern[str]  # what stands in a column with a question mark, and asks nothing
    header: re.Pattern[str]  # a line that is the head of a form
    about: re.Pattern[str]  # what of it is told
    begins: re.Pattern[str]  # words that begin a sentence, whatever letter stands before
    absent: re.Pattern[str]  # what stands before a list of what is not there, and is no sentence
    denial: str  # that says the same in one
    flags: tuple[str, str]  # behind what is there, and what is not
    at_once: re.Pattern[str]  # columns whose things are asked for together
    not_known: re.Pattern[str]  # answers that say nothing
    greeting: re.Pattern[str]
    speaks: re.Pattern[str]  # where somebody begins to speak within a line
    foreign: re.Pattern[str]  # small words of other European languages
    unmistakable: re.Pattern[str]  # those of which one tells, beside none of its own
    native: re.Pattern[str]  # and of its own
    describes: re.Pattern[str]  # things denied that only describe the next ("chest or back pain")

    def length(self, text: str) -> int:
        """In words, or what counts as many."""
        return -(-len(text) // self.characters) if self.characters else len(text.split())


_PATTERNS = {
    "en": {
        "heading": r"\A\s*([A-Z][A-Za-z][A-Za-z /&'-]{0,38}):\s*(?![\s\d+<>-])",
        "end": _END,
        "lower_end": _END + r"|(?:(?<=[a-z\d]{3}[.!?])|(?<=[\d.]\d[.!?])|(?<=[\w)][+)][.!?]))\s+(?=[a-z])",
        "turn": r"(?i)\s*(?:;|,?\s+\b(?:but(?! not " + _ONLY_THERE + r"\b)|however|although)\b,?"
        r"|(?<!\bis)(?<!\bare)(?<!\bwas)(?<!\bwere)(?<!\bnot),?\s+"
        r"(?=without (?!any (?:[\w-]+ )?(?:difficult\w*|problems?|trouble|issues?|assistance|support|aid|triggers?|causes?|reasons?|explanation"
        r"|pattern|signs of (?:healing|improvement))\b"
        r"|the |his |her |(?!guarding|swelling|bleeding|vomiting|wheezing|itching)\w+ing\b)|with no )"
        r"|,\s+(?:though|yet)(?=\s+\w)|(?:,|\s[-–]|,?\s+and(?= no ))\s+(?=(?:no|nil) (?!matter\b|more\b|less\b|one\b))"
        r"|,\s+(?=not (?!only\b|even\b|yet\b|"
        + _ONLY_THERE
        + r"\b)\w|(?:has|have|is|was|does|did|had)n['’]t\b|(?:is|are|was|were) not\b|only\b)"
        r"|\s+and\s+(?=(?:negative|positive) for\b)"
        r"|,?\s+\band\b(?=\s+(?:he |she |the patient |there )?(?:den(?:ies|ied)|has no|had no|reports no|is negative for"
        r"|(?:is|was|were|are|has been) (?:no|nothing))\b)"
        r"|,?\s+\band\b(?P<joined>)(?!\s+(?:it|they|th(?:is|at|ese|ose)|which|all|(?:the )?results?)\b)"
        r"(?=\s+(?:the |his |her |their )?(?:[\w-]+ ){1,3}(?:is|are|was|were|remains?) (?:preserved|normal|intact|clear|soft|equal|full)\b)"
        r"|,\s+(?:who|which|and) (?:nevertheless|still)\b)\s*",
        "denied": r"(?is)\A(?:(?:but|however|although),? )?"
        r"(?P<who>[a-z][\w /&'-]{0,38}: +|(?:(?:the )?(?:patient|I|he|she|they)|there(?:['’]s)?"
        r"|(?:(?:his|her|their|the) )?(?:mother|mom|mum|father|dad|parents?|wife|husband|family)) )?"
        r"(?:also |otherwise |currently )?"
        r"(?P<cue>(?:(?:has|have|had|is|are|was|were|reports?|reported|ha[sd] been) )?"
        r"(?:not had (?:any )?|no (?:known )?(?:(?:[\w-]+ ){0,3}history of |evidence of )?"
        r"|neg(?:ative)? for |(?:free|clear) (?:of|from) |lack(?:s|ed) (?:any )?|without (?:any )?|with no )"
        r"|den(?:y|ies|ied|ying) (?:having (?:any |had )?|any |ever )?(?:(?:[\w-]+ ){0,3}history of )?|absence of )"
        r"(?P<rest>.+?)\.?\Z",
        "clause": r"(?i),?\s+(?:and\s+|(?=(?:but|however|although)\b))|[,;](?!\s*n?or\b)\s*|[.!?]+(?:\s+|\Z)"
        r"|(?<!\bis)(?<!\bare)(?<!\bwas)(?<!\bwere)(?<!\bnot)\s+(?=without\b|with no\b)",
        "comma": r",\s*(?:or|and|nor)?\s+|\s+(?:or|nor)\s+|,\s*",
        "absent": r"(?im)(?:^|(?<=[.;!?:]\s)|(?<=[.;!?:]))[ \t]*(?:[-–—•*][ \t]*)?"
        r"(?:(?:(?:pertinent|relevant|significant|important) )?negatives?(?: (?:symptoms|findings|history|ros))?"
        r"(?: (?:are|include[sd]?|including))?|neg(?:ative)? for|den(?:ies|ied)|(?:symptoms )?(?:absent|not present|resolved))"
        r"[ \t]*(?::|(?<=include)|(?<=includes)|(?<=are))[ \t]*",
    },
    "zh": {
        "heading": r"\A\s*([\u4e00-\u9fff]{2,8})[：:]\s*(?![\d+<>-])",
        "end": r"(?<=[。！？；])\s*",
        "lower_end": r"(?<=[。！？；])\s*",
        "turn": r"[；;，,]\s*(?=[但而且]?(?:无|没有|否认|未(?:见|闻及|触及|扪及|探及|引出|查见|发现|诉|出现|再)|不伴"
        r"|不(?:发[热烧]|咳|呕|吐|恶心|头[晕痛疼]|腹[泻痛胀]|胸[闷痛]|[吸抽]烟|[饮喝]酒|嗜|酗酒|[畏怕][光冷风])))|[；;]|，(?=但)"
        r"|[，,](?=[^，,、。；：]{1,8}阴性)|[，,](?=[^，,、。；：无未不]{1,4}(?:(?:无|未见|未闻及|未触及)[^，,。；]{1,8}|也?不[痛疼痒肿红])(?:[，,。；]|\Z))",
        "denied": r"(?s)\A(?P<who>患者|病人|[\u4e00-\u9fff]{2,8}[：:])?[但而且]?"
        r"(?P<cue>无明显|无|没有|否认有?|未见明显|未(?:见|闻及|触及|扪及|探及|引出|查见|发现|诉|出现|再)|不伴有?|不(?=发[热烧]|咳|呕|吐|恶心|头[晕痛疼]|腹[泻痛胀]|胸[闷痛]|[吸抽]烟|[饮喝]酒|嗜|酗酒|[畏怕][光冷风]))(?P<rest>(?!.*家族(?:遗传)?病?史).+?)[。，]?\Z",
        "clause": r"[，,；;、。！]|(?=但)",
        "comma": r"[、，,]|及|或",
        "absent": r"(?m)(?:^|(?<=[。；！]))\s*(?:(?:重要|相关|有意义的?)?阴性(?:症状|体征|表现|病史)|否认)[：:]\s*",
    },
}  # but for headings, of texts in simplified characters
_MARKS = {
    "en": {"comma_text": ", ", "stop": ".", "characters": 0, "denial": "No ", "flags": ("yes", "no")},
    "zh": {"comma_text": "，, ", "stop": "。", "characters": 2, "denial": "无", "flags": ("有", "无")},
}


@cache
def rules_of(language: str) -> Rules:
    """Those of a language, `en` or `zh`."""
    said = YAML(typ="safe").load(Path(__file__).with_name("sentences.yaml"))[language]
    whole = r"\b(?:{})\b" if language == "en" else "(?:{})"

    def any_of(fragments: Sequence[str]) -> re.Pattern[str]:
        return re.compile(whole.format("|".join(fragments)), re.IGNORECASE)

    verdict, section = "|".join(said["verdicts"]), "|".join(said["sections"])
    doctor, patient = ("|".join(said["speakers"][side]) for side in ("doctor", "patient"))
    several = rf"(?:{verdict})(?:\s*(?:and|&|/)\s*(?:{verdict}))?"
    end_of_word = r"(?![^\W\d_])" if language == "en" else ""
    apart = r"\s*(?:\Z|\s[-–—]\s+)"
    return Rules(
        **{name: re.compile(text) for name, text in _PATTERNS[language].items()} | _MARKS[language],  # type: ignore[arg-type]
        presentation=said["presentation"],
        history=said["history"],
        kinds=tuple((kind, any_of(fragments)) for kind, fragments in said["kinds"].items()),
        goes_on=said["goes_on"],
        unless=re.compile("|".join(said["unless"]), re.IGNORECASE),
        verdicts=re.compile(rf"\s*{several}\s*[:：]", re.IGNORECASE),
        sections=re.compile(rf"\s*({section})\s*[:：]\s*", re.IGNORECASE),
        line_verdicts=re.compile(rf"(?!(?:{doctor})(?:\W|\Z)){several}{apart}", re.IGNORECASE),
        line_sections=re.compile(rf"(?!\w{{2}}\Z)({section}){apart}", re.IGNORECASE),
        asked=re.compile(
            rf"(?m)(?:^|(?<=[.!?;:。！？；：]))\s*+(?!{said['wonders']})([^.!?;:。！？；：\n]{{2,60}})[?？]"
            rf"\s*((?:{said['yes_or_no']}){end_of_word}(?![ \t]+\w))",
            re.IGNORECASE,
        ),
        answered=re.compile(rf"[^.,;:，。；：]{{1,60}}[:：]\s*(?=(?:{said['yes_or_no']}){end_of_word})", re.IGNORECASE),
        result=re.compile(rf"(?:{said['result']})\W*\Z", re.IGNORECASE),
        answers=re.compile(rf"(?:{'|'.join(said['answers'])})\W*", re.IGNORECASE),
        nameless=re.compile("|".join(said["nameless"]), re.IGNORECASE),
        person=re.compile(rf"(?:(?:{'|'.join(said['person'])})(?![^\W\d_])|[\d\W_]+)++", re.IGNORECASE)
        if language == "en"
        else re.compile(rf"(?:{'|'.join(said['person'])}|[\d\W_]+)++"),
        at_once=any_of(said["at_once"]),
        not_known=re.compile(rf"\W*(?:{'|'.join(said['not_known'])})\W*", re.IGNORECASE),
        greeting=re.compile(rf"\W*(?:(?:{'|'.join(said['greeting'])})\W*)+", re.IGNORECASE),
        says=re.compile(rf"(?:{'|'.join(said['says'])})\Z", re.IGNORECASE),
        soap=said["soap"],
        doctor=re.compile(rf"\s*(?:{doctor})(?:\.?\s+[A-Z][\w'’-]+)?(?:\s*[:：]|\s+[-–]\s)\s*", re.IGNORECASE),
        patient=re.compile(rf"\s*(?:{patient})(?:\s*[:：]|\s+[-–]\s)\s*", re.IGNORECASE),
        speaks=re.compile(
            rf"(?:\s+|(?<=[。？！]))(?=(?:(?i:{_words_of(doctor)}|{_words_of(patient)})|[DQPA])\s*[:：])"
        ),
        abbreviation=re.compile(rf"\b(?:{'|'.join(said['abbreviations'])})\.\Z"),
        denies=any_of(said["denies"]),
        still_there=any_of(said["still_there"]),
        carries=any_of(said["carries"]),
        own=any_of(said["own"]),
        acts=any_of(said["acts"]),
        leads=any_of(said["leads"]),
        affirms=any_of(said["affirms"]),
        others=any_of(said["others"]),
        elsewhere=any_of(said["elsewhere"]),
        found=any_of(said["found"]),
        doubted=re.compile(said["doubted"][0]),
        header=re.compile(
            rf"(?m)^[ \t]*(?:(?:{'|'.join(said['identity'] + said['about'])})\s*[:：][^:：\n，,；;]{{0,16}}(?:[ \t，,；;]+|$)){{2,}}$"
        ),
        about=re.compile(rf"(?:{'|'.join(said['about'])})\s*[:：]\s*([^\s:：，,；;]+)"),
        begins=re.compile(whole.format("|".join(said["begins"]))),
        describes=any_of(said["describes"]),
        foreign=any_of(said["foreign"]),
        unmistakable=any_of(said["unmistakable"]),
        native=any_of(said["native"]),
    )


def _words_of(names: str) -> str:
    """Those of more than a letter."""
    return "|".join(name for name in names.split("|") if len(name) > 1 or not name.isascii())


def is_foreign(text: str, language: str) -> bool:
    """Whether a text called English has more of the small words of other European languages than of English ones."""
    rules = rules_of(language)
    others, own = len(rules.foreign.findall(text)), len(rules.native.findall(text))
    return others > own and (others >= FOREIGN_WORDS or bool(not own and rules.unmistakable.search(text)))
