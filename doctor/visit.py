"""A consultation in a thread of its own: whoever shows it takes turn after turn out of a queue, and puts answers in."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from clinic.actions import Action
from clinic.consultation import Reply
from clinic.errors import ClinicError
from doctor.told import Audience, Line, lines_heard, lines_said
from rl.experience import Trajectory

PATIENCE_S = 600.0  # for an answer; whoever has not closed the page has forgotten it
Ask = Callable[[str], str]
Hold = Callable[[Ask, Audience], Trajectory]  # holds a consultation to its end


@dataclass(frozen=True)
class Told:
    """What is told at once: a doctor's turn, or what came of it."""

    turn: int
    left: int  # turns that the doctor has after it
    lines: Sequence[Line]


class Gone(BaseException):
    """Nobody follows the consultation any more. No Exception: a rollout would take that for a broken environment."""


class Visit:
    """One consultation, from its beginning until it is over or the visitor has gone.

    Attributes:
        held: the consultation, once it is over.
        asked: whether it waits for an answer.
    """

    def __init__(self, hold: Hold, budget: int, patience_s: float = PATIENCE_S) -> None:
        """Begin.

        Args:
            hold: holds the consultation; called in the thread.
            budget: turns that the doctor has.
            patience_s: how long it waits for an answer.
        """
        self.held: Trajectory | None = None
        self.asked = False
        self._hold, self._budget, self._patience_s, self._turn = hold, budget, patience_s, 0
        self._told: queue.SimpleQueue[Told | Trajectory | Exception | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._gone = threading.Event()
        self._thread = threading.Thread(target=self._run, name="consultation", daemon=True)
        self._thread.start()

    @property
    def open(self) -> bool:
        """Whether the doctor is still busy with it."""
        return self._thread.is_alive()

    def told(self) -> Iterator[Told]:
        """What is told until an answer is wanted or it is over; nothing more once the visitor has gone.

        Raises:
            Exception: what ended the consultation before its time.
        """
        while not self._gone.is_set() and not self.asked and self.held is None:
            match self._told.get():
                case Told() as told:
                    yield told
                case Trajectory() as held:
                    self.held = held
                case None:
                    self.asked = not self._gone.is_set()
                case error:
                    self._gone.set()
                    raise error

    def answer(self, text: str) -> None:
        """Answer the question that was asked last; `told` goes on from there."""
        self.asked = False
        self._answers.put(text)

    def leave(self) -> None:
        """Go, wherever it stands, and wait until the doctor is free: at most a turn."""
        self._gone.set()
        self._answers.put("")
        self._told.put(None)
        self._thread.join()

    def said(self, turn: int, thought: str, action: Action) -> None:
        """A doctor's turn, in the consultation's thread."""
        self._turn = turn
        self._tell(lines_said(thought, action))

    def heard(self, reply: Reply, views: Sequence[tuple[str, float]]) -> None:
        """What came of it, in the consultation's thread."""
        self._tell(lines_heard(reply, views))

    def _tell(self, lines: Sequence[Line]) -> None:
        if self._gone.is_set():
            raise Gone
        self._told.put(Told(self._turn, self._budget - self._turn, lines))

    def _ask(self, _: str) -> str:
        self._told.put(None)
        try:
            answer = self._answers.get(timeout=self._patience_s)
        except queue.Empty:
            self._told.put(ClinicError(f"no answer for {self._patience_s:g} s: the consultation was ended"))
            raise Gone from None
        if self._gone.is_set():
            raise Gone
        return answer

    def _run(self) -> None:
        try:
            self._told.put(self._hold(self._ask, self))
        except Gone:
            return
        except Exception as error:  # noqa: BLE001  handed to whoever follows it
            self._told.put(error)


class Office:
    """Where a doctor sees one visitor at a time."""

    def __init__(self) -> None:
        """Nobody is there."""
        self._door = threading.Lock()
        self._visitor = ""
        self._visit: Visit | None = None

    def begin(self, visitor: str, prepare: Callable[[], Visit]) -> Visit:
        """Begin a visit; an earlier one of the same visitor is ended.

        Args:
            visitor: who comes.
            prepare: loads the doctor, if need be, and begins.

        Raises:
            ClinicError: the doctor is with somebody else.
        """
        if not self._door.acquire(blocking=False):
            raise ClinicError("the doctor is being called by another visitor; try again in a moment")
        try:
            if self._visit is not None and self._visit.open:
                if self._visitor != visitor:
                    raise ClinicError("the doctor is with another visitor; try again when that consultation is over")
                self._visit.leave()
            self._visitor, self._visit = visitor, None
            self._visit = prepare()
            return self._visit
        finally:
            self._door.release()

    def leave(self, visitor: str) -> None:
        """The visitor goes; what was held stays to be rated by nobody."""
        with self._door:
            if self._visitor == visitor and self._visit is not None:
                self._visit.leave()
                self._visitor, self._visit = "", None

    def close(self) -> None:
        """Everybody goes."""
        self.leave(self._visitor)
