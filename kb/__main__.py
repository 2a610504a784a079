"""`python -m kb build | search | check`: make an index, ask it, measure it."""

import argparse
import logging
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import kb
from kb.config import read_params
from kb.errors import KnowledgeBaseError

SHOWN_CHARACTERS = 300  # of a passage found


def main() -> int:
    """Run one of the commands; returns the exit status, 2 after a mistake, which is told in one line."""
    parser = argparse.ArgumentParser(prog="python -m kb", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="build | search | check")
    _add_build(commands.add_parser("build", help="make an index of documents"))
    _add_search(commands.add_parser("search", help="print the passages that answer a question"))
    _add_check(commands.add_parser("check", help="verify an index; with judged queries, measure how well it finds"))
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    os.environ.setdefault("TQDM_DISABLE", "1")  # bars of libraries, before these are imported
    command: Callable[[argparse.Namespace], str] = given.command
    try:
        said = command(given)
    except KnowledgeBaseError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        if error.errno is None:  # no disk's
            raise
        place = f"{error.filename}: " if error.filename is not None else ""
        sys.stderr.write(f"error: {place}{error.strerror}; name another place, or make it one that can be written\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 130
    try:
        sys.stdout.write(said)
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _add_build(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, help="the index folder")
    parser.add_argument("sources", nargs="*", help="files or folders; default: those of the parameters")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), help="file with a section knowledge_base")
    parser.add_argument("--cache", type=Path, help="file that keeps vectors and passages for the next build")
    parser.set_defaults(command=_build)


def _build(given: argparse.Namespace) -> str:
    params = read_params(given.params)
    sources = given.sources or params.sources
    built = kb.build(sources, given.out, params, cache=given.cache, progress=_progress())
    found = built.manifest
    return (
        f"{given.out}: {built.documents} documents, {found.n_passages} passages ({built.embedded} embedded), "
        f"{built.rejected} records rejected, index of {found.index_kind or 'words'}\n"
    )


def _progress() -> Callable[[int, int], None]:
    live = sys.stderr.isatty()

    def tell(done: int, total: int) -> None:
        sys.stderr.write(
            f"{chr(13) if live else ''}embedded {done} of {total}{'' if live and done < total else chr(10)}"
        )

    return tell


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", type=Path, help="an index folder")
    parser.add_argument("query", help="a question or a description")
    parser.add_argument("-k", type=int, default=5, help="passages to find; default 5")
    for name in ("source", "licence", "language"):
        parser.add_argument(f"--{name}", action="append", help=f"find only passages of this {name}; may be repeated")
    parser.set_defaults(command=_search)


def _search(given: argparse.Namespace) -> str:
    filters = {name: getattr(given, name) for name in ("source", "licence", "language") if getattr(given, name)}
    hits = kb.open(given.index).search(given.query, given.k, filters)
    lines = []
    for hit in hits:
        passage = hit.passage
        heading = ", ".join(part for part in (passage.title, passage.section) if part)
        text = textwrap.shorten(passage.text, SHOWN_CHARACTERS, placeholder=" ...")
        lines.append(
            f"{hit.score:.3f}  [{passage.passage_id}] {heading}\n       {text}\n       {passage.source}, {passage.licence}\n"
        )
    return "".join(lines) or "nothing found\n"


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", type=Path, help="an index folder")
    parser.add_argument("--queries", type=Path, help="JSONL of query_id and text")
    parser.add_argument("--qrels", type=Path, help="TSV of query_id, doc_id, relevance")
    parser.add_argument(
        "--relevance", type=int, help="lowest grade that counts as found; default: 2, or 1 if none has more"
    )
    parser.add_argument("--lexical-weight", type=float, help="of the words; default: the index's")
    parser.add_argument(
        "--half", choices=("tune", "report", "all"), default="all", help="of the queries, by their hash"
    )
    parser.set_defaults(command=_check)


def _check(given: argparse.Namespace) -> str:
    from kb.checking import compared, in_half
    from kb.index import KnowledgeIndex
    from kb.quality import found_from, load_queries
    from kb.search import embedder_of

    if (given.queries is None) != (given.qrels is None):
        raise KnowledgeBaseError("queries without qrels, or qrels without queries: give --queries and --qrels")
    index = KnowledgeIndex.load(given.index)
    made = index.manifest
    whole = f"{given.index} is whole: {made.n_documents} documents, {made.n_passages} passages, index of {made.index_kind or 'words'}"
    whole += "\n" if made.recall_at_10 is None else f", recall@10 of its vectors {made.recall_at_10:.3f}\n"
    if given.queries is None:
        return whole
    queries, qrels = load_queries(given.queries, given.qrels)
    chosen = {query: text for query, text in queries.items() if in_half(query, given.half)}
    if not chosen:
        raise KnowledgeBaseError(
            f"none of the {len(queries)} queries falls into the half {given.half}: take --half all"
        )
    relevance = found_from(qrels) if given.relevance is None else given.relevance
    weight = made.fusion.lexical_weight if given.lexical_weight is None else given.lexical_weight
    if not 0 <= weight <= 1:
        raise KnowledgeBaseError(f"--lexical-weight is {weight}: choose 0 to 1")
    embedder = embedder_of(index)
    return whole + compared(index, embedder, chosen, qrels, relevance, weight)


if __name__ == "__main__":
    sys.exit(main())
