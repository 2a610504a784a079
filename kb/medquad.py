"""MedQuAD's own XML -> a record for each answer. The only door to defusedxml.

A file is one `<Document id source url>` with a `<Focus>`, its synonyms and its `<QAPair>`s. Document types and entities,
which could make a small file large or read other files, are refused. Of a truncated file the answers before its end are
kept.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kb.extras import library_for
from kb.records import Record, Rejected

ROOT = "Document"


def read_medquad(path: Path) -> Iterator[Record | Rejected]:
    """Read the answers of one file; a pair without an answer is a rejection.

    Raises:
        KnowledgeBaseError: if defusedxml is not installed.
    """
    trees = library_for(path, "defusedxml.ElementTree")
    document: dict[str, str] = {}
    found: dict[str, list[str]] = {"Focus": [], "Synonym": [], "Category": []}
    root = ""
    try:
        with path.open("rb") as file:
            for event, element in trees.iterparse(file, events=("start", "end"), forbid_dtd=True):
                if not root:
                    root, document = str(element.tag), dict(element.attrib)
                    if root != ROOT:
                        yield Rejected(path, None, f"not MedQuAD XML: its root is <{root[:40]}>, not <{ROOT}>")
                        return
                if event == "end" and element.tag in found:
                    found[element.tag].append(_line(element))
                elif event == "end" and element.tag == "QAPair":
                    yield _answer(path, element, document, found)
                    element.clear()
    except trees.ParseError as error:
        yield Rejected(path, error.position[0], f"not whole XML ({error})")
    except library_for(path, "defusedxml").DefusedXmlException as error:
        yield Rejected(path, None, f"XML with a document type or entities, which are not read ({type(error).__name__})")
    except (OSError, ValueError, LookupError) as error:  # of an encoding that there is not
        yield Rejected(path, None, f"cannot be read ({error})")


def _answer(path: Path, pair: Any, document: dict[str, str], found: dict[str, list[str]]) -> Record | Rejected:
    question, answer = pair.find("Question"), pair.find("Answer")
    text = _paragraphs("" if answer is None else "".join(answer.itertext()))
    if question is None or not text:
        missing = "question" if question is None else "answer"
        return Rejected(path, None, f"QAPair {pair.get('pid', '')[:40]!r} has no {missing}")
    names = [document.get("source", ""), document.get("id", ""), question.get("qid", "")]
    fields: dict[str, object] = {
        "doc_id": "-".join(["MQ", *names]) if all(names) else "",
        "focus": "; ".join(found["Focus"]),
        "qtype": question.get("qtype", ""),
        "question": _line(question),
        "synonyms": list(found["Synonym"]),
        "category": "; ".join(found["Category"]),
        "source": names[0],
        "url": document.get("url", ""),
        "text": text,
    }
    return Record(path, None, fields, many=True)


def _line(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())


def _paragraphs(text: str) -> str:
    """Lines without the indentation of the file; blank lines between paragraphs stay, one each."""
    lines = [" ".join(line.split()) for line in text.strip().split("\n")]
    return "\n".join(line for number, line in enumerate(lines) if line or lines[number - 1])
