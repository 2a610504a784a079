"""What stands in free text instead of sentences, brought into lines and words: tables, boxes to be ticked, signs, questions
with their yes or no, numbered things, and lists of what is not there.
"""

import re
from itertools import pairwise

from clinic.loaders.text_rules import Rules

LONGEST_OPTION = 12  # words
MAX_SIGNED = 80  # characters of a thing with a sign
MARK = re.compile(r"\A(?:[-–—•·●▪■□○◦‣➢➤►→✓✔*]\s*|[(（]?\d{1,2}[.、)）]\s*)(?=\D)")  # of an item of a list
_TITLE = re.compile(r"(?m)^\s*#{1,6}\s+")  # of Markdown
_SIGNED = re.compile(
    r"(?P<before>[(（]\s*[+＋\-−–－]\s*[)）]\s*|[+＋]\s?|[-−–－]|(?i:pos|neg)\s+(?!for\b|to\b))?(?P<what>[^\W\d_][^+＋()（）]*?)"
    r"(?P<after>\s*[(（]\s*(?:[+＋]{1,4}|[-−–—－]|(?i:yes|no|present|absent|pos(?:itive)?|neg(?:ative)?|[有无是否]))\s*[)）]"
    r"|\s+(?:[+＋]{1,4}|[-−–－])|没有|(?<![没未偶时常亦也])有|无)?\W*"
)
_THERE = re.compile(r"[+＋是]|(?<!没)有|yes|present|pos", re.IGNORECASE)  # signs
_OPTION = re.compile(
    r"(?s)(?:\A|\s|[?？])[(（]?([A-Ha-h]|[1-8])[)）.、:：]\s*(.+?)(?=\s+[(（]?(?:[A-Ha-h]|[1-8])[)）.、:：]\s|\s*\Z)"
)
_SPREAD = re.compile(
    r"(?m)^[ \t\u3000]*((?:[\u4e00-\u9fff][ \t\u3000]+){1,4}[\u4e00-\u9fff]{1,3})[ \t\u3000]*(?=[:：])"
)
_BRACKETED = re.compile(r"\s*【([^】\n]{1,12})】\s*[:：]?\s*")  # a heading
_ASKED = re.compile(
    r"(?i)(?:(?:which|what)\b(?=[^?.\n]{0,200}\b(?:diagnos\w*|likely|cause|explains?|fits|following|it)\b)[^?.\n]{3,200}\?"
    r"|(?:the )?most likely (?:diagnosis|cause)[^?.\n]{0,40}[:?]"
    r"|(?:^|(?<=[。！\n]))[^。！？?\n]{0,40}(?:诊断|最可能|下列|哪[项种一])[^。！？?\n]{0,20}[？?])"
    r"\s*(?:(?:options|choices|answers|选项)\s*[:：]\s*)?(?=[(（]?[aA1][)）.、:：])"
)  # a question for the diagnosis before its options
EMPHASIS = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")
_NUMBERED = re.compile(r"(?:\A|\s+)(?=[(（]?(\d{1,2})[.、)）]\s*[^\W\d])")  # an item of a list within a line
_BOX = re.compile(r"\[([xX✓√ ])\]\s*([^\[\n]+)")  # to be ticked
_EMPTY, _TICKED = "□☐", "☑☒✅■"
_CHOICE = re.compile(
    rf"(?:[{_EMPTY}{_TICKED}][ \t]*(?i:yes|no|有|无|是|否)(?![^\W\d_])[ \t/]*)+"
)  # boxes with their yes and no
_CHOSEN = re.compile(rf"[{_TICKED}][ \t]*(\w+)")
_BOXED = re.compile(
    rf"(?m)(?:^|(?<=[。；！？])|(?<=[.;!?]\s))[ \t]*(?:[^:：\n{_EMPTY}{_TICKED}]{{1,12}}[:：][ \t]*)?(?=[{_EMPTY}{_TICKED}])"
    r".*$"
)  # what begins with one
_SQUARE = re.compile(
    rf"([{_EMPTY}{_TICKED}])\s*((?:(?!\.(?:\s|$))[^{_EMPTY}{_TICKED}\n;；。])+)[;；。.]?"
)  # one to be ticked, too
_FLAG = re.compile(r"(?im)(?:(?<=[\w)])\s*=\s*(y|n|yes|no|none|nil)\b|\s*[-–—:=]\s*(y|n)[ \t]*$)")
_SPACED = re.compile(r"(?<![,;:])[ \t]+(?=[+＋−-][^\W\d_])")  # before a sign
_VE = re.compile(r"(?<!\w)([-−–+＋])\s?ve\b")


def plain(text: str, rules: Rules) -> str:
    """A text without marks of Markdown, in which every thing that is there or not is said in words."""
    text = _cells(EMPHASIS.sub(r"\2", _TITLE.sub("", text)), rules)
    if asked := _exam_question(text):
        text = text[: asked.start()]
    text = _SPREAD.sub(lambda found: re.sub(r"\s", "", found[1]), text)
    if about := [said for line in rules.header.finditer(text) for said in rules.about.findall(line[0])]:
        text = f"{rules.header.sub('', text)}\n患者：{'，'.join(about)}"  # it is not what brings them
    text = _BRACKETED.sub(lambda found: f"\n{found[1]}：" if _heads(found, rules) else found[0], text)
    return _without_absent(rules.asked.sub(r" \1: \2", text), rules)


