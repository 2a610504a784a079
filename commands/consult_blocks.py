"""The page on which a person talks to a doctor: three screens, made with gradio.

It loads nothing from other hosts, and a header forbids the browser to.
"""

import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
import uvicorn
from fastapi import FastAPI, Request, Response

from clinic.cases import Case
from clinic.errors import ClinicError
from commands.consult import ASKED, keep_rating, keep_trace
from commands.consult_html import CSS, notice, problem, transcript
from commands.resolve import resolved
from doctor.consult import Practice, held_out
from doctor.gate import CHALLENGER, CHAMPION
from doctor.parameters import ROOT, ParameterError, Params
from doctor.served import is_address
from doctor.visit import Hold, Office, Told, Visit
from kb.errors import KnowledgeBaseError
from rl.config import EndpointParams
from rl.errors import TrainingError
from tasks.registry import MODEL_NAME
from tracking import registry, runs
from tracking.errors import TrackingError

MENDABLE = (ClinicError, KnowledgeBaseError, ParameterError, TrainingError, TrackingError)
PLAY, WATCH = "play the patient yourself", "watch a held-out case"
FROM_HERE = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:"
QUIETLY = {"api_visibility": "private", "show_progress": "hidden"}  # no endpoints for others, no veil over the page
Updates = dict[Any, Any]  # of gradio's components
Doctor = Path | EndpointParams  # a folder, or where it is served


