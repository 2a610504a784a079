"""The fixed phrases of a consultation, in every language that it can be held in.

What a phrase says is the same in each; texts of cases and conditions come from the case set. Nothing here or elsewhere
in the clinic relies on spaces between words.
"""

import re
from dataclasses import dataclass
from types import MappingProxyType

from clinic.errors import ClinicError
from clinic.simplified import simplified

RULES_EN = """You are a doctor interviewing a patient. In each turn write exactly one of:
<answer>Question: one short question to the patient?</answer>
<answer>Search: words to look up in the medical knowledge base</answer>
<answer>Test: an examination or laboratory test to order</answer>
<answer>Diagnosis: the name of the one most likely condition
Recommendation: the next step for the patient
Evidence: ids of the library's passages that speak for it</answer>
The knowledge base answers with passages, each after its [id]; leave the evidence out if you looked nothing up.
You may think first inside <think>...</think>. Every reply ends with the number of turns you have left; the
diagnosis takes one too, and the last turn must be the diagnosis. Never repeat a question."""
RULES_ZH = """你是一名正在问诊的医生。每一轮只写下面其中一种：
<answer>问题：向病人提出的一个简短问题？</answer>
<answer>检索：要在医学知识库中查找的内容</answer>
<answer>检查：要开的体格检查或化验</answer>
<answer>诊断：最可能的一种疾病的名称
建议：病人下一步该怎么做
依据：支持诊断的知识库段落编号</answer>
知识库的回答是若干段落，每段前面是[编号]；没有检索过就不写依据。可以先在<think>……</think>中思考。病人每次回答后都会注明还剩几轮；诊断也占一轮，最后一轮必须给出诊断。不要重复提问。"""


@dataclass(frozen=True, kw_only=True)
class Phrases:
    """What doctor, patient and consultation say in one language; `{}` is filled in."""

    code: str
    short: str  # system prompt of a doctor that was trained on the grammar
    full: str  # system prompt that explains the grammar
    answer_questions: str  # system prompt of single-turn questions
    turns_left: str
    yes: str
    no: str
    bare_yes: str
    bare_no: str
    unknown: str
    withheld: str  # a reluctant patient's first answer
    that_illness: str  # in place of a diagnosis that a patient must not say
    worried: str
    rambling: str
    chart: str
    checklist: str
    space: str  # between words
    also: str  # between two complaints
    list_comma: str
    stop: str
    not_understood: str
    library: str  # around the lines of a search
    nothing_found: str
    no_library: str
    one_answer: str  # errors of the grammar, from here on
    begin_with: str
    empty: str
    one_question: str
    one_diagnosis: str
    question: str  # keywords as a doctor writes them
    search: str
    test: str
    diagnosis: str
    recommendation: str
    evidence: str

    @property
    def instructions(self) -> dict[str, str]:
        """System prompts by the name that `consultation.instructions` gives them."""
        return {"short": self.short, "full": self.full}


EN = Phrases(
    code="en",
    short="Ask the patient, then diagnose.",
    full=RULES_EN,
    answer_questions="Answer the medical question: correctly, completely and briefly.",
    turns_left="{} ({} left)",
    yes="Yes, {}.",
    no="No, {}.",
    bare_yes="Yes.",
    bare_no="No.",
    unknown="I don't know.",
    withheld="Why do you ask?",
    that_illness="that illness",
    worried="{} Is it serious?",
    rambling="Well, let me think. {} That is how it is, and I have been meaning to tell someone.",
    chart="Chart: {}.",
    checklist="Checklist.",
    space=" ",
    also=" and ",
    list_comma="; ",
    stop=".",
    not_understood="Not understood: {}.",
    library="Library <<\n{}\n>>",
    nothing_found="Nothing found.",
    no_library="There is no knowledge base here.",
    one_answer="write exactly one <answer>...</answer> and nothing after it",
    begin_with="begin the answer with Question:, Search:, Test: or Diagnosis:",
    empty="the {} is empty",
    one_question="ask exactly one question, with one question mark",
    one_diagnosis="give one diagnosis, on one short line",
    question="Question: ",
    search="Search: ",
    test="Test: ",
    diagnosis="Diagnosis: ",
    recommendation="Recommendation: ",
    evidence="Evidence: ",
)
ZH = Phrases(
    code="zh",
    short="先问病人，再下诊断。",
    full=RULES_ZH,
    answer_questions="请回答医学问题：准确、完整、简明。",
    turns_left="{}（还剩{}轮）",
    yes="是的，{}。",
    no="没有，{}。",
    bare_yes="是的。",
    bare_no="没有。",
    unknown="我不知道。",
    withheld="你为什么问这个？",
    that_illness="那个病",
    worried="{}会不会很严重？",
    rambling="嗯，让我想想。{}就是这样，我早就想找人说说了。",
    chart="病历：{}。",
    checklist="清单。",
    space="",
    also="，还有",
    list_comma="；",
    stop="。",
    not_understood="没有听懂：{}。",
    library="资料库<<\n{}\n>>",
    nothing_found="没有找到。",
    no_library="这里没有知识库。",
    one_answer="请只写一个<answer>……</answer>，后面不要再写别的",
    begin_with="回答要以“问题：”“检索：”“检查：”或“诊断：”开头",
    empty="{}是空的",
    one_question="一次只问一个问题，用一个问号",
    one_diagnosis="只写一个诊断，一行之内",
    question="问题：",
    search="检索：",
    test="检查：",
    diagnosis="诊断：",
    recommendation="建议：",
    evidence="依据：",
)
PHRASES = MappingProxyType({"en": EN, "zh": ZH})


_UNKNOWN = {
    "en": re.compile(
        r"\b(?:do not|don't|dont|wouldn't|couldn't) (?:really |actually )?(?:know|remember|recall)\b"
        r"|\bnot sure\b|\bno idea\b|\bcan(?:no|')?t (?:say|tell|remember)\b",
        re.IGNORECASE,
    ),
    "zh": re.compile(r"不知道|不清楚|不确定|记不清|没注意|说不上"),
}
_THINKING = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)


def says_unknown(text: str, language: str) -> bool:
    """Whether somebody says that they do not know."""
    return _UNKNOWN[language].search(simplified(text.replace("’", "'"))) is not None


def without_thinking(text: str) -> str:
    """What a model says after its thoughts."""
    return _THINKING.sub("", text)


def phrases(language: str) -> Phrases:
    """The phrases of a language.

    Raises:
        ClinicError: there are none.
    """
    if language not in PHRASES:
        raise ClinicError(f"language {language!r} is not spoken here; use one of: {', '.join(PHRASES)}")
    return PHRASES[language]
