"""A doctor behind OpenAI-compatible HTTP: the same consultation as with its folder, and a line for what is wrong."""

import io
import socket
import sys
from pathlib import Path

import pytest

from clinic.cases import read_cases, write_cases
from clinic.starter import draw_cases, load_starter
from commands import consult, resolve
from doctor.consult import Practice
from doctor.parameters import ROOT, ParameterError, load_params
from doctor.served import served_doctor, served_folder
from rl.language_models import endpoint as door
from rl.language_models.endpoint import EndpointError
from tests.endpoint_server import MODEL, chat_server

PARAMS = load_params()
PARAMS = PARAMS.model_copy(
    update={
        "decoding": PARAMS.decoding.model_copy(
            update={"evaluate": PARAMS.decoding.evaluate.model_copy(update={"temperature": 0.0})}
        )
    }
)
BASE = ROOT / "models/base"


class Deaf:
    """Follows and says nothing."""

    def said(self, turn, thought, action):
        pass

    def heard(self, reply, views):
        pass


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cases")
    clinic = load_starter(ROOT / "data/starter", 0.8)
    write_cases(draw_cases(clinic, 60, 3, PARAMS.patient_cases.split), folder / "cases.parquet")
    return folder


def says(held):
    """A server's replies: what was said after the same messages, anything else is nonsense."""

    def reply(messages):
        words = list(held.texts)
        return words[len(messages)]["content"] if words[: len(messages)] == messages else "nonsense"

    return reply


def test_over_http_the_consultation_is_that_of_the_folder(cases):
    case = next(case for case in read_cases(cases / "cases.parquet", "test"))
    here = Practice(PARAMS, BASE, cases, Path("no index")).with_case(case, Deaf())
    with chat_server(says(here)) as server:
        doctor = served_doctor(server.url, None, "", PARAMS)
        there = Practice(PARAMS, doctor, cases, Path("no index"))
        held = there.with_case(case, Deaf())
        asked = [(body["model"], body["temperature"], body["max_tokens"]) for body in server.requests]
    assert len(here.turns) >= 3
    assert (held.texts, held.events, held.stop_reason) == (here.texts, here.events, here.stop_reason)
    assert asked == [(MODEL, 0.0, PARAMS.rollout.response_length)] * len(here.turns)
    assert (len(held.turns), held.token_ids, there.folder) == (len(here.turns), (), None)


def test_a_key_is_sent_by_the_name_of_its_variable(monkeypatch):
    monkeypatch.setenv("DOCTOR_TEST_KEY", "sk-27182")
    with chat_server(lambda _: "hm", key="sk-27182") as server:
        assert served_doctor(server.url, None, "DOCTOR_TEST_KEY", PARAMS).model == MODEL
        with pytest.raises(EndpointError, match=r"/v1: HTTP 401: .*set key_env to the name"):
            served_doctor(server.url, None, "", PARAMS)


def test_what_can_be_mended_is_a_line(monkeypatch):
    monkeypatch.setattr(door, "FIRST_PAUSE_S", 0.01)
    with pytest.raises(ParameterError, match="--doctor: url: it holds a user and a password") as refused:
        served_doctor("http://me:hush@127.0.0.1:1/v1", None, "", PARAMS)
    assert "hush" not in str(refused.value)
    with chat_server(lambda _: "hm", lambda _: "404") as server:
        with pytest.raises(EndpointError, match="model other: HTTP 404"):
            served_doctor(server.url, "other", "", PARAMS)
        with monkeypatch.context() as patched:
            patched.setattr(door.Endpoint, "_listed", lambda self, client: no_list())
            with pytest.raises(ParameterError, match="serves no models by name; name one with --model"):
                served_doctor(server.url, None, "", PARAMS)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening
        with pytest.raises(EndpointError, match=r"no connection: .*; start the server, or correct url"):
            served_doctor(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", None, "", PARAMS)


async def no_list():
    return []


@pytest.mark.parametrize(
    ("host", "model", "found"),
    [
        ("127.0.0.1", str(BASE), BASE),
        ("[::1]", str(BASE), BASE),
        ("localhost", str(BASE), BASE),
        ("gpu.lab", str(BASE), None),  # another machine's folder of that name
        ("127.0.0.1", "models/base", None),
        ("127.0.0.1", "/", None),
    ],
)
def test_the_folder_that_a_server_of_this_machine_serves(host, model, found):
    with chat_server(lambda _: "hm") as server:
        doctor = served_doctor(server.url, MODEL, "", PARAMS)
    assert served_folder(doctor.model_copy(update={"url": f"http://{host}:8000/v1", "model": model})) == found


def called(monkeypatch, capsys, module, *words, typed=""):
    monkeypatch.setattr(sys, "argv", ["command", *words])
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    status = module.main()
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_command_talks_to_an_address(monkeypatch, capsys):
    turns = iter(["<answer>Question: Since when?</answer>", "<answer>Diagnosis: Flu\nRecommendation: Rest</answer>"])
    with chat_server(lambda _: next(turns)) as server:
        status, out, err = called(
            monkeypatch, capsys, consult, "--doctor", server.url, typed="I have a cough\nfor two days\n"
        )
        heard = [body["messages"][-1]["content"] for body in server.requests]
    assert (status, err) == (0, "")
    assert " 1 Doctor: Since when?" in out
    assert " 2 Doctor [diagnosis]: Flu" in out
    assert f"{MODEL} at {server.url}: " in out
    assert "Kept as" not in out
    assert ["I have a cough" in heard[0], "for two days" in heard[1]] == [True, True]
    status, _, err = called(monkeypatch, capsys, consult, "--doctor", "http:///v1")
    assert (status, err) == (
        2,
        "error: --doctor: url = 'http:///v1': it must begin with http:// or https:// and a host\n",
    )


def test_resolve_prints_a_folder_and_nothing_else(monkeypatch, capsys):
    assert called(monkeypatch, capsys, resolve, "models/base") == (0, f"{BASE}\n", "")
    status, out, err = called(monkeypatch, capsys, resolve, "models:/anamnesis-doctor@nobody")
    assert (status, out) == (2, "")
    assert err.startswith("error: nobody is neither a folder nor an alias of anamnesis-doctor; ")