def _heads(found: re.Match[str], rules: Rules) -> bool:
    """Whether what stands in brackets is a heading: at the beginning of a sentence, or one that is known."""
    before, name = found.string[: found.start()].rstrip(" \t"), f"{found[1]}："
    return (
        not before
        or before[-1] in "\n。；;.!?！？"
        or bool(rules.sections.match(name) or rules.verdicts.match(name))
        or found[1].endswith("史")
    )


def _exam_question(text: str) -> re.Match[str] | None:
    """The question for a diagnosis that a text ends with, if nothing but short options follows."""
    for found in _ASKED.finditer(text):
        options = _OPTION.findall(text[found.end() :])
        marks = [mark.lower() for mark, _ in options]
        short = all(len(name.split()) <= LONGEST_OPTION and "\n" not in name.strip() for _, name in options)
        if short and len(marks) > 1 and marks in ([*"abcdefgh"][: len(marks)], [*"12345678"][: len(marks)]):
            return found
    return None


def options_of(text: str) -> dict[str, str]:
    """The options of the exam question that a text ends with, by their letters; {} if it is none."""
    asked = _exam_question(text)
    return (
        {letter.upper(): " ".join(name.split()).strip(" .;") for letter, name in _OPTION.findall(text[asked.end() :])}
        if asked
        else {}
    )


def _chosen(found: re.Match[str]) -> str:
    """The yes or no whose box is ticked ("□ yes ☑ no"); all of them where it is not one."""
    chosen = _CHOSEN.findall(found[0])
    return chosen[0] if len(chosen) == 1 else found[0]


def _cells(text: str, rules: Rules) -> str:
    """A text whose bars ("Fever=N | Cough=Y") and boxes ("[x] fever [ ] cough") are lines of a thing and its yes or no."""
    there, away = rules.flags

    def box(found: re.Match[str]) -> str:
        return f"\n{found[2].strip()}: {there if found[1].strip(f' {_EMPTY}') else away}{rules.stop}\n"

    text = _BOX.sub(box, text)
    text = _CHOICE.sub(_chosen, text)
    if set(_EMPTY) & set(text) and set(_TICKED) & set(text):  # one kind alone marks the items of a list
        text = _BOXED.sub(lambda line: _SQUARE.sub(box, line[0]), text)
    bars = (line.replace("|", "\n") if line.count("|") > 1 else line for line in text.splitlines())
    text = _FLAG.sub(lambda found: f": {there if (found[1] or found[2])[0] in 'yY' else away}", "\n".join(bars))
    text = _VE.sub(lambda found: "positive" if found[1] in "+＋" else "negative", text)
    return "\n".join(_SPACED.sub(", ", line) if len(_SPACED.findall(line)) > 1 else line for line in text.splitlines())


def _without_absent(text: str, rules: Rules) -> str:
    """A text in which lists of what is not there are sentences: "Pertinent negatives: fever, cough" is "No fever, cough";
    where each stands in a line of its own, so does its denial.
    """
    lines: list[str] = []
    listed = False
    for line in filter(str.strip, text.splitlines()):
        item = MARK.sub("", line.strip())
        listed = listed and item != line.strip()  # an item of the list above
        said = rules.absent.sub(lambda found: f" {rules.denial}" if found.start() else rules.denial, line)
        if said != line and said.strip() == rules.denial.strip():
            listed = True
        elif listed and not rules.denied.match(item):
            lines.append(f"{rules.denial}{item}")
        else:
            lines.append(said)
    return "\n".join(lines)


def items_of(line: str) -> list[str]:
    """A line, parted where it numbers things: "1) fever 2) no cough"."""
    found = list(_NUMBERED.finditer(line))
    if [int(one[1]) for one in found] != [*range(1, len(found) + 1)] or len(found) < 2:
        return [line]
    places = [0, *(one.end() for one in found), len(line)]
    return [part for begin, end in pairwise(places) if (part := line[begin:end].strip())]


def signs_of(text: str) -> list[tuple[bool, str]]:
    """Whether each is there, and its words, of a list in which everything has a sign: "fever (-), cough (+)"; [] if it is
    none.
    """
    label = re.match(r"\s*[^\W\d][\w /]{0,20}[:：]\s*(?=[+＋-])", text)
    items = [item.strip() for item in re.split(r"[,;，、；]", text[label.end() if label else 0 :])]
    if max(map(len, items)) > MAX_SIGNED:
        return []
    found = [_SIGNED.fullmatch(item) for item in items]
    signs = [match and [sign for sign in (match["before"], match["after"]) if sign] for match in found]
    if not all(sign and len(sign) == 1 for sign in signs):
        return []
    return [(bool(_THERE.search(sign[0])), item) for sign, item in zip(signs, items, strict=True) if sign]
