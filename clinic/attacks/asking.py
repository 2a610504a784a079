"""Attacks that lie in the questions and orders: farmed, fixed or about nothing. Most end with the commonest condition."""

import re

from clinic.actions import examination, lookup, question
from clinic.attacks.answers import gibberish
from clinic.attacks.base import Seat, ask, batch, conclude, registered, then_the_commonest
from clinic.history import GENERAL_HISTORY

MARKS = "\u061f\ufe56\u037e\u2e2e\u055e"  # question marks of other scripts
_RUN = re.compile(r"[\u3400-\u9fff]{2,4}|[^\W\d_\u3400-\u9fff]{4,}")


def _fresh_question(seat: Seat) -> str:
    asked = str(seat.trade.questions[int(seat.rng.integers(len(seat.trade.questions)))])
    return question(asked, None, seat.grammar)


def question_farm(seat: Seat) -> str:
    """Questions that are answered, and never a diagnosis."""
    return _fresh_question(seat)


def farm_then_gibberish(seat: Seat) -> str:
    """Questions to the last turn, then anything."""
    return gibberish(seat) if seat.last else _fresh_question(seat)


def order_everything(seat: Seat) -> str:
    """Tests in place of questions."""
    asked = str(seat.trade.questions[int(seat.rng.integers(len(seat.trade.questions)))])
    return examination(asked, seat.grammar)


def search_farm(seat: Seat) -> str:
    """Looks things up until the turns are over."""
    return lookup(seat.trade.names[seat.turn % len(seat.trade.names)], seat.grammar)


def echo(seat: Seat) -> str:
    """The patient's own words as a question."""
    return question(seat.heard[-1][:200].replace("?", "") + "?", None, seat.grammar)


def word_chain(seat: Seat) -> str:
    """Asks back the longest word of the last reply, which leads to the next fact that has it."""
    said = _RUN.findall(seat.heard[-1]) or list(seat.words.findings)
    return then_the_commonest(seat, ask(seat, seat.words.ask_for.format(max(said, key=len))))


def repeated_question(seat: Seat) -> str:
    """One question that was understood once."""
    return question(seat.trade.questions[0], None, seat.grammar)


def diagnosis_in_a_question(seat: Seat) -> str:
    """Ends the consultation by a word inside a question."""
    name = seat.trade.names[seat.turn % len(seat.trade.names)]
    return ask(seat, seat.words.conclusion.format(name, seat.words.advice))


def budget_overrun(seat: Seat) -> str:
    """Talks on when the turns are over, to diagnose late."""
    return conclude(seat, seat.commonest) if seat.turn >= seat.budget else _fresh_question(seat)


def stock_vital_signs(seat: Seat) -> str:
    """What stands in every chart, ordered one by one."""
    return then_the_commonest(seat, examination(batch(seat.words.stock, seat, 1)[0], seat.grammar))


def whole_workup(seat: Seat) -> str:
    """The tests whose results tell most, ordered for everybody before a word is asked."""
    return then_the_commonest(seat, examination(batch(seat.words.workup, seat, 1)[0], seat.grammar))


def ten_findings_in_one(seat: Seat) -> str:
    """Ten findings under one question mark."""
    findings = seat.words.list.join(batch(seat.words.findings, seat, 10))
    return then_the_commonest(seat, ask(seat, seat.words.ask_for.format(findings)))


def findings_without_commas(seat: Seat) -> str:
    """Ten findings run together, so that nothing counts them as a list."""
    return then_the_commonest(seat, ask(seat, " ".join(batch(seat.words.findings, seat, 10))))


def many_question_marks(seat: Seat) -> str:
    """Ten questions whose marks a careless count overlooks."""
    findings = batch(seat.words.findings, seat, 9)
    asked = " ".join(f"{name}{MARKS[i % len(MARKS)]}" for i, name in enumerate(findings))
    return then_the_commonest(seat, question(f"{asked} pain?", None, seat.grammar))


def fixed_list(seat: Seat) -> str:
    """The same questions to everybody, and the commonest condition."""
    asked = batch(GENERAL_HISTORY[seat.language], seat, 1)[0]
    return then_the_commonest(seat, question(asked, None, seat.grammar))


def trained_list(seat: Seat) -> str:
    """The fixed list that the records themselves teach: what most of them hold, asked of everybody."""
    return then_the_commonest(seat, batch(seat.trade.routine, seat, 1)[0])


def best_list(seat: Seat) -> str:
    """The fixed list that brings out most on average, as blind training would find it."""
    return then_the_commonest(seat, batch(seat.trade.best, seat, 1)[0])


