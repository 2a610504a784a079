"""The language-model patient: a model plays the case from its record and the dialogue so far.

Examinations and tests are answered from the record, as by the scripted patient: a patient does not know their results.
Which fact an answer tells is the one that the question asks for, so events look the same whoever plays. What the model
says is neither trusted (the leak filter stands between it and the doctor) nor taken for the record
(`clinic.patients.fidelity` measures how true to it a run's patients were).
"""

import re
from collections.abc import Sequence

from clinic.cases import Case, Fact
from clinic.errors import ClinicError
from clinic.language import EN, says_unknown, without_thinking
from clinic.matching import Embed
from clinic.patients.base import Answer, Generate, Matcher, clauses, question_matcher, statement_matcher
from clinic.patients.scripted import ScriptedPatient
from clinic.understanding.comparison import Compare

PROMPT_VERSION = "patient-1"
TRIES = 2
LONGEST_REPLY = 600  # characters
# of one name, with or without attributes: a remark of several words in such brackets, as records have them, is none
_TAG = re.compile(
    r"</?\s*(?:think|answer)\b|<[|｜][^<>]*>|</?[^\W\d][\w.:-]*(?:\s[^<>]*=[^<>]*)?\s*[/|]?>", re.IGNORECASE
)
PROMPT_EN = """You play a patient in a consultation. Answer the doctor's last question in one or two short sentences, in your own everyday words.
You know only what stands below. If the question asks for something that is not there, say that you do not know. Do not tell what was not asked.
Never name or guess a diagnosis, not even if the doctor does. You are no doctor: do not ask medical questions, give no advice, write no tags.
Your manner: {manner}
You came because of this: {report}
What is true of you:
{facts}"""
PROMPT_ZH = """你在一次问诊中扮演病人。用自己的日常说法，用一两句短话回答医生最后的问题。
你只知道下面写的内容。问到没有写的事情，就说不知道。没有问到的不要说。
绝不说出或猜测诊断，医生说了也不要附和。你不是医生：不要反问医学问题，不要给建议，不要写标签。
你的态度：{manner}
你来看病的原因：{report}
你的情况：
{facts}"""
PROMPTS = {"en": PROMPT_EN, "zh": PROMPT_ZH}
MANNERS = {
    "en": {
        "plain": "calm and to the point.",
        "terse": "you say as little as possible.",
        "talkative": "you like to talk, but stay with the question.",
        "worried": "you are afraid that it is serious.",
        "reluctant": "you do not like to speak about yourself and need to be asked twice.",
    },
    "zh": {
        "plain": "平静，直接回答。",
        "terse": "话越少越好。",
        "talkative": "爱说话，但不离开问题。",
        "worried": "担心病情严重。",
        "reluctant": "不愿谈自己，要问两遍才说。",
    },
}


class PatientError(ClinicError):
    """The model that plays the patient gave no usable reply; the episode fails, the run goes on."""


class LanguageModelPatient:
    """Plays one case through a language model."""

    def __init__(
        self,
        case: Case,
        matcher: Matcher | None,
        generate: Generate,
        embed: Embed | None = None,
        compare: Compare | None = None,
    ) -> None:
        """Args: the case; a matcher of questions to its topics (None: its own facts, with sentence embeddings if they are
        given, and a cross-encoder beside them); the model.
        """
        self._record = ScriptedPatient(case, matcher)
        self._facts = {fact.topic: fact for fact in case.facts}
        self._match = matcher or question_matcher(case, embed, compare)
        self._match_statement = matcher or statement_matcher(case)
        self._generate = generate
        self._language = case.language
        self._messages = [{"role": "system", "content": system_prompt(case)}]

    async def answer(self, question: str) -> Answer:
        """Ask the model.

        Raises:
            PatientError: its replies cannot be used. Or what `generate` raises.
        """
        messages = asked = [*self._messages, {"role": "user", "content": question}]
        for _ in range(TRIES):
            said = " ".join(without_thinking(await self._generate(messages)).split())
            if usable(said):
                break
            messages = [*asked, {"role": "assistant", "content": said}, {"role": "user", "content": question}]
        else:
            raise PatientError(
                f"the patient's model answered {said[:80]!r}, which is no reply; use a stronger model or raise its max_tokens"
            )
        self._messages = [*asked, {"role": "assistant", "content": said}]
        fact = self._told(question, said)
        return Answer(said, fact.topic if fact else None, fact.present if fact else None)

    def _told(self, question: str, said: str) -> Fact | None:
        """The fact that was asked for, if it is on record; none where the model says that it does not know and does not
        tell it all the same.
        """
        topic = self._match(question)
        if topic is None or (
            says_unknown(said, self._language)
            and not any(self._match_statement(clause) == topic for clause in clauses(said))
        ):
            return None
        return self._facts.get(topic)

    async def examine(self, test: str) -> Sequence[Answer]:
        """The results on record."""
        return await self._record.examine(test)


def system_prompt(case: Case) -> str:
    """What the model is told: manner, self-report and facts, without the diagnosis."""
    language = case.language if case.language in PROMPTS else EN.code
    facts = "\n".join(f"- {fact.text}" for fact in case.facts)
    return PROMPTS[language].format(manner=MANNERS[language][case.persona], report=case.self_report, facts=facts)


def usable(reply: str) -> bool:
    """Whether a text can be a patient's words: not empty or endless, mostly letters and digits, valid Unicode, no tag
    (a result "< 2 seconds" is none).
    """
    if any("\ud800" <= character <= "\udfff" for character in reply):
        return False
    letters = sum(character.isalnum() for character in reply)
    return (
        bool(letters)
        and len(reply) <= LONGEST_REPLY
        and letters >= 0.5 * len(reply.replace(" ", ""))
        and not _TAG.search(reply)
    )
