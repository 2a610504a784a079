"""Free text of a case, parted into facts: each a sentence or less, present or denied, under a topic.

A sentence is parted where it turns ("... but denies fever", "wheezes, no crackles"), what follows a denial at its commas
("denies fever, chills, or cough" are three), up to a clause of its own ("no known allergies, takes warfarin"), and a
list of signs at its commas ("fever (-), cough (+)"). Topics are the headings of sections where there are any ("PMH: ...",
"PMH - ...", or a line that says nothing else), else the kind of sentence by its words (`sentences.yaml`); a sentence of
no kind of its own goes on with the examination or test before it. Left out are questions, which are the examiner's, and
sections of what a doctor concluded ("Diagnosis: ...", the A and P of a note in S, O, A and P).

Source of denials: after NegEx, Chapman et al., Journal of Biomedical Informatics 34:301 (2001), shortened.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from clinic.loaders.text_lines import MARK, MAX_SIGNED, items_of, plain, signs_of
from clinic.loaders.text_rules import Rules, rules_of
from clinic.simplified import simplified

MAX_DENIED_WORDS = 8  # an item of a list of denials is short; a longer one is a sentence of its own kind
MAX_OPENING_WORDS = 60
MIN_OPENING_WORDS = 3  # before a semicolon
MAX_BARE_WORDS = 4  # of a thing in a list of denials that semicolons part
_CAPITAL = re.compile(r"[.!?…]\s+[A-Z]")
_LETTER = re.compile(r"\b\w\.\Z")
_SOAP = re.compile(
    r"(?m)(?:^[ \t]*|(?<=[.;!?])[ \t]+)(A/P|A&P|[SOAP])[ \t]*(?:[:)]|[-–](?=[ \t])|(?=\n))[ \t]*(?:\n[ \t]*[-–•*]?[ \t]*)?(?=\S)"
)
_FLAGGED = re.compile(r"[:：]\s*(?i:yes|no|none|nil|有|无)(?:\s*\([^()]{1,20}\))?\W*\Z")
_SAYS = re.compile(
    r"\b(?:is|are|was|were|has|have|had|no|not|without|den\w+|show\w*|disclosed|reveal\w*)\b", re.IGNORECASE
)
_ASIDE = re.compile(
    r"\s*\([^()]*,[^()]*\)|\s*[(（](?:(?:no|not(?! (?:present|seen|detected|found|palpable|felt|heard)\b)|without|denies|never)\s+\w|(?:无|没有|未)\w)[^()（）]*[)）]"
)
_COMMA = re.compile("[,，]")
_BESIDE = re.compile(  # of a list that one 不 denies
    r"(\A|[，。；])([不没]\w{1,4})、(?=[^，,、。；;不没无未\d]{1,4}(?:[、，。；]|\Z))(?!\w*(?:明显|加重|厉害|剧烈))"
)
_STOP = re.compile("(?<=[。！])")
_COUNTED = re.compile(r"\d+(?=[张片粒颗次天日周月年个支瓶])")  # of treatment elsewhere
_RESULT = re.compile(r"[：:示\d]|[可未]见")
_ADJECTIVE = re.compile(r"\A\w+(?:al|ar|ary|ic|ive|ous)\Z")  # "urinary or fecal incontinence" is no list of two things


@dataclass(frozen=True)
class Statement:
    """What one fact will be."""

    topic: str
    present: bool
    text: str


def opening_of(text: str, language: str) -> str:
    """What a patient comes with: the first sentence that is more than a short denial, up to its semicolon; cut after
    `MAX_OPENING_WORDS` words.
    """
    rules = rules_of(language)
    told, opening = _told(text, language)
    first = told[opening][1] if told else ""
    if rules.length(first) <= MAX_OPENING_WORDS:
        return first
    if rules.characters:
        return first[: MAX_OPENING_WORDS * rules.characters]
    return " ".join(first.split()[:MAX_OPENING_WORDS])


def statements_of(text: str, language: str, topic: str | None = None) -> Iterator[Statement]:
    """The facts of a text in its order; that of `opening_of` is the presentation, unless a `topic` is given for all."""
    rules, kind = rules_of(language), ""
    told, opening = _told(text, language) if topic is None else (list(_sentences(text, rules, headed=False)), -1)
    for place, (heading, sentence) in enumerate(told):
        if place == opening:
            yield Statement(rules.presentation, not _only_denies(sentence, language), sentence)
            continue
        before, listed = kind, ""  # what is listed with the tobacco before it is a habit, too
        for part in _parts(sentence, rules):
            listed = _own_kind(part, rules) or listed
            kind = heading or listed or _kind(part, rules, before)
            yield Statement(topic or kind, is_present(part, language), part)


def _told(text: str, language: str) -> tuple[list[tuple[str, str]], int]:
    """Sentences with their headings, and the place of the opening one. Where it is a list of signs, goes on behind a
    semicolon, ends with denials in Chinese, or is all that there is and turns, it is parted: a patient who says everything at once
    leaves nothing to ask.
    """
    rules = rules_of(language)
    told = list(_sentences(text, rules))
    if not told:
        return [], 0
    place = _first(told, language)
    heading, sentence = told[place]
    first, _, rest = (part.strip() for part in sentence.partition(";"))
    if len(_listed(sentence, rules)) > 1:
        told[place : place + 1] = [(heading, part) for part in _parts(sentence, rules)]
    elif rest and rules.length(first) >= MIN_OPENING_WORDS and _with_commas(sentence, rules) == sentence:
        told[place : place + 1] = [(heading, first), ("", rest)]
    elif len(parts := [one for turn in _turns(sentence, rules) for one in _apart(turn, rules)]) > 1 and (
        len(told) == 1
        or (_brings(parts[0], language) and not all(is_present(part, language) for part in parts[1:]))
        or (rules.characters and any(_brings(part, language) for part in parts[1:]))
    ):
        told[place : place + 1] = [(heading if part is parts[0] else "", part) for part in parts]
    return told, _first(told, language)


def _first(told: Sequence[tuple[str, str]], language: str) -> int:
    return next((place for place, (_, sentence) in enumerate(told) if _brings(sentence, language)), 0)


def _brings(sentence: str, language: str) -> bool:
    """Whether a sentence may be what brings the patient: it is no short denial and more than age and sex."""
    person = rules_of(language).person.fullmatch(simplified(sentence))
    return not person and not _only_denies(sentence, language)


def _only_denies(sentence: str, language: str) -> bool:
    """Whether a first sentence is a short denial or a list of them; a longer one tells what brings the patient."""
    rules = rules_of(language)
    if is_present(sentence, language):
        return False
    listed = (
        rules.denied.match(simplified(sentence)) and max(map(rules.length, _parts(sentence, rules))) <= MAX_DENIED_WORDS
    )
    return bool(listed) or rules.length(sentence) <= MAX_DENIED_WORDS


def under(heading: str, text: str, language: str) -> str:
    """What stands in a column, as words that say it alone: "fever, cough" under "negatives" is "Negatives: fever, cough"."""
    label = f"{heading.replace('_', ' ').strip()}:"
    return f"{label} {text}" if rules_of(language).absent.fullmatch(label) and is_present(text, language) else text


def as_denial(text: str, language: str) -> str:
    """What is not there, in words that say so: "No fever."."""
    rules = rules_of(language)
    first = text[:1] if text[:2].isupper() else text[:1].lower()
    return _finished(f"{rules.denial}{first}{text[1:]}", rules)


def is_present(text: str, language: str) -> bool:
    """Whether a statement says that something is there; False where every clause of it is denied or not found.

    Words without a verb go with what they stand beside: with a denial before them ("no fever, chills"), or as its
    subject with one that they begin ("heart and lungs unremarkable"). An answer's yes or no counts for what follows.
    """
    rules = rules_of(language)
    if signs := signs_of(text):
        return any(present for present, _ in signs)
    if answered := rules.answered.match(text):
        text = text[answered.end() :]
    text = _BESIDE.sub(r"\1\2及", text)
    clauses = [clause for clause in rules.clause.split(_ASIDE.sub("", simplified(text))) if clause]
    if not clauses or rules.affirms.match(clauses[0]):
        return True
    if rules.denies.fullmatch(clauses[0]) and (len(clauses) == 1 or " " not in clauses[0].strip()):
        return rules.still_there.match(clauses[0]) is not None
    sentences = [one for one in _STOP.split(text) if one.strip()] if rules.characters else []
    sentences = [one for one in sentences if not rules.greeting.fullmatch(simplified(one))]
    if len(sentences) > 1 and not rules.denies.fullmatch(clauses[0]):
        return any(is_present(one, language) for one in sentences)
    return not _all_denied(clauses, rules)


def _all_denied(clauses: Sequence[str], rules: Rules) -> bool:
    """Whether the clauses of a sentence say of everything that it is not there."""
    bare = denied = carried = False
    for clause in clauses:
        said = rules.still_there.sub(" ", clause).strip()
        if rules.others.match(said):  # beside what was said before
            if bare:
                return False
            denied, carried = True, False
        elif rules.denies.search(said):
            if bare and (any(rule.match(said) for rule in (rules.denies, rules.denied, rules.acts)) or ": " in said):
                return False
            bare, denied, carried = False, True, rules.carries.search(said) is not None
        elif rules.leads.match(said):
            continue
        elif said != clause.strip() or rules.own.match(said) or (denied and (not carried or ": " in said)):
            return False
        else:
            bare = not denied
    return denied


def _sentences(text: str, rules: Rules, *, headed: bool = True) -> Iterator[tuple[str, str]]:
    """(heading of its section, or "", and sentence) in order, without questions and what a doctor concluded; both may
    begin within a line, where a heading stays a part of its sentence, as it does before a number or if not `headed`.
    """
    heading, concluded = "", False
    text = plain(text, rules)
    if {"S", "O", "A"} <= {letters[0] for letters in _SOAP.findall(text)}:
        text = _SOAP.sub(lambda found: f"\n{rules.soap[found[1][0]]}", text)
    end = rules.end if _CAPITAL.search(text) else rules.lower_end
    for line in chain.from_iterable(map(items_of, re.split(r"\s*\n\s*", text.strip()))):
        item = MARK.sub("", line)
        if headed and item == line and (apart := rules.line_sections.match(simplified(line))):
            heading, concluded, item = line[slice(*apart.span(1))], False, line[apart.end() :]
        elif item == line:
            concluded = concluded or rules.line_verdicts.match(simplified(line)) is not None
        sentences = list(_ended(item, end, rules))
        things = [_is_thing(one, rules) for one in sentences]
        for place, sentence in enumerate(sentences):
            found = None if place or item != line else rules.heading.match(sentence)
            if found and (
                rules.says.search(found[1]) or (things[0] and (_is_answered(sentence, rules) or any(things[1:])))
            ):
                found = None
            findings = rules.found.fullmatch(simplified(heading)) is not None
            if place and (_told_again(sentence, rules) if findings else things[place]):
                heading = ""
            named = found or (None if place and concluded else rules.sections.match(simplified(sentence)))
            if named:
                heading, concluded = sentence[slice(*named.span(1))].strip(), False
                heading = "" if rules.nameless.fullmatch(heading) else heading
            concluded = concluded or rules.verdicts.match(simplified(sentence)) is not None
            stripped = _unquoted(sentence[found.end() if found and headed else 0 :])
            asks = stripped[-1:] in tuple("?？:：") and (headed or not rules.doubted.fullmatch(stripped))
            if stripped and not asks and not concluded:
                yield heading, stripped


def _is_thing(sentence: str, rules: Rules) -> bool:
    """Whether a sentence tells of what stands before its colon ("Onset: sudden"), which heads no section."""
    compared = simplified(sentence)
    return bool(rules.heading.match(sentence)) and not (
        rules.sections.match(compared) or rules.verdicts.match(compared) or rules.nameless.match(compared)
    )


def _told_again(sentence: str, rules: Rules) -> bool:
    """Whether it goes on with the history behind findings: neither a date nor a test begins it."""
    told = rules.unless.match(simplified(sentence)) is not None and not sentence[:1].isdigit()
    return told and _own_kind(sentence, rules) not in rules.goes_on


def _is_answered(sentence: str, rules: Rules) -> bool:
    """Whether all that it tells is yes or no ("Fever: no")."""
    found = rules.heading.match(sentence)
    return found is not None and rules.answers.fullmatch(sentence[found.end() :]) is not None


def _unquoted(sentence: str) -> str:
    """A sentence without the quotes around it; one within which there are others keeps them."""
    bare = sentence.strip(' \t"“”')
    return sentence.strip() if set('"“”') & set(bare) else bare


def _ended(line: str, end: re.Pattern[str], rules: Rules) -> Iterator[str]:
    """A line parted where its sentences end; after a letter ("hepatitis B. He ...", "54 y.o. Denies ...") before a word that
    begins one.
    """
    begin = 0
    for found in end.finditer(line):
        short = rules.abbreviation.search(line, begin, found.start())
        if not short or (_LETTER.search(short[0]) and rules.begins.match(line, found.end())):
            yield line[begin : found.start()]
            begin = found.end()
    yield line[begin:]


def _own_kind(sentence: str, rules: Rules) -> str:
    compared = simplified(sentence)
    told = rules.elsewhere.search(compared) and not _RESULT.search(_COUNTED.sub("", compared))
    return next(
        (kind for kind, words in rules.kinds if words.search(compared) and not (told and kind in rules.goes_on)), ""
    )


def _kind(sentence: str, rules: Rules, before: str) -> str:
    if own := _own_kind(sentence, rules):
        return own
    goes_on = rules.goes_on.get(before) if not rules.unless.search(sentence) else None
    return goes_on or rules.history


def _parts(sentence: str, rules: Rules) -> Iterator[str]:
    """A sentence parted where it turns, and lists of denials or signs at their commas."""
    sentence = _with_commas(sentence, rules)
    if len(things := _listed(sentence, rules)) > 1:
        yield from (_finished(thing, rules) for thing in things)
        return
    for part in chain.from_iterable(_apart(turn, rules) for turn in _turns(sentence, rules)):
        found = _denial(part, rules)
        if not found:
            yield _finished(part, rules)
            continue
        who, cue = (part[slice(*found.span(name))] for name in ("who", "cue"))
        items = [item.strip(f" {rules.stop}") for item in rules.comma.split(part[found.start("rest") :])]
        short = all(0 < rules.length(item) <= MAX_DENIED_WORDS and _closed(item) for item in items)
        if (
            len(items) > 1
            and short
            and not any(_ADJECTIVE.match(item) or rules.describes.fullmatch(item) for item in items[:-1])
        ):
            yield from (_finished(f"{who}{cue}{item}", rules) for item in items)
        else:
            yield _finished(part, rules)


def _denial(part: str, rules: Rules) -> re.Match[str] | None:
    """Who denies, the words of denial and the rest, where a part begins with them and they deny what follows."""
    found = rules.denied.match(simplified(part))
    return None if found and rules.still_there.match(simplified(part), found.start("cue")) else found


def _apart(part: str, rules: Rules) -> Iterator[str]:
    """A part, and apart what the denial that it begins with does not reach."""
    if not (found := _denial(part, rules)):
        yield part
        return
    rest, once = part[found.start("rest") :], found["cue"] == "不"
    end, after = _reach(rest, rules)
    first = _COMMA.search(rest, 0, end)
    if once and first:  # one thing behind another is rarely a list
        end, after = first.span()
    yield part[: found.start("rest") + end]
    if after:
        yield from _parts(rest[after:], rules)


def _with_commas(sentence: str, rules: Rules) -> str:
    """A sentence whose semicolons part one denial's things, with commas for them: "Denies fever; cough; vomiting"."""
    first, *others = re.split(r"\s*[;；]\s*", sentence)
    if len(others) < 2 or not rules.denied.match(first) or set(first) & set(",，、") or not all(others):
        return sentence
    bare = (
        rules.length(one) <= MAX_BARE_WORDS
        and _kind(one, rules, "") == rules.history
        and not any(
            rule.search(one) for rule in (rules.own, rules.denies, rules.acts, rules.affirms, rules.still_there)
        )
        and not set(one) & set(",，、:：+")
        for one in others
    )
    return ("、" if rules.characters else ", ").join((first, *others)) if all(bare) else sentence


