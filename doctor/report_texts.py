"""The words of report page and evaluation table in the language of the run; `report_texts.yaml` holds them."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from markupsafe import Markup
from ruamel.yaml import YAML

from clinic.language import EN, PHRASES
from clinic.tables import Summary

FILE = Path(__file__).with_name("report_texts.yaml")


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What is said in one language. The phrases are trusted HTML, what is filled into them is escaped."""

    language: str
    phrases: Mapping[str, str]
    counted: Mapping[str, tuple[str, str]]
    speakers: Mapping[str, str]
    kinds: Mapping[str, str]  # of doctor turns
    remarks: Mapping[str, str]  # on a doctor turn
    doctors: Mapping[str, str]  # what a doctor does
    measures: Mapping[str, str]  # what a measure is
    table: Mapping[str, str]  # heads of the terminal's table
    columns: Mapping[str, str]  # heads of the page's table
    names: Mapping[str, str]

    def say(self, key: str, *given: object) -> Markup:
        """A phrase, filled in."""
        return Markup(self.phrases[key]).format(*given)

    def count(self, number: int, what: str) -> Markup:
        """So many of something."""
        return Markup(self.counted[what][number != 1]).format(number)

    def known(self, name: str) -> str:
        """A name in this language, or as it is."""
        return self.names.get(name, name)

    def name(self, name: str) -> str:
        """The name of a doctor (with the source of its cases), of two that are compared, of a category or a reason."""
        if " minus " in name:
            return str(self.phrases["minus"]).join(map(self.name, name.split(" minus ")))
        plain, at, source = name.partition("@")
        return self.known(plain) + at + source

    def withheld(self, summary: Summary) -> str | None:
        """Why a summary is not shown as numbers; None if it is."""
        if not summary.withheld:
            return None
        shares = (f"{100 * share:.3g}% {self.known(reason)}" for reason, share in summary.missing_shares)
        return self.phrases["withheld"] + self.phrases["comma"].join(shares)


@lru_cache(maxsize=len(PHRASES))
def texts(language: str) -> Texts:
    """The words of a language that consultations can be held in."""
    said = YAML(typ="safe").load(FILE)[language]
    return Texts(language=language, **said)


def language_of(languages: Iterable[str]) -> str:
    """The language of a run: that of most of its cases, English where as many are in English."""
    counts = Counter(language for language in languages if language in PHRASES)
    return max(counts, key=lambda language: (counts[language], language == EN.code), default=EN.code)


def padded(text: str, width: int) -> str:
    """A cell of a table for the terminal, to the left; to the right if the width is negative. Chinese characters are
    two columns wide.
    """
    blanks = " " * max(abs(width) - columns_wide(text), 0)
    return text + blanks if width > 0 else blanks + text


def columns_wide(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
