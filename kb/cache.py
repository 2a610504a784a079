"""What earlier builds have computed: vectors by text, passages by document. One SQLite file.

A build without it makes the same index, later. What does not have the checksum it was stored with counts as absent,
and a file that is no longer a database is set aside. Several builds may use one file at once.
"""

import hashlib
import inspect
import json
import logging
import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from kb.errors import KnowledgeBaseError

logger = logging.getLogger(__name__)
T = TypeVar("T")

WAIT_S = 60.0  # for another build that is writing
_ASKED_AT_ONCE = 500  # names in one question to the database
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SCHEMA = """CREATE TABLE IF NOT EXISTS made (
    maker TEXT NOT NULL, name TEXT NOT NULL, checksum INTEGER NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (maker, name))"""


def maker_of(*parts: object, code: Sequence[str] = ()) -> str:
    """Hash of all that something is made by: what JSON can say, and the source of modules, since other code makes other things."""
    sources = [inspect.getsource(import_module(name)) for name in code]
    return hashlib.sha256(json.dumps([*parts, *sources]).encode()).hexdigest()


class Cache:
    """Bytes by maker and name; the maker says everything that they depend on besides the name."""

    def __init__(self, path: Path) -> None:
        """Name the file; it is made at the first use."""
        self.path = path

    def get(self, maker: str, names: Sequence[str]) -> dict[str, bytes]:
        """Return what is known of the names and has its checksum.

        Raises:
            KnowledgeBaseError: if the file cannot be used for want of rights, room or patience.
        """

        def read(database: sqlite3.Connection) -> dict[str, bytes]:
            found: dict[str, bytes] = {}
            for first in range(0, len(names), _ASKED_AT_ONCE):
                some = names[first : first + _ASKED_AT_ONCE]
                asked = f"SELECT name, checksum, content FROM made WHERE maker = ? AND name IN ({','.join('?' * len(some))})"
                rows = database.execute(asked, (maker, *some))
                found.update((name, content) for name, checksum, content in rows if zlib.crc32(content) == checksum)
            return found

        return self._use(read)

    def put(self, maker: str, contents: Mapping[str, bytes]) -> None:
        """Keep bytes, in one transaction: a kill loses this call at most.

        Raises:
            KnowledgeBaseError: as `get`.
        """
        if not contents:
            return
        rows = [(maker, name, zlib.crc32(content), content) for name, content in contents.items()]

        def write(database: sqlite3.Connection) -> None:
            with database:
                database.executemany("INSERT OR REPLACE INTO made VALUES (?, ?, ?, ?)", rows)

        self._use(write)

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work; where the file turns out to be damaged, in a new one."""
        try:
            return self._with_file(work)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in _DAMAGED:
                raise self._unusable(error) from error
            aside = self.path.with_suffix(".damaged")
            with suppress(FileNotFoundError):  # another build was first
                self.path.replace(aside)
            logger.warning("cache %s is damaged (%s): kept as %s, and begun anew", self.path, error, aside.name)
        except OSError as error:
            raise self._unusable(error) from error
        return self._with_file(work)

    def _with_file(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path, timeout=WAIT_S)) as database:
            database.execute(_SCHEMA)
            return work(database)

    def _unusable(self, error: Exception) -> KnowledgeBaseError:
        return KnowledgeBaseError(
            f"cache {self.path} cannot be used ({error}): give it room and rights, or another place"
        )
