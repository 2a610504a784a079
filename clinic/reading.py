"""What an answer or a truth in free text names: "The most likely diagnosis is acute appendicitis." is acute appendicitis.

Hedges, articles and the words that introduce a diagnosis go; what remains is compared as a whole, so a list of several
diseases, a denial or a question is no name. An explanation behind the name ("..., which is causing your pain") is cut
off if it speaks of no disease.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from clinic.naming import chinese_names, group_of, is_abbreviation, is_bundled, is_listed_short, keys, lexicon, words

SURE = (
    r"(?:(?:most|very|highly|quite|more|rather|almost) )?(?:likely|probabl[ey]|possibl[ey]|presum(?:ably|ed|ptive)"
    r"|apparently|clearly|definitely|certainly"
    r"|suspected|provisional|confirmed|perhaps|maybe|potential|plausible)"
)
_CHANCE = r"(?:(?:5\d|[6-9]\d) ?%? ?(?:-|–|to) ?)?(?:5\d|[6-9]\d|100) ?%"  # less is no diagnosis
_RANK = rf"(?:{SURE}|working|final|primary|main|principal|leading|top|clinical|single|best|overall)"
_VERBS = (
    r"(?:is|are|has|have|had|'s|'ve got|has got|have got|looks? like|sounds? like|seems? (?:to be|to have"
    r"|like)|appears? (?:to be|to have|like)|suggests?|indicates?|points? (?:\w+ly )?(?:to|towards?)|represents?"
    r"|(?:is|are|am)? ?(?:most |highly )?(?:consistent with|suggestive of|indicative of|compatible with|in"
    r" keeping with|due to|related to|caused by|(?:best )?explained by|diagnosed with|suffering from|experiencing"
    r"|dealing with|suspicious for)|fits?"
    r"|suffers? from|caught|has caught|have caught|got|(?:can|could|may|might|must|would|will) (?:well )?"
    r"(?:be|have|represent|suggest|indicate|reflect|point to|be suffering from|be experiencing|be related to|be due to))"
)
_OF_MINE = r"(?! (?:wife|husband|mother|father|son|daughter|child|baby|boy|girl))"  # somebody else's illness
_WHO = (
    rf"(?:your (?:wife|husband|mother|father|mom|dad)|you|he|she|it|this|that|these|they|we|the|your|my{_OF_MINE}|patient|pt|child|baby|infant|son|daughter|boy|girl"
    r"|little|woman|man|symptoms?|findings?|features|everything|clinical|picture|presentation"
    r"|history|pain|all|overall|there)"
)
_LEADS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?:based on|given|considering|in view of)\b[^.;:]*: ",
        r"(?:based on|given|from|after|considering|judging by|in view of|according to)\b[^.;:]*?, (?!and"
        r" )(?=[^,.;:]*\b(?:you|it|this|diagnosis|he|she|i|child|baby|patient|your|appears|likely|most)\b"
        r"|[^,]*\Z)",
        r"(?:based on|given|from|considering|judging by|in view of|according to)\b[^.;:,]*?(?= (?:your?|it"
        r"|this|the diagnosis|he|she|i) [^.;:,]*\b(?:has|have|had|is|appears?|seems?|suffer|think|caught)\b)",
        rf"(?>(?:{_RANK}\W+)*+)(?:differential )?(?:diagnosis|dx|ddx|impression|imp|assessment|conclusion|answer|cause"
        rf"|hypothesis)\s*(?:(?:is|would be|was):?|:|-|–|—|=)\s*",
        rf"(?:my|the|a|your|our|his|her)\W+(?>(?:{_RANK}\W+)*)(?:clinical )?(?:diagnosis|impression|assessment"
        rf"|conclusion|suspicion|guess|answer|cause|explanation|hypothesis)\W+(?:here |in this case |for this patient )?"
        rf"(?:here )?(?:(?:is|would be|was|of):?|:)\s+(?:{SURE}\s+)*",
        r"(?:it|this)(?: most likely| likely)? (?:appears|seems|looks|is (?:most |very )?(?:likely|possible"
        r"|probable))(?: like| that| as if)?\s+(?=(?:you|your|he|she|the|it|this|they)\b)",
        r"i can confirm(?: that)?\s+",
        r"(?:it |this )?(?:looks|sounds|seems|appears) (?:very |a lot |most )?(?:like|to be)\s+",
        r"(?:you|they|we)['’]ve (?:got|caught|developed|contracted)\s+",
        r"(?:in my (?:opinion|view),?|(?:ok|okay|well),|i(?:'d| would| will|'ll)? go with)\s+",
        r"(?:untreated|undiagnosed|new[- ]onset|uncomplicated|typical|classic(?:al)?)\s+",
        rf"{_CHANCE}\s+(?:(?:chance|probability|likelihood) of\s+)?",
        r"(?:[a-z]\d\d\.\d{1,2}[:\s–-]+|(?:a|a[/&]p|imp|dx|ddx)\s*:\s*|c/w\s+|query\s+)(?=\w)",
        r"(?:(?:you|they)(?:'re|’re| are)|(?:it|he|she)(?:'s|’s))\s+(?:(?:most|very) )?(?:likely |probably "
        r"|currently )?(?:experiencing |suffering from |dealing with |looking at |having |developing |showing (?:symptoms|signs) of )?",
        r"(?:currently|recently|newly)\s+(?:diagnosed with\s+)?",
        r"i(?:'m| am| would| do|'d)? ?(?:(?:strongly|also|most|now|do|fairly|quite|pretty) )*(?:think|believe"
        r"|suspect|suppose|conclude|say|favou?r|diagnose|confirm|call|suspecting|leaning towards?"
        rf"|(?:{_CHANCE} )?(?:sure|confident|certain|convinced))(?: that)?(?: you with| this as| this)?\b:?\s*",
        rf"(?:{_WHO}\s+){{1,4}}(?:{SURE}\s+|(?:now|currently|also|indeed|really|simply|just|strongly|clearly|best|all)\s+)*{_VERBS}\b"
        rf"(?:\s+(?:been )?(?:diagnosed with|suffering from|experiencing|caught))?\s*",
        rf"{SURE}\b[:\s-]*(?=\S)",
        rf"{_RANK}:\s*",
        r"(?:(?:therefore|thus|hence|overall|clinically|in summary|in conclusion)\b,?|so(?:,| (?=this|it|you)))\s*(?=\w)",
        r"i(?:'m| am) (?:concerned|worried)(?: that| about)?\s+",
        r"(?:suspect(?:ing)?|(?:(?:my |the )?(?:main |biggest )?concern (?:is|for))|(?:a |an )?(?:(?:high|strong|main|clinical) )+suspicion (?:of|for))\s+",
        r"(?:a |the )?(?:condition|disease|illness|disorder|something) (?:called|known as|named)\s+",
        r"(?:a|an|the|some|your|his|her|be|to be|that|is|it's|to)\s+",
        r"(?:(?:a |an |the )?(?:(?:mild|moderate|severe|classic|typical|textbook|straightforward|clear|definite|likely|bad|nasty)\s+)?(?:case|form|bout|presentation"
        r"|episode|picture|features|findings|diagnosis|signs?|symptoms?|type|suspicion|attack) of)\s+",
        r"(?:(?:most|very|highly|strongly) )?(?:suspicious for|concerning for|consistent with|suggestive of"
        r"|compatible with|in keeping with|best explained by|suffering from|experiencing|diagnosed (?:with|as))\s+",
        r"(?>(?:(?:\?+|[-*•#>]+|\d+[.)、])\s*)+)",
        r"(?:(?:(?:mild|moderate|severe)(?: to (?:moderate|severe))?)(?! (?:combined|acute respiratory"
        r"|cognitive|intellectual|neurocognitive|mental))|(?:left|right)-sided|bilateral|unilateral|(?:left"
        r"|right)(?! (?:\w+ )?(?:ventric|atri|heart|bundle|main|coronary|side|sided)))\s+",
        r"(?:根据[^，,]*[，,]|初步|最|可能|考虑|诊断|结论|疑似|结合[^，,]*[，,]|综合[^，,]*[，,]|您|你|患者|病人|患儿|孩子|宝宝|应该|应|大概|很|的|是|为|患有|患|得了|[得出](?=的是)|(?:轻度|中度)(?!认知)|重度(?!抑郁)|有|该(?=患者|病人)|(?:情况|症状|表现)(?=符合|提示|考虑|像)|:|："
        r"|极(?=有?可能)|目前|现(?=考虑|诊断)|我|认为|怀疑|倾向于?|符合|提示|属于|看起来|像|确诊|高度(?=怀疑|考虑|疑似|提示)|(?:临床|主要|明确|综合|最终)(?=诊断|考虑|判断)"
        r"|判断|[左右双](?:侧|耳|眼|膝|肩|足|手)?(?=[\u4e00-\u9fff])(?![心室房束位])|本病(?=[为是])|这(?=是|可能))+",
    )
)
_TRAILS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"[\s,;–-]*\(?\b(?:is |was |as |being |seems |appears |looks )?(?:the |my |a )?{SURE}(?: (?:the )?(?:diagnosis|cause"
        rf"|explanation|candidate|culprit))?\)?\Z",
        rf"\s+(?:is|would be|was) (?:the|my|your) (?:(?:{_RANK}|correct|right|underlying) ){{0,2}}"
        r"(?:diagnosis|cause|explanation|impression)\Z",
        rf"[\s,;:–—-]*[(\[]?(?:clinical diagnosis|(?:(?:high|moderate|good|strong) |{_CHANCE} ?)"
        r"(?:confiden(?:ce|t)|probability|likelihood|certain(?:ty)?|sure|likely)?)[)\]]?\Z",
        r"[\s,;:–—-]*[(\[]?(?:confidence:? (?:is )?(?:high|moderate)|(?:without|beyond) (?:any |a )?doubt|no doubt|for sure)[)\]]?\Z",
        r"\s*[,(\[]?\s*(?:icd[- ]?1[01](?:[- ]?cm)?(?: code)?[:\s]*[a-z]\d\d(?:\.\w{1,4})?|[a-z]\d\d\.\d{1,2})[)\]]?\Z",
        r"\s*[,(]\s*(?:mild|moderate|severe|(?:left|right)(?:[- ]sided)?|bilateral|unilateral)\)?\Z",
        r"\s+in (?:this|our|the|an?) (?:(?:\d+[- ]years?[- ]old|young|old|elderly|adult) ){0,2}"
        r"(?:patient|man|woman|male|female|boy|girl)\Z",
        r"[\s,;–-]*(?:until proven otherwise|is suspected|suspected|i think|i believe|i suspect|in my opinion|to me|here"
        r"|clinically|on clinical grounds"
        r"|nos|unspecified(?: organism| type| site)?|(?:organism|type|site) not specified|without complications?"
        r"|(?:on|of) the (?:left|right)(?: side)?)\Z",
        r"(?:的?可能性(?:较|很|更|最|极)?[大高]|可能|待查|\(疑似\)|吧|了|无疑)\Z",
        r"[\s.!?;:,。！？；，\"'*_`\]]+\Z",
    )
)
_SENTENCE = re.compile(
    r"(?<=[^\W\d][^\W\d][^\W\d][)\"'])\.\s+|(?<=[^\W\d]{3})[.!]\s+|[;。；\n]\s*|,? (?=(?:rather than|instead"
    r" of|as opposed to)\b)"
)
_EXPLANATION = re.compile(
    r",?\s+(?:which|that|who)\s+\w+|,\s*(?:likely|probably|possibly|perhaps|most likely)?\s*(?:caus"
    r"|trigger|relat|result|exacerbat|aggravat|complicat|du|given|becaus|bas|as|since|so|after|follow"
    r"|affect|lead|for)\w*\b"
    r"|\s+(?:likely|probably|possibly|perhaps)\s+(?:due|caused|related|from|after|triggered|because"
    r"|resulting|following|secondary)\b|\s+(?:because|based on|given)\b|\s+[–—-]\s+(?=.*\b(?:is|are|needs?"
    r"|with|please|see|start|treat|refer|because|due|this|you)\b)|,\s*(?:not|but not)\s|,\s*(?:an?|the)\s"
    r"|,?\s+and (?:needs?|requires?|should|must)\b|,?\s+(?:pending|awaiting|to be confirmed)\b"
    r"|,?\s+(?:needs?|requires?)\s+(?=\w)(?!.*\b(?:rul|exclu|consider|not))|,\s*(?:start|give|treat|refer|admit|take|prescribe|order|rest|drink|stay)\b(?!.*\b(?:rul|exclu|consider|not))"
    r"|\s+(?:would )?explains?\b|[,，](?=需|请|建议|应)",
    re.IGNORECASE,
)
# denials and definitions, whatever they speak of
_IDLE = re.compile(
    r"\W*(?:not|but not|rather than|instead of|as opposed to|(?:which|that) (?:is|are|means) (?:an? |the"
    r" )?inflammation of)\b",
    re.IGNORECASE,
)
# what takes back the name before it; "which is not contagious" does not
_TAKEN_BACK = re.compile(
    r"\W*(?:(?:but|though|although|however|which|that|it|this|(?:the )?diagnosis|i|we|he|she|you|they|has|have|had|is|was|been"
    r"|seems?|appears?|do|does|can|could|be|very|most|highly|quite|rather|therefore|now|already|considered)\W+)*"
    r"(?:unlikely|(?<=i )(?:reject|dismiss|retract)|(?:reject|dismiss|retract)ed|disproved?n?|refuted|withdrawn|never (?:had|was|were|been)\W*\Z"
    r"|(?:less|least) likely|improbable|implausible|impossible|doubtful|wrong|incorrect|false|absent|excluded"
    r"|ruled out|take (?:this|that|it) back|cannot(?: be)?\W*\Z|(?:not|no|(?:does|is|was|did)n['’]t)(?:\W*\Z| (?:this|that|it|so|(?:the|my|your) (?:case|diagnosis|cause"
    r"|answer)|present|fit(?=\W*(?:\Z|[.;]))|likely|probable|possible|confirmed|correct|true|believe|think|(?:what )?(?:you|he|she|they|it)? ?"
    r"(?:have|has))\b(?! (?:only|just|to\b))))"
    r"|\W*(?:(?:已|已经|可|可以|予以|目前|暂|并)*(?:排除|除外|不考虑|不支持|不成立|不是|没有|可能性(?:小|不大|低)))",
    re.IGNORECASE,
)
# the same, wherever it stands behind a name
_RETRACTED = re.compile(
    r"\b(?:ddx|differentials?)\b|(?:\A|[.;!?,\n–—-])\W*(?:or not\b|(?:oh |actually,? )?no,? (?:wait|sorry)|wait\W*\Z|scratch (?:this|that|it)|(?:just|only) (?:kidding|joking)"
    r"|i(?: was|'m| am)?(?: just| only)? (?:kidding|joking|made (?:this|that|it) up)|(?:please )?(?:disregard|ignore|forget) (?:this|that|it)\W*\Z"
    r"|disregard\W*\Z|never ?mind\W*\Z|on second thoughts?|i (?:take|took) (?:this|that|it) back|i was wrong)",
    re.IGNORECASE,
)
_TAG = re.compile(r"</?[a-z]{1,6}>", re.IGNORECASE)
_ASIDE = re.compile(r"\s*[(\[（【]([^()\[\]（）【】]*)[)\]）】]")
_ALSO = re.compile(
    r"\A(?:also (?:known as|called|termed)|a\.?k\.?a\.?|i\.?e\.?|that is|formerly|or|known as|so-called"
    r"|previously|又称|简称|俗称|即)[,:\s]*",
    re.IGNORECASE,
)
_ALSO_INSIDE = re.compile(
    r",?\s+(?:(?:also|sometimes|commonly|often|better) (?:known as|called)|a\.?k\.?a\.?|i\.e\.|that is,?|otherwise known as"
    r"|or so-called|=)\s+|[,，]\s*(?:又称|简称|俗称|也叫|也称|即)",
    re.IGNORECASE,
)
_DISEASE_WORD = re.compile(
    r"(?:(?!(?:dia|pro)gnosis)[a-z]{2,}(?:itis|oma|omatosis|osis|iasis|emia|pathy|plegia|penia|trophy"
    r"|sclerosis|malacia|ectasis|ismus|thyroidism|philia|cytosis|myelia|dysplasia)"
    r"|cancer|stroke|infarction|hernia|asthma|diabete|diabetes|epilepsy|migraine|pneumonia|gout|lupu"
    r"|psoriasi|pox|measle|malaria|embolism|thrombosi|schizophrenia|depression|dementia)\Z"
)
# the same, if no article or adjective says that a disease named before is meant
_NOUN_WORDS = "disorder syndrome insufficiency deficiency tumor fracture palsy poisoning dystrophy stenosis atresia syncope abscess"
_SHORT = frozenset(["flu", "pe", "uti", "dvt", "ibs", "copd", "hiv"])  # and written small
_NOUNS = frozenset(_NOUN_WORDS.split())
_BEFORE_NOUNS = "the this that your a an of functional common medical chronic skin mental digestive gastrointestinal bowel genetic blood"
_ARTICLES = frozenset(_BEFORE_NOUNS.split())
_CHINESE_DISEASE = re.compile(
    r"[\u4e00-\u9fff](?:炎(?!症)|(?<![轻重急])症(?![状候])|(?<![个种类疾])病(?![情史程因房人变区理灶毒例原态菌])|癌|瘤|疹(?!子)|梗[死塞]|损伤)"
    r"|综合征|中毒|骨折|结石|感冒|栓塞|溃疡|结核|中风|卒中|麻痹|瘫|衰竭|休克|癣|疮|痔|疝|积液|梗阻|脱垂|穿孔|破裂|障碍|颤动|减退|亢进|功能不全"
)
_VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|had|may|might|could|should|would|appears?|seems?|suggests?|indicates?"
    r"|needs?|suffers?|suffering|experiencing|diagnosed|you|your|he|she|i (?:think|suspect|believe|would"
    r"|can))\b"
    r"|您|你|患者|孩子|宝宝",
    re.IGNORECASE,
)
LONGEST_TEXT = 600  # characters; a longer one is no name with an explanation
LONGEST_NAME = 14  # words; "Rupture of the flexor digitorum profundus tendon at its point of insertion" has 12


@dataclass(frozen=True)
class Reading:
    """One way to read a text as a name."""

    name: str
    asides: tuple[str, ...] = ()  # what stands in brackets behind it, or after "also known as"


@lru_cache(maxsize=65536)
def readings(text: str) -> tuple[Reading, ...]:
    """The names that a text may be read as, likeliest first: as it stands, and bare, with and without
    its brackets.
    """
    flat = " ".join(_TAG.sub(" ", unicodedata.normalize("NFKC", text)).split())
    if len(flat) > LONGEST_TEXT:
        return (Reading(flat),)
    bare = _bare(flat)
    outside = _ASIDE.sub("", bare).strip()
    asides = tuple(_bare(_ALSO.sub("", inside.strip())) for inside in _ASIDE.findall(bare))
    also = _ALSO_INSIDE.split(outside)
    found = [Reading(flat), Reading(bare)]
    if asides and outside:
        found.append(Reading(_bare(outside), asides))
    if len(also) > 1:
        found.append(Reading(_bare(also[0]), (*map(_bare, also[1:]), *asides)))
    return tuple(dict.fromkeys(found))


def _bare(text: str) -> str:
    """The text without further sentences, explanations, hedges and introductions."""
    text = _without_rest(text.strip(" \"'“”*_`"), _SENTENCE)
    before = ""
    while text != before:
        before = text
        for pattern in _TRAILS:
            text = _shorter(text, pattern.sub("", text))
        for pattern in _LEADS:
            found = pattern.match(text)
            cut = _shorter(text, text[found.end() :]) if found else text
            if cut != text and group_of(text) in (None, group_of(cut)):  # "severe pneumonia" is a name
                text = cut
        text = _without_rest(text, _EXPLANATION)
    return text


def _shorter(text: str, cut: str) -> str:
    """The cut text, if a word is left of it."""
    return cut.strip() if any(c.isalnum() for c in cut) else text


def _without_rest(text: str, boundary: re.Pattern[str]) -> str:
    """The text up to a boundary, if what follows names no disease and takes nothing back; as it is otherwise."""
    found = boundary.search(text)
    if found is None or not any(c.isalnum() for c in text[: found.start()]):
        return text
    rest = text[found.start() :]
    if takes_back(rest):
        return text
    return text[: found.start()] if _IDLE.match(rest) or not speaks_of_disease(rest) else text


def takes_back(rest: str) -> bool:
    """Whether what stands behind a name takes it back: ", which does not fit", ". No, wait"."""
    return bool(_TAKEN_BACK.match(rest) or _RETRACTED.search(rest))


def speaks_of_disease(text: str) -> bool:
    """Whether a text has the name of a disease in it: a bundled one, or a word with such an ending."""
    return bool(diseases_in(text))


@lru_cache(maxsize=65536)
def diseases_in(text: str) -> frozenset[int | None]:
    """The bundled groups whose names a text has in it; None stands for words with the ending of a disease, and for names
    that several groups have.
    """
    said = words(text)
    found = {group_of(name) for name in _bundled_chinese().findall(text)}
    short = [name for name in re.findall(r"[\w-]+", text) if is_abbreviation(name) and is_listed_short(name)]
    runs = [" ".join(said[i : i + n]) for n in range(1, 6) for i in range(len(said) - n + 1)]
    names = [*short, *(run for run in runs if (len(run) > 3 or run in _SHORT) and not _is_everyday(run, text))]
    found |= {group_of(name) for name in names if any(map(is_bundled, keys(name)))}
    if found - {None}:
        return frozenset(found)
    nouns = (word in _NOUNS and before not in _ARTICLES for before, word in zip(("", *said), said, strict=False))
    ends = any(_DISEASE_WORD.match(word) for word in said) or any(nouns) or _CHINESE_DISEASE.search(text)
    return frozenset(found | {None} if ends else found)


def _is_everyday(word: str, text: str) -> bool:
    """Whether an eponym that is an everyday word stands in a text in small letters."""
    return word in lexicon().surnames and not re.search(rf"\b{word.capitalize()}", text)


@lru_cache(maxsize=1)
def _bundled_chinese() -> re.Pattern[str]:
    """The bundled Chinese names, the longest first; 焦虑症状 are no 焦虑症."""
    return re.compile("(?:" + "|".join(sorted(chinese_names(), key=len, reverse=True)) + ")(?<!症(?=[状候]))")


def is_disease_word(word: str) -> bool:
    """Whether one word, in the form of `clinic.naming.words`, can stand for a disease alone."""
    return bool(_DISEASE_WORD.match(word))


def parts(name: str) -> tuple[str, ...]:
    """The names joined in one by "and", "with" or a comma; the name alone if it is one, or too long for a list."""
    if len(name) > LONGEST_TEXT:
        return (name,)
    found = [
        part.strip()
        for part in re.split(r"\s*(?:[,，、+&;]|\b(?:and|with|plus|along with|as well as)\b)\s*", name)
        if part.strip()
    ]
    return tuple(dict.fromkeys(_bare(part) for part in found)) if len(found) > 1 else (name,)


def is_sentence(diagnosis: str) -> bool:
    """Whether a truth is written as a sentence, and so is hard to match: it has a verb or addresses somebody, or has
    more words than a name.
    """
    return bool(_VERB.search(_ASIDE.sub("", diagnosis))) or len(diagnosis.split()) > LONGEST_NAME


def abbreviations(reading: Reading) -> Iterator[str]:
    """The asides that are abbreviations."""
    return (aside for aside in reading.asides if is_abbreviation(aside))
