"""The door to endpoints, against a server with scripted faults."""

import asyncio
import logging
import random
import socket
import time

import pytest
from aiohttp import web
from pydantic import ValidationError
from ruamel.yaml import YAML

from doctor.parameters import ROOT, ParameterError, parse_params
from rl.config import EndpointParams
from rl.language_models import endpoint as door
from rl.language_models.endpoint import Endpoint, EndpointCounts, EndpointError
from tests.endpoint_server import MODEL, chat_server

HELLO = [{"role": "user", "content": "Does it hurt?"}]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
PASSING = [
    *("429", "500", "503", "408", "hang", "trickle", "drop"),
    *("malformed", "garbage", "deep", "long", "torn", "empty", "null", "no_choices"),
]
KEY = "sk-3141592653"
ENDLESS_S = 30.0  # what takes longer waits for ever, and not for a processor


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(door, "FIRST_PAUSE_S", 0.01)


def params(url, **changes):
    settings = {
        "model": MODEL,
        "key_env": "",
        "timeout_s": 5.0,
        "retries": 1,
        "concurrency": 4,
        "temperature": 0.7,
        "max_tokens": 64,
    }
    return EndpointParams(url=url, **settings | changes)


def echo(messages):
    return f"You said: {messages[-1]['content']}"


def failing(endpoint, schema=None):
    with pytest.raises(EndpointError) as caught:
        asyncio.run(endpoint.generate(HELLO, schema))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def numbered(count):
    return [[{"role": "user", "content": str(number)}] for number in range(count)]


async def all_of(endpoint, requests):
    return await asyncio.gather(*[endpoint.generate(request) for request in requests])


@pytest.mark.parametrize("fault", PASSING)
def test_a_passing_fault_is_tried_again(fault):
    with chat_server(echo, [fault]) as server:
        endpoint = Endpoint(params(server.url, timeout_s=2.0 if fault in ("hang", "trickle") else 5.0))
        assert asyncio.run(endpoint.generate(HELLO)) == "You said: Does it hurt?"
        assert endpoint.counts == EndpointCounts(requests=1, tries=2, failures=0)
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("fault", "happened", "fix"),
    [
        ("429", "HTTP 429: scripted 429", "lower concurrency"),
        ("500", "HTTP 500: scripted 500", "the server's log"),
        ("hang", "no whole answer within timeout_s = 0.2", "raise timeout_s"),
        ("drop", "no connection: ", "start the server"),
        ("malformed", 'the body is not JSON: {"choices"', "correct url"),
        ("garbage", "the body is not JSON: <html>", "correct url"),
        ("deep", "the body is not JSON: [[[", "correct url"),
        ("torn", "the reply holds half of a character", "the server's log"),
        ("empty", "the reply is empty (finish_reason stop)", "raise max_tokens"),
        ("null", "the reply is empty", "raise max_tokens"),
        ("no_choices", "no choices", "does url lead to chat completions?"),
    ],
)
def test_faults_beyond_the_retries_name_the_url_and_the_fix(fault, happened, fix):
    with chat_server(echo, lambda number: fault) as server:
        endpoint = Endpoint(params(server.url, retries=2, timeout_s=0.2 if fault == "hang" else 5.0))
        line = failing(endpoint)
        assert line.startswith(f"{server.url}, model {MODEL}: try 3 of 3: ")
        assert happened in line
        assert fix in line
        assert endpoint.counts == EndpointCounts(requests=1, tries=3, failures=1)


@pytest.mark.parametrize(
    ("fault", "fix"),
    [
        ("400", "change the setting"),
        ("401", "set key_env to"),
        ("404", "correct url (up to and including /v1) or model"),
        ("422", "change the setting"),
    ],
)
def test_a_lasting_refusal_is_not_tried_again(fault, fix):
    with chat_server(echo, [fault]) as server:
        line = failing(Endpoint(params(server.url, retries=3)))
        assert f"HTTP {fault}: scripted {fault}" in line
        assert fix in line
        assert len(server.requests) == 1


