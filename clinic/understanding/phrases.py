"""The files of a lexicon: phrases to patterns."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

Side = Literal["ask", "tell"]
SECTIONS = ("symptoms", "diseases", "topics")
START = 4  # letters of a word by which patterns are passed over
# up to six words between, of the same clause
_GAP = r"\W{0,2}\s(?:(?!(?:and|or|nor|but|accompanied|followed|along)\s)[\w'-]+\s){0,6}?"
_PHRASE = re.compile(r"\s*(/(?:\\.|[^/\\])+/|[^,]+)(?:,|\Z)")
TOKEN = re.compile(r"[a-z0-9]+")


def assembled(source: Mapping[str, Any], compiled: Callable[..., dict[str, re.Pattern[str]]]) -> dict[str, Any]:
    """The fields of a lexicon that do not depend on how a language parts its words.

    Args:
        source: the content of a lexicon's file.
        compiled: entries, side and sets to patterns by name.
    """
    sets = {name: parted(words) for name, words in source["sets"].items()}
    concepts: dict[str, dict[str, Any]] = {}
    kinds: dict[str, str] = {}
    for section in SECTIONS:
        for name, entry in source[section].items():
            concepts[name] = entry
            kinds[name] = section
    direct = {name: frozenset(parted(entry.get("broader", ""))) for name, entry in concepts.items()}
    return {
        "patterns": {side: compiled(concepts, side, sets) for side in ("ask", "tell")},
        "aspects": {side: compiled(source["aspects"], side, sets) for side in ("ask", "tell")},
        "places": compiled(source["places"], "ask", sets),
        "circumstances": compiled(source["circumstances"], "ask", sets),
        "broader": {name: closure(name, direct) for name in concepts},
        "over": {name: frozenset(parted(entry.get("over", ""))) for name, entry in concepts.items()},
        "headings": {n: frozenset(parted(entry["heading"])) for n, entry in concepts.items() if "heading" in entry},
        "kinds": kinds,
    }


def closure(name: str, direct: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """All that a thing is a kind of, by way of others, too."""
    found: set[str] = set()
    waiting = list(direct.get(name, ()))
    while waiting:
        wider = waiting.pop()
        if wider not in found:
            found.add(wider)
            waiting += direct.get(wider, ())
    return frozenset(found)


def parted(words: str) -> list[str]:
    """Phrases between commas; regular expressions between slashes stay whole."""
    return [match[1].strip() for match in _PHRASE.finditer(words) if match[1].strip()]


def compiled_patterns(
    entries: Mapping[str, Mapping[str, str]], side: Side, sets: Mapping[str, list[str]]
) -> dict[str, re.Pattern[str]]:
    """The phrases of each entry as one pattern, of a language that parts its words by blanks."""
    compiled = {}
    for name, entry in entries.items():
        phrases = [part for key in ("both", side) for part in parted(entry.get(key, ""))]
        if phrases:
            phrases.sort(key=lambda phrase: (phrase.startswith("/"), -len(phrase.split()), phrase))  # the longest first
            compiled[name] = re.compile("|".join(_regex(phrase, sets) for phrase in phrases))
    return compiled


def starts_of(source: Mapping[str, Any], side: Side) -> dict[str, frozenset[str]]:
    """How the words of each concept begin; nothing for one that has a regular expression."""
    sets = {name: parted(words) for name, words in source["sets"].items()}
    entries = {name: entry for section in SECTIONS for name, entry in source[section].items()}
    return {
        name: frozenset(start for phrase in phrases for start in _beginnings(phrase, sets))
        for name, entry in entries.items()
        if (phrases := [part for key in ("both", side) for part in parted(entry.get(key, ""))])
        and not any("/" in part for phrase in phrases for part in _spelled(phrase, sets))
    }


def _spelled(phrase: str, sets: Mapping[str, list[str]]) -> list[str]:
    """A phrase with the phrases of its sets."""
    return [phrase, *(word for name in re.findall(r"{([a-z]+)}", phrase) for word in sets[name])]


def _beginnings(phrase: str, sets: Mapping[str, list[str]]) -> set[str]:
    """How the first word of a phrase may begin, or of its two halves."""
    found: set[str] = set()
    for half in phrase.lower().split("~"):
        name = re.match(r"\s*{([a-z]+)}", half)
        for words in sets[name[1]] if name else [half]:
            found |= {word[0][:START] for word in [TOKEN.search(words)] if word}
    return found


def _regex(phrase: str, sets: Mapping[str, list[str]]) -> str:
    if phrase.startswith("/") and phrase.endswith("/"):
        return phrase[1:-1]
    if "~" in phrase:
        one, other = (_regex(part.strip(), sets) for part in phrase.split("~", 1))
        return f"(?:(?:{one}){_GAP}(?:{other})|(?:{other}){_GAP}(?:{one}))"
    return rf"\b{''.join(_piece(piece, sets) for piece in re.split(r'({[a-z]+})', phrase))}(?!\w)"


def _piece(piece: str, sets: Mapping[str, list[str]]) -> str:
    if piece.startswith("{"):
        return "(?:" + "|".join(_regex(word, sets) for word in sets[piece[1:-1]]) + ")"
    return re.escape(piece).replace(r"\*", r"\w*").replace(r"\ ", r"[\s-]")
