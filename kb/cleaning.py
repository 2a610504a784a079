"""Takes out of a text what nobody sees: characters without width, and white space without end."""

import re

_INVISIBLE = re.compile(
    "["
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"  # control characters that are not white space
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u3164\ufeff\uffa0"  # soft hyphen, joiners, fillers, marks
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f"  # zero width, and what turns the direction of reading
    "\U000e0000-\U000e007f"  # tags: a second, unseen alphabet
    "]"
)
_GAP = re.compile(r"\s{17,}")  # longer than any indentation that says something


def cleaned(text: str) -> str:
    """The text with Unix line ends, without invisible characters, long gaps cut to a space or a blank line."""
    text = _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _GAP.sub(lambda gap: "\n\n" if "\n" in gap[0] else " ", text).strip()


def one_line(text: str) -> str:
    """The same of a title, a name, an address."""
    visible = text.isascii() and text.isprintable()  # mostly
    return " ".join((text if visible else _INVISIBLE.sub("", text)).split())