def _turns(sentence: str, rules: Rules) -> Iterator[str]:
    """A sentence parted where it turns; where no word but a denial says so, it must be one."""
    begin, compared = 0, simplified(sentence)
    for turn in rules.turn.finditer(compared):
        before = compared[begin : turn.start()].strip(rules.comma_text)
        if turn.groupdict().get("joined") is not None and not _SAYS.search(before):
            continue  # "heart and lungs are clear"
        if not _closed(before):
            continue
        if turn[0].strip(rules.comma_text) or not (
            rules.still_there.match(compared, turn.end())
            or (not set(before) & set(",，") and rules.leads.match(before))
        ):
            yield from filter(None, [sentence[begin : turn.start()].strip(rules.comma_text)])
            begin = turn.end()
    yield from filter(None, [sentence[begin:].strip(rules.comma_text)])


def _listed(sentence: str, rules: Rules) -> list[str]:
    """The things of a list of which two or more have a sign each ("fever (-), cough (+)"), or of which one that has a result
    is not there ("IgG positive, IgM negative"); a word without either goes with the result behind it. [] if it is no such
    list.
    """
    if len(signs := signs_of(sentence)) > 1:
        return [item for _, item in signs]
    if rules.denied.match(simplified(sentence)):
        return []
    items = [item for part in re.split(r"[,;，；](?!\d)", sentence) if any(map(str.isalnum, item := part.strip()))]
    if max(map(len, items), default=0) > MAX_SIGNED:
        return []
    if sum(bool(_FLAGGED.search(item)) for item in items) > 1:
        return items
    signed, language = [bool(signs_of(item)) for item in items], "zh" if rules.characters else "en"
    if rules.characters:
        differ = _own_kind(sentence, rules) in rules.goes_on and len({is_present(one, language) for one in items}) > 1
        return items if differ or sum(signed) > 1 else []
    marked = [sign or bool(rules.result.search(item)) for item, sign in zip(items, signed, strict=True)]
    absent = [mark and not is_present(item, language) for item, mark in zip(items, marked, strict=True)]
    if sum(signed) < 2 and (not any(absent) or all(absent)):
        return []
    things, alone = list[str](), False
    for item, mark in zip(items, marked, strict=True):
        alone = alone and not item.startswith("not ")
        things[len(things) - alone :] = [f"{things[-1]}, {item}" if alone else item]
        alone = not mark and " " not in item
    return things


def _reach(rest: str, rules: Rules) -> tuple[int, int]:
    """Where what is denied ends, and where a clause of its own begins after it; 0 if none does."""
    compared = simplified(rest)
    for comma in rules.clause.finditer(compared):
        before, behind = compared[: comma.start()], compared[comma.end() :]
        if not _closed(before):
            continue
        if rules.own.match(compared, comma.end()) or rules.denied.match(behind):
            return comma.start(), comma.end()
    return len(rest), 0


def _closed(text: str) -> bool:
    """Whether no bracket is open at its end."""
    return text.count("(") <= text.count(")")


def _finished(text: str, rules: Rules) -> str:
    """With a capital and a stop."""
    return text[:1].upper() + text[1:] + ("" if text.rstrip("\"”'")[-1:] in ".!…。！？" else rules.stop)