def test_the_request_holds_the_settings_and_the_schema():
    with chat_server(echo) as server:
        endpoint = Endpoint(params(server.url))
        asyncio.run(endpoint.generate(HELLO))
        asyncio.run(endpoint.generate(HELLO, SCHEMA))
        plain, structured = server.requests
    assert plain == {"model": MODEL, "messages": HELLO, "temperature": 0.7, "max_tokens": 64}
    wanted = structured.pop("response_format")
    assert structured == plain
    assert wanted["type"] == "json_schema"
    assert wanted["json_schema"]["strict"] is True
    assert wanted["json_schema"]["schema"] == SCHEMA


def test_a_server_without_structured_output_is_told_apart():
    with chat_server(echo, lambda number: "no_schema") as server:
        endpoint = Endpoint(params(server.url))
        assert asyncio.run(endpoint.generate(HELLO)) == echo(HELLO)
        line = failing(endpoint, SCHEMA)
        assert "structured output refused, HTTP 400: response_format of type json_schema is not supported" in line
        assert "use a server that takes response_format" in line
        assert len(server.requests) == 2


def test_half_a_structured_reply_is_none_and_half_a_plain_one_is_one():
    with chat_server(lambda messages: "abcd", lambda number: "cut") as server:
        endpoint = Endpoint(params(server.url))
        assert asyncio.run(endpoint.generate(HELLO)) == "ab"
        assert "cut off; raise max_tokens" in failing(endpoint, SCHEMA)


def test_no_more_requests_are_under_way_than_allowed():
    with chat_server(echo, delay_s=0.1) as server:
        replies = asyncio.run(all_of(Endpoint(params(server.url, concurrency=3)), numbered(9)))
        assert replies == [f"You said: {number}" for number in range(9)]
        assert server.peak == 3


def test_one_endpoint_serves_many_event_loops_and_leaves_no_connection_behind():
    with chat_server(echo, ["ok", "500"], delay_s=0.02) as server:
        endpoint = Endpoint(params(server.url, concurrency=2))
        for _ in range(3):
            # more than slots, so that the semaphore is waited on
            assert len(asyncio.run(all_of(endpoint, numbered(6)))) == 6
            deadline = time.monotonic() + ENDLESS_S
            while server.connections and time.monotonic() < deadline:
                time.sleep(0.01)
            assert server.connections == 0
        assert server.peak <= 2
        assert endpoint.counts == EndpointCounts(requests=18, tries=19, failures=0)


def test_connections_are_kept_within_a_loop():
    async def one_after_the_other(endpoint, server):
        for _ in range(3):
            await endpoint.generate(HELLO)
        return len(server.transports)

    with chat_server(echo) as server:
        assert asyncio.run(one_after_the_other(Endpoint(params(server.url)), server)) == 1


@pytest.mark.parametrize("fault", ["hang", "trickle"])
def test_a_server_without_end_costs_the_timeout_of_each_try(fault):
    with chat_server(echo, lambda number: fault) as server:
        begun = time.monotonic()
        failing(Endpoint(params(server.url, timeout_s=0.2, retries=1)))
        assert 0.4 <= time.monotonic() - begun < ENDLESS_S
        assert len(server.requests) == 2


def test_pauses_grow_and_vary(monkeypatch):
    pauses, sleep = [], asyncio.sleep

    async def noted(pause_s):
        pauses.append(pause_s)
        await sleep(0)

    with chat_server(echo, lambda number: "500") as server:
        monkeypatch.setattr(door.asyncio, "sleep", noted)
        monkeypatch.setattr(door, "FIRST_PAUSE_S", 1.0)
        monkeypatch.setattr(door, "LONGEST_PAUSE_S", 6.0)
        state = random.getstate()
        failing(Endpoint(params(server.url, retries=5)))
        assert random.getstate() == state
        monkeypatch.setattr(door.asyncio, "sleep", sleep)
    waits = [pause_s for pause_s in pauses if pause_s]
    assert len(waits) == 5
    assert all(longest / 2 <= pause_s <= longest for pause_s, longest in zip(waits, [1, 2, 4, 6, 6], strict=True))
    assert waits[3] != waits[4]