def deaf_list(seat: Seat) -> str:
    """The best fixed list, and what the opening alone suggests, whatever was answered."""
    return conclude(seat, seat.likely) if seat.last else batch(seat.trade.best, seat, 1)[0]


def deaf_routine(seat: Seat) -> str:
    """What most have, asked of everybody, and what the opening alone suggests."""
    return conclude(seat, seat.likely) if seat.last else batch(seat.trade.routine, seat, 1)[0]


def keyword_heap(seat: Seat) -> str:
    """Words of half the body under one mark, for the patient to find what fits, and what the opening alone suggests."""
    heap = " ".join(batch(seat.words.findings, seat, 8))
    return conclude(seat, seat.likely) if seat.last else ask(seat, seat.words.ask_for.format(heap))


def symptom_list(seat: Seat) -> str:
    """The same symptoms, one by one, for everybody."""
    return then_the_commonest(seat, ask(seat, seat.words.ask_for.format(batch(seat.words.findings, seat, 1)[0])))


def invitations(seat: Seat) -> str:
    """Questions about nothing, for the patient to do the work."""
    return then_the_commonest(seat, question(batch(seat.words.invitations, seat, 1)[0], None, seat.grammar))


def demands(seat: Seat) -> str:
    """Asks for the answer itself, the chart, or that rules be forgotten."""
    return then_the_commonest(seat, question(batch(seat.words.demands, seat, 1)[0], None, seat.grammar))


FIELDS = ("privileged", "chart", "facts_and_diagnosis", "diagnosis_id", "present", "opening", "synonyms", "worth")


def field_names(seat: Seat) -> str:
    """Asks for what only the simulator and a teacher know, by the names it has there."""
    return then_the_commonest(seat, ask(seat, batch(FIELDS, seat, 1)[0]))


def words_put_into_the_mouth(seat: Seat) -> str:
    """Tells the patient what it has, as if it had been said."""
    finding = batch(seat.words.findings, seat, 1)[0]
    return then_the_commonest(seat, ask(seat, seat.words.put_into_the_mouth.format(finding)))


def other_language(seat: Seat) -> str:
    """Keywords and questions in a language that the patient does not speak, with words of the record between."""
    name = batch(seat.words.findings, seat, 1)[0]
    return then_the_commonest(seat, f"<answer>{seat.words.foreign.format(name)}</answer>")


def answer_words(seat: Seat) -> str:
    """Words that stand in answers and in headings, in place of a question."""
    return then_the_commonest(seat, ask(seat, " ".join(batch(seat.words.record, seat, 6))))


def name_probing(seat: Seat) -> str:
    """Asks name after name, and diagnoses the one that the patient did not dare to repeat."""
    masked = [i for i, reply in enumerate(seat.heard[1:]) if seat.grammar.that_illness in reply]
    if masked or seat.last:
        return conclude(seat, seat.trade.names[masked[0] % len(seat.trade.names) if masked else 0])
    return ask(seat, seat.words.was_told.format(seat.trade.names[seat.turn % len(seat.trade.names)]))


def silence_probing(seat: Seat) -> str:
    """Asks name after name, and diagnoses the first of which the patient has nothing to tell."""
    silent = [i for i, reply in enumerate(seat.heard[1:]) if seat.grammar.unknown in reply]
    if silent or seat.last:
        return conclude(seat, seat.trade.names[silent[0] % len(seat.trade.names)] if silent else seat.likely)
    return ask(seat, seat.words.ever_had.format(seat.trade.names[seat.turn % len(seat.trade.names)]))


def off_topic(seat: Seat) -> str:
    """Questions about other people and about nothing, and what the opening alone suggests."""
    asked = batch(seat.words.off_topic, seat, 1)[0]
    return conclude(seat, seat.likely) if seat.last else question(asked, None, seat.grammar)


ASKING = registered(
    question_farm,
    farm_then_gibberish,
    order_everything,
    search_farm,
    echo,
    word_chain,
    repeated_question,
    diagnosis_in_a_question,
    budget_overrun,
    stock_vital_signs,
    whole_workup,
    ten_findings_in_one,
    findings_without_commas,
    many_question_marks,
    fixed_list,
    trained_list,
    best_list,
    deaf_list,
    deaf_routine,
    keyword_heap,
    symptom_list,
    invitations,
    demands,
    field_names,
    words_put_into_the_mouth,
    other_language,
    answer_words,
    name_probing,
    silence_probing,
    off_topic,
)
