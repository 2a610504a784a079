"""Patterns by which `clinic.answers` reads an answer: its marks, where its clauses end, how a name is introduced, what
denies another disease or takes one back. Words that can be listed are in `answer_words.yaml`.
"""

import re

from clinic.reading import SURE

FIELD = re.compile(  # of JSON, of a dictionary of Python
    r"\A\{\s*([\"'])(?:\w* ?_?diagnosis|诊断)\1\s*:\s*([\"'])((?:(?!\2).|(?<=\w)'(?=\w))+)\2"
    r"(?:\s*,\s*[\"'](?:confidence|probability|icd[-_ ]?\w*|code|置信度|概率|编码)[\"']\s*:\s*[\"']?[\w.%]+[\"']?)*\s*\}\Z",
    re.IGNORECASE,
)
BOXED = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
MARKS = re.compile(r"\*{1,3}|_{2,3}|`+|\$+|</?[a-z\u4e00-\u9fff]{1,12}>|<\|\w+\|>", re.IGNORECASE)
SQUARE = str.maketrans("[]【】", "()()")
DASH = r"\s[–—-]+>?\s|(?<!\w)[–—]+|[–—]+(?!\w)|[→⇒]+|->|=>"
BOUNDARY = re.compile(
    rf"\s*(?:[,;:!(，。；：！]|\.(?!\d)|{DASH})\s*"
    r"|\s+(?=(?:on the (?:left|right)|is what (?:i|you|we|this)|is (?:by far )?(?:the|my)"
    r"|(?:(?:can|could|would) )?(?:best )?(?:accounts? for|explains?|match(?:es)?|fits?)|w/|with|per|needing|requiring|needs|requires"
    r"|(?:in|of|on) (?:the |your |his |her )?(?:left|right|both)\b|(?:on|by|per) (?:\w+ )?(?:ct|mri|hrct|x-?ray|imaging|ultrasound|echo|biopsy|exam\w*)"
    r"|causing|producing|(?:strongly|highly) (?:suspected|likely)|it is|(?:is|seems|looks) (?:favou?red|preferred|(?:far |much )?more (?:likely|probable))"
    r"|based on|given|because|as evidenced|to be|supported by|and (?:i|you|we|needs?|requires?|should|must))\b)"
    r"|(?<=[\u4e00-\u9fff])(?=伴|(?:引起|所致|导致)(?:\W|\Z)|诊断明确|(?:能够?|可以?)解释|的?表现\Z)",
    re.IGNORECASE,
)
COLON = (
    "".join(
        rf"(?<!{noun})"
        for noun in ["confidence", "probability", "likelihood", "certainty", "chance", "odds", "度", "率", "性", "握"]
    )
    + "[:：]"
)
CLAUSE = re.compile(
    rf"\s(?:so|therefore|thus|hence)\s(?=(?:no|not|it|this)\b)|[,;!()，。；！]|{COLON}|(?<!\d)\.|\.(?!\d)|{DASH}"
)
# where an introduction may end and a name begin
INTRODUCED = re.compile(
    r"(?:\b(?:is|are|has|have|'ve|’ve|be|likely|probably|certainly|definitely|probable|suspected|called|namely|suggests?|indicates?"
    r"|supports?|confirms?|conclude|diagnose|arrived at|explained by|points? to|(?:the|an?)(?<! of a)|[a-z]\d\d(?:\.\d+)?"
    r"|so|therefore|thus|hence|favou?rs?|fits?|meets?|means?|spells?|shows?|reveals?|got|caught|(?:call|makes?) (?:it|this|that)|bet on"
    r"|with|of|for|(?:due|secondary) to|caused by|from)|[:=;.!]|\((?:[a-e]|诊断|结论)\)|\b[a-e][.)])\s+|[:=]\s*|\((?:诊断|结论)\)"
    r"|(?<=[\u4e00-\u9fff,，])(?:为|是|系|即|属于?|倾向于?|符合|考虑|出在|的|患|有|说明|提示|由)",
    re.IGNORECASE,
)
ASKED = re.compile(
    r"\W*(?:if|when|were|had|should|unless|once|in case|provided|assuming|suppos\w+"
    r"|is|are|do|does|did|can|would|will|what(?! (?:you|he|she|they|we|i)\b)"
    r"|have|has|could)\b|.*\b(?:my|their|his|her)\s(?:son|daughter|child|baby|boy|girl)\b|\W*i have\b"
)
# by which what stands before it speaks for what stands behind
CONCLUDES = re.compile(
    r"\b(?:is|are|means?|makes? (?:it|this|that)|fits?|match(?:es)?|suggests?|indicates?|supports?|confirms?|shows?|favou?rs?|points? to(?:wards?)?"
    r"|spells?|(?:pain|fever|cough|headache|symptoms|rash|swelling|vomiting)(?:,? (?:most )?(?:likely|probably))? (?:due|secondary) to"
    r"|(?:is|are) (?:all )?(?:due to|caused by|(?:best )?explained by)|(?:consistent|compatible|in keeping) with"
    r"|typical (?:of|for)|classic (?:of|for)"
    r"|characteristic of|suggestive of|indicative of|diagnostic of|therefore|hence|thus|so)\b",
    re.IGNORECASE,
)
CONCLUDES_CHINESE = re.compile(r"由|说明|提示|支持|考虑|诊断|符合|属于?|就是|是|为|所以|因此|故")
FEW = (
    r"(?:(?:an?|the|any|signs? of|evidence of|features? of)\s)*"
    r"(?!only\b|just\b|merely|simply|necessar|exclu|impossib|unlike|without|other\b|to\b)[\w'’-]+(?:\s[\w'’-]+){0,3}"
)
# a clause that denies one disease and says nothing else
DENIES = re.compile(
    r"\W*(?:(?:and |but |so |therefore |thus |hence |clearly |definitely |(?:(?:and |so )?(?:it|this) (?:is|was) ))?"
    rf"(?:not|no|without|rather than|instead of|negative for)\s{FEW}(?:\s(?:n?or|and)\s{FEW})?(?::.*)?"
    rf"|neither {FEW} nor {FEW}|nothing (?:\w+ )?(?:suggests|supports|points to) {FEW}(?:\s(?:n?or|and)\s{FEW})?"
    rf"|(?:so )?(?:it|this) (?:is|was)n[’']t\s{FEW}"
    rf"|(?:is|seems|looks) (?:favou?red|preferred|(?:far |much )?more (?:likely|probable)) (?:over|than)\s{FEW}"
    rf"|{FEW}\s(?:(?:is|was|has been|seems|already)\s)*(?:unlikely|less likely|excluded|ruled out))\W*",
    re.IGNORECASE,
)
DENIES_CHINESE = re.compile(
    r"\W*(?:(?:也|并|可|可以|已|已经|故|因此)*(?:不是|并非|而非|不支持|不考虑|不像|排除了?|没有|无|不伴|未见)"
    r"(?![疑论非不])[\u4e00-\u9fff]{1,10}?(?:证据)?"
    r"|[\u4e00-\u9fff]{1,10}?已?(?:经)?(?:排除|除外)(?![不]))\W*"
)
NEVER_DENIED = re.compile(
    r"是不是|要不是|有无|无论|无非|不无|不得不|不能不|[需先应要]排除|建议排除|[没未](?:有|能|完全)?(?:排除|除外)|没有排除|就是"
    r"|\b(?:doubt|question|less(?! likely)|far from|second|fully|yet|impossible|missed)\b"
)
NOT_BUT = re.compile(
    rf"(?:(?:it|this) is )?not {FEW},? but(?: rather)?\b|不是(?!不|只|因)[\u4e00-\u9fff]{{1,10}}?[，,]而?是(?!不)",
    re.IGNORECASE,
)
_LIKELY = r"(?:sure|confiden|certain|chance|probab|likel|odds|possib)"
_LOW = r"(?:[0-4]?\d(?:\.\d+)?|50)"
LESS_THAN_EVEN = re.compile(
    rf"(?:\A|[(,;:]|\s[–—-]|\b(?:about|around|only|maybe|perhaps|roughly|approximately|say|at|is)\b|[率度性握])\s*[~≈<>约]*\s*{_LOW} ?(?:%|percent)(?! ?[a-z])"
    rf"|(?<![\d.<>-]){_LOW} ?(?:%|percent) ?(?:{_LIKELY}|that|this|it\b|of\b|or\b|and\b|vs|[,;]? ?\d+ ?%)"
    rf"|(?<![\d.])0?\.[0-4]\d*\b(?! ?%)(?! ?(?!{_LIKELY})[a-z])|< ?\d+ ?%"
    r"|(?:\A|[(,;:]\s*|(?:confidence|chance|probability|likelihood|odds)\W*)(?!(?:[6-9]|10) ?/ ?10\b)\d{1,3} ?/ ?\d+\W*(?:\Z|[,;)])"
    r"|\d (?:in|of|out of) (?:a )?\d|\b\d+:\d+"
    r"|(?:confidence|chance|probability|likelihood|概率|把握|置信度)\W*(?:[0-4]?\d|50|one|two|three|four|zero|[一二三四零])(?![\d.%]| ?/)|[一二三四五]成|一半"
)
# a finding that is not there, which denies no disease: "no hives", "hCG negative", "未见异常"
ABSENT = re.compile(
    r"\b(?:no|without)\s(?!(?:such|way|longer|doubt|idea|clue|evidence|good|real|one|more|it|this|that)\b)[a-z-]{3,}"
    r"(?: [a-z-]+)?(?: (?:n?or|and) [a-z-]+(?: [a-z-]+)?)?"
    r"|\b(?!(?:tests?|results?|everything|all|back|exams?|examination|work-?up|investigations?|studies|findings?)\b)"
    r"[\w-]{2,} (?:is |are |was |were |both |all )*(?:negative|normal|absent)\b"
)
ABSENT_CHINESE = re.compile(
    r"(?:无|未见|未及|没有|否认)(?![疑法误错关论不此这该])(?:明显)?[\u4e00-\u9fff]{1,6}|[\w\u4e00-\u9fff]{2,}阴性"
)
NO_LIST = re.compile(rf"\s*(?:[(:（：]|{DASH})")
MEASURED = re.compile(r"\d|[+↑↓±<>=]|\b-ve\b")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
STRUCK = re.compile(r"~~.*?~~|<(del|s|strike)>.*?</\1>", re.IGNORECASE)
CROSSED = re.compile(r"[❌✗✘✖❎⛔🚫🛑👎🤷❓¬≠]|!=|(?:\A|\s)[!~]\w")
CUT = re.compile(r"[;:!?。；：！？]|\.(?!\d)|\A\W*(?:\d+[.)、]|[a-eA-E][.)])")
HEADING = re.compile(r"diagnos|answer|impression|诊断|结论", re.IGNORECASE)
OR = re.compile(r"\A\W*or\b", re.IGNORECASE)
ARTICLE = re.compile(r"\b(?:an?|the)\b", re.IGNORECASE)
UNSETTLED = re.compile(r"\?|\A\{")
RELATIVE = re.compile(r"\W*(?:which|that|who|as in|as with|any of|perhaps|maybe|not|(?:it )?(?:could|might|may) be)\b")
SEMICOLON = re.compile(r"\s*[;；]")
MODAL = re.compile(
    r"\b(?:cannot|can|may|could|might|should) (?:be (?!ruled|excluded|another|something|anything|other)|also|lead|cause|spread|get|make)"
)
HEDGE = re.compile(SURE, re.IGNORECASE)
INVISIBLE = "\ufe0f\u200d"  # they join pictures