@pytest.mark.parametrize(
    ("asked", "bound", "least"),
    [("0.3", 60.0, 0.3), ("100", 0.2, 0.2), ("Wed, 21 Oct 2099 07:28:00 GMT", 60.0, 0.0)],
)
def test_what_the_server_asks_for_is_waited_up_to_a_bound(monkeypatch, asked, bound, least):
    monkeypatch.setattr(door, "LONGEST_RETRY_AFTER_S", bound)
    with chat_server(echo, [f"429:{asked}"]) as server:
        begun = time.monotonic()
        assert asyncio.run(Endpoint(params(server.url)).generate(HELLO)) == echo(HELLO)
        assert least <= time.monotonic() - begun < ENDLESS_S


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_key_is_found_before_the_first_request(monkeypatch, value):
    monkeypatch.delenv("CLINIC_TEST_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("CLINIC_TEST_KEY", value)
    with pytest.raises(
        EndpointError,
        match=r"http://127\.0\.0\.1:1/v1, model scripted: environment variable CLINIC_TEST_KEY is missing or empty; export it",
    ):
        Endpoint(params("http://127.0.0.1:1/v1", key_env="CLINIC_TEST_KEY"))


def test_a_key_that_no_header_takes_is_not_shown(monkeypatch):
    monkeypatch.setenv("CLINIC_TEST_KEY", f"{KEY}\nexport MORE=1")
    with pytest.raises(EndpointError, match="CLINIC_TEST_KEY is no key; export it") as caught:
        Endpoint(params("http://127.0.0.1:1/v1", key_env="CLINIC_TEST_KEY"))
    assert KEY not in str(caught.value)


def test_the_key_is_sent_and_never_told(monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("CLINIC_TEST_KEY", f" {KEY}\n")
    with chat_server(echo, ["500"], key=KEY) as server:
        assert asyncio.run(Endpoint(params(server.url, key_env="CLINIC_TEST_KEY")).generate(HELLO)) == echo(HELLO)
    with chat_server(echo, key="another") as server:  # tells in its refusal which key it was shown
        line = failing(Endpoint(params(server.url, key_env="CLINIC_TEST_KEY")))
    assert "HTTP 401: no such key: Bearer ***; put a valid key into CLINIC_TEST_KEY" in line
    assert "try 1 of 2: HTTP 500" in caplog.text
    assert KEY not in caplog.text


def test_the_health_check_passes_where_the_model_is_listed_or_answers():
    with chat_server(echo) as server:
        asyncio.run(Endpoint(params(server.url)).check())
        assert server.requests == []
        asyncio.run(Endpoint(params(server.url, model="alias")).check())
        assert [(request["model"], request["max_tokens"]) for request in server.requests] == [("alias", 1)]


@pytest.mark.parametrize(
    ("path", "happened"),
    [("/v1", "HTTP 404: scripted 404; correct url"), ("/v2", "HTTP 404: 404: Not Found; correct url")],
)
def test_the_health_check_fails_for_an_unknown_model_or_path(path, happened):
    with chat_server(echo, ["404"]) as server:
        with pytest.raises(EndpointError) as caught:
            asyncio.run(Endpoint(params(server.url.replace("/v1", path), model="alias")).check())
        assert happened in str(caught.value)


def test_an_unreachable_port_is_one_clear_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        endpoint = Endpoint(params(url))
        with pytest.raises(EndpointError) as caught:
            asyncio.run(endpoint.check())
        assert str(caught.value).startswith(f"{url}, model {MODEL}: no connection: ")
        assert str(caught.value).endswith("; start the server, or correct url")
        assert "try 2 of 2: no connection" in failing(endpoint)


def test_what_a_server_says_moves_no_cursor(monkeypatch):
    with chat_server(lambda _: "", lambda number: "500") as server:
        monkeypatch.setattr("tests.endpoint_server._error", lambda *_: web.Response(status=500, text="\x1b[2Jgone\x07"))
        assert "HTTP 500: [2Jgone; see" in failing(Endpoint(params(server.url)))


@pytest.mark.parametrize(
    ("url", "happened"),
    [
        ("http://host:80a/v1", "its port is none"),
        ("http://host:99999/v1", "its port is none"),
        ("http://host :80/v1", "it holds a blank or a character that no address has"),
        ("http://host/v1\x7f", "it holds a blank or a character that no address has"),
    ],
)
def test_an_address_that_no_client_takes_is_told(url, happened):
    with pytest.raises(ValidationError, match=happened):
        params(url)


def test_a_try_has_an_end():
    with pytest.raises(ValidationError, match="timeout_s"):
        params("http://host/v1", timeout_s=float("inf"))


@pytest.mark.parametrize(
    ("variable", "value"),
    [("ALL_PROXY", "socks9://127.0.0.1:1"), ("ALL_PROXY", "http://me:hunter2@host:a"), ("SSL_CERT_FILE", "/no/where")],
)
def test_an_environment_that_no_client_takes_is_one_line(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    line = failing(Endpoint(params("http://host/v1")))
    assert "correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY or SSL_CERT_FILE in the environment" in line
    assert "hunter2" not in line


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http:///v1"])
def test_a_url_without_scheme_or_host_says_so(url):
    with pytest.raises(ValidationError, match=r"it must begin with http:// or https:// and a host"):
        params(url)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"url": "https://me:hunter2@host/v1"}, "export the key and name its variable in key_env"),
        ({"url": "https://host/v1?key=hunter2"}, "write it without what begins at ?"),
        ({"url": "https://host/v1#hunter2"}, "write it without what begins at ?"),
        ({"key_env": "sk-hunter2"}, "put the key into one, and its name here"),
    ],
)
def test_a_secret_in_the_parameters_is_refused_and_not_shown(settings, told, tmp_path):
    endpoint = params("http://host/v1").model_dump() | settings
    content = YAML(typ="safe").load(ROOT / "params.yaml")
    content["language_models"]["patient"] = endpoint
    with pytest.raises(ParameterError) as caught:
        parse_params(content, tmp_path / "params.yaml")
    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "happened"),
    [
        ("moved", "redirects are not followed: put the address into url, if you trust it (http://127.0.0.1:9/"),
        ("zipped", "the reply is compressed, though plain bytes were asked for"),
        ("endless", "the reply is longer than 8 MiB"),
    ],
)
def test_a_reply_that_leads_elsewhere_or_has_no_end_is_refused_at_once(fault, happened):
    with chat_server(echo, lambda number: fault) as server:
        line = failing(Endpoint(params(server.url, retries=3)))
        assert happened in line
        assert len(server.requests) == 1


def test_only_endpoints_are_asked_before_a_run(monkeypatch):
    from rl import language_models

    asked = []

    class Asked:
        def __init__(self, params):
            self.params = params

        async def check(self):
            asked.append(self.params.url)

    monkeypatch.setattr("rl.language_models.endpoint.Endpoint", Asked)
    language_models.check_endpoints([None, params("http://a/v1"), params("http://b/v1")])
    assert asked == ["http://a/v1", "http://b/v1"]


def test_a_run_is_not_refused_for_one_hiccup():
    from rl.language_models import check_endpoints

    with chat_server(lambda messages: "Yes.", ["500", "500", "ok"]) as server:
        check_endpoints([params(server.url, model="alias").model_copy(update={"retries": 0})])
        assert len(server.requests) == 3
    with chat_server(lambda messages: "Yes.", ["500"] * 9) as server, pytest.raises(EndpointError, match="HTTP 500"):
        check_endpoints([params(server.url, model="alias").model_copy(update={"retries": 0})])