@dataclass(kw_only=True)
class Sitting:
    """A consultation as it is shown."""

    visit: Visit
    folder: Path | None  # of the doctor
    opening: str
    case: Case | None  # that is watched
    forget: bool
    told: list[Told] = field(default_factory=list)
    trace: str | None = None  # once it is kept
    ending: str = ""  # once it is over


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the first screen was filled in with, in its order."""

    doctor: str
    what: str
    language: str
    complaint: str
    case_id: str
    forget: bool


class Reception:
    """Keeps one doctor loaded, and leads visitors to it."""

    def __init__(self, params: Params, cases: Path, known: Mapping[str, Doctor]) -> None:
        """Args: of the consultation; folder of the cases to watch; doctors by what they are called here."""
        self.office, self.cases = Office(), cases
        self._params, self._known = params, known
        self._loaded: tuple[Doctor, Practice] | None = None

    def begin(self, visitor: str, wanted: Wanted) -> Sitting:
        """Begin a consultation.

        Raises:
            ClinicError: the doctor is busy, nothing brings the patient here, or there is no such case.
        """
        complaint = wanted.complaint.strip()
        if wanted.what == PLAY and not complaint:
            raise ClinicError("say what brings you here")
        doctor = self._doctor((wanted.doctor or "").strip())
        case: Case | None = None
        folder: Path | None = None

        def prepare() -> Visit:
            nonlocal case, folder
            practice = self._practice(doctor)
            folder = practice.folder
            case = practice.case((wanted.case_id or "").strip()) if wanted.what == WATCH else None
            hold: Hold = (
                partial(practice.with_person, complaint, wanted.language)
                if case is None
                else lambda _, audience: practice.with_case(case, audience)
            )
            return Visit(hold, practice.budget)

        visit = self.office.begin(visitor, prepare)
        opening = complaint if case is None else case.self_report
        return Sitting(visit=visit, folder=folder, opening=opening, case=case, forget=wanted.forget)

    def _doctor(self, called: str) -> Doctor:
        """An address has to be known, so that nobody lets this machine ask whatever server they like, with its key.
        The folder of an alias is looked up each time: it may have moved.
        """
        known = self._known.get(called)
        if known is None and is_address(called):
            raise ClinicError(f"{called} was not named when this page was started: make consult DOCTOR={called}")
        return known if isinstance(known, EndpointParams) else resolved(called)

    def _practice(self, doctor: Doctor) -> Practice:
        if self._loaded is None or self._loaded[0] != doctor:
            self._loaded = None  # frees the memory first
            self._loaded = doctor, Practice(self._params, doctor, self.cases, ROOT / "data/kb_index")
        return self._loaded[1]


def doctors(given: str) -> list[str]:
    """The doctors to choose from: the given one, those of the registry, the one of the last run."""
    try:
        runs.setup(ROOT)
        registered = [alias for alias in (CHAMPION, CHALLENGER) if registry.version_at(MODEL_NAME, alias)]
    except TrackingError:  # the page is of use without a registry
        registered = []
    last = ["models/doctor"] if (ROOT / "models/doctor").is_dir() else []
    return list(dict.fromkeys([given, *registered, *last]))


class Screens:
    """The page: what is filled in before, what is seen and answered, and what may be said of it afterwards."""

    def __init__(self, reception: Reception, choices: list[str]) -> None:
        """Lay it out.

        Args:
            reception: leads visitors to the doctor.
            choices: the doctors to choose from.
        """
        self._reception = reception
        with gr.Blocks(title="Talk to a doctor", analytics_enabled=False) as self.blocks:
            gr.HTML(notice(), padding=False)
            gr.Markdown("# Talk to a doctor")
            self.said = gr.HTML(visible=False, padding=False, elem_id="problem")
            self.sitting = gr.State(None)
            with gr.Column() as self.beginning:
                filled = self._form(choices)
                self.start = gr.Button("Start", variant="primary", elem_id="start")
            with gr.Column(visible=False) as self.consultation:
                self.transcript = gr.HTML(padding=False, elem_id="transcript")
                self.state = gr.Markdown(elem_id="state")
                with gr.Column(visible=False) as self.answering:
                    self.answer = gr.Textbox(label="Your answer", elem_id="answer")
                    send = gr.Button("Answer", variant="primary", elem_id="send")
                with gr.Column(visible=False) as self.rating:
                    self.score = gr.Radio([1, 2, 3, 4, 5], label="How good was it?", info="5 is best", elem_id="score")
                    self.comment = gr.Textbox(label="Comment, if you like", elem_id="comment")
                    rate_it = gr.Button("Rate", elem_id="rate")
                leave = gr.Button("New consultation", elem_id="leave")
            blocks = [value for value in vars(self).values() if isinstance(value, gr.blocks.Block)]
            outputs = [block for block in blocks if block is not self.blocks]
            gr.on([self.start.click], self._begin, filled, outputs, **QUIETLY)
            gr.on([send.click, self.answer.submit], self._answered, [self.sitting, self.answer], outputs, **QUIETLY)
            gr.on([rate_it.click], self._rated, [self.sitting, self.score, self.comment], outputs, **QUIETLY)
            gr.on([leave.click], self._left, None, outputs, **QUIETLY)
            self.blocks.unload(self._gone)
        self.blocks.queue(default_concurrency_limit=8)

    def _form(self, choices: list[str]) -> list[gr.components.Component]:
        """What is to be filled in, in the order of `Wanted`."""
        cases = list(held_out(self._reception.cases))
        doctor = gr.Dropdown(
            choices,
            value=choices[0],
            allow_custom_value=True,
            label="Doctor",
            info="an alias of the registry, a folder with a model, or the address that this page was started with",
            elem_id="doctor",
        )
        what = gr.Radio([PLAY, WATCH], value=PLAY, label="What to do", elem_id="what")
        with gr.Column() as playing:
            language = gr.Radio(list(ASKED), value="en", label="Language", elem_id="language")
            complaint = gr.Textbox(label=ASKED["en"].strip(), lines=2, elem_id="complaint")
        with gr.Column(visible=False) as watching:
            case_id = gr.Dropdown(
                cases,
                value=cases[0] if cases else None,
                allow_custom_value=True,
                label="Case",
                info="the patient of this record answers",
                elem_id="case",
            )
        forget = gr.Checkbox(label="Forget it: keep no trace in MLflow", elem_id="forget")
        what.change(
            lambda chosen: (gr.Column(visible=chosen == PLAY), gr.Column(visible=chosen == WATCH)),
            what,
            [playing, watching],
            **QUIETLY,
        )
        language.change(lambda chosen: gr.Textbox(label=ASKED[chosen].strip()), language, complaint, **QUIETLY)
        return [doctor, what, language, complaint, case_id, forget]

    def _begin(self, request: gr.Request, *filled: Any) -> Iterator[Updates]:
        yield {
            self.said: gr.HTML("<p>The doctor is being called …</p>", visible=True),
            self.start: gr.Button(interactive=False),
        }
        wanted = Wanted(**{one.name: value for one, value in zip(fields(Wanted), filled, strict=True)})
        try:
            now = self._reception.begin(str(request.session_hash), wanted)
        except MENDABLE as error:
            yield self._first(str(error))
        else:
            yield from self._follow(now)

    def _answered(self, now: Sitting | None, text: str) -> Iterator[Updates]:
        if now is not None and now.visit.asked:
            now.visit.answer(text)
            yield from self._follow(now)

    def _rated(self, now: Sitting | None, score: int | None, comment: str) -> Updates:
        if now is None or score is None:
            return self._problem("choose a number from 1 to 5")
        try:
            where = keep_rating(now.trace, now.visit.held, score, comment)
        except MENDABLE as error:
            return self._problem(str(error))
        return {
            self.said: gr.HTML(visible=False),
            self.state: f"{now.ending} {where}",
            self.rating: gr.Column(visible=False),
            self.score: None,
            self.comment: "",
        }

    def _left(self, request: gr.Request) -> Updates:
        self._gone(request)
        return self._first()

    def _gone(self, request: gr.Request) -> None:
        self._reception.office.leave(str(request.session_hash))

    def _follow(self, now: Sitting) -> Iterator[Updates]:
        """Turn by turn, until an answer is wanted or it is over."""
        try:
            yield self._screen(now, "The doctor thinks …") | {self.answer: ""}
            for told in now.visit.told():
                now.told.append(told)
                yield self._screen(now, "The doctor thinks …")
            keep(now)
            yield self._screen(now, now.ending)
        except MENDABLE as error:
            yield self._first(str(error))

    def _screen(self, now: Sitting, state: str) -> Updates:
        """The consultation as it stands."""
        return {
            self.sitting: now,
            self.said: gr.HTML(visible=False),
            self.start: gr.Button(interactive=True),
            self.beginning: gr.Column(visible=False),
            self.consultation: gr.Column(visible=True),
            self.transcript: transcript(now.opening, now.told),
            self.state: state,
            self.answering: gr.Column(visible=now.visit.asked),
            self.rating: gr.Column(visible=bool(now.ending) and not now.forget),
        }

    def _first(self, mend: str = "") -> Updates:
        """The first screen, with what has to be mended."""
        return self._problem(mend) | {
            self.sitting: None,
            self.start: gr.Button(interactive=True),
            self.beginning: gr.Column(visible=True),
            self.consultation: gr.Column(visible=False),
        }

    def _problem(self, text: str) -> Updates:
        return {self.said: gr.HTML(problem(text), visible=bool(text))}


def keep(now: Sitting) -> None:
    """What is left to do when it is over: keep the trace, unless it is to be forgotten, and say how it ended."""
    held = now.visit.held
    if held is None:
        return
    now.trace, kept = keep_trace(now.folder, held) if not now.forget else (None, "")
    told = [f"**Over: {held.stop_reason.replace('_', ' ')} after {len(held.turns)} turns.**"]
    if now.case is not None:
        told.append(f"What this patient has: **{now.case.diagnosis}**.")
    now.ending = " ".join(filter(None, [*told, kept]))


def serve(listening: socket.socket, params: Params, called: str, doctor: Doctor, cases: Path | None) -> None:
    """Serve the page on a socket until the process is told to stop.

    Args:
        listening: the socket.
        params: of the consultations.
        called: what the first doctor is called.
        doctor: who that is.
        cases: folder of the cases to watch.
    """
    reception = Reception(params, cases or ROOT / "data/cases", {called: doctor})
    app = FastAPI(openapi_url=None)

    @app.middleware("http")
    async def from_here(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        response.headers["Content-Security-Policy"] = FROM_HERE
        return response

    gr.mount_gradio_app(
        app,
        Screens(reception, doctors(called)).blocks,
        path="/",
        footer_links=[],
        ssr_mode=False,
        show_error=False,
        theme=gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]).set(
            block_info_text_color="*neutral_500"
        ),
        css=CSS,
    )
    host, port = listening.getsockname()[:2]
    sys.stdout.write(f"http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C stops it)\n")
    sys.stdout.flush()
    try:
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        reception.office.close()
