"""The page on which a person talks to a doctor, in a real browser."""

import signal
import subprocess
import time
from urllib.parse import urlsplit

import pytest

from clinic.cases import write_cases
from clinic.starter import draw_cases, load_starter
from doctor.parameters import ROOT, load_params
from doctor.told import NOTICE
from tests import chromium

PYTHON = ROOT / ".venv-page/bin/python"
CHROMIUM = chromium.find()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="no environment with gradio: make consult makes it"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page with the bundled base model, in front of a few patients; whatever it complains of fails the test."""
    folder = tmp_path_factory.mktemp("page")
    clinic = load_starter(ROOT / "data/starter", 0.8)
    write_cases(draw_cases(clinic, 60, 3, load_params().patient_cases.split), folder / "cases.parquet")
    words = ["--doctor", "models/base", "--cases", str(folder), "--port", "0"]
    with (folder / "stderr").open("w") as stderr:
        page = subprocess.Popen(
            [PYTHON, "-m", "commands.consult_page", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        assert page.stdout is not None
        yield page.stdout.readline().split()[0]
        page.send_signal(signal.SIGINT)
        assert page.wait(20) in (0, 130)
        assert "Traceback" not in (folder / "stderr").read_text()
    finally:
        page.kill()


@pytest.fixture
def tab(address, tmp_path):
    with chromium.opened(CHROMIUM, tmp_path) as tab:
        tab.width(1280)
        tab.go(address)
        tab.until("document.querySelector('#start')")
        yield tab
        asked = {urlsplit(url).netloc for url in tab.requested if url.startswith(("http", "ws"))}
        assert asked == {urlsplit(address).netloc}


def refuse_hidden_notice(tab):
    """At both widths the notice is whole, on top, and nothing has to be scrolled sideways."""
    for width in (1280, 390):
        tab.width(width)
        time.sleep(0.3)
        for place in ("0", "document.body.scrollHeight"):
            tab.js(f"scrollTo(0, {place})")
            box = tab.js("document.querySelector('.notice').getBoundingClientRect().toJSON()")
            assert box["top"] == 0
            assert 0 < box["right"] <= width
            on_top = "!!document.elementFromPoint(innerWidth / 2, 10).closest('.notice')"
            assert tab.js(on_top)
        told = tab.js("document.querySelector('.notice').innerText")
        assert all(text in told for text in NOTICE.values())
        assert tab.js("getComputedStyle(document.querySelector('.notice span')).color") == "rgb(255, 255, 255)"
        assert tab.js("document.documentElement.scrollWidth") <= width
    tab.width(1280)


def turns(tab) -> int:
    return tab.js("document.querySelectorAll('.turn').length")


def begin(tab, complaint="I have a cough and a fever"):
    tab.write("#complaint textarea", complaint)
    tab.press("Tab")
    tab.click("#start")


def call_doctor(tab, name):
    """Type a doctor's name; Enter takes it and leaves the field."""
    tab.write("#doctor input", name)
    tab.press("Enter")
    tab.until("document.activeElement === document.body")


def test_a_person_plays_the_patient(tab):
    refuse_hidden_notice(tab)
    begin(tab)
    for answer in ("For three days", "No <b>not</b> at all"):
        tab.until("document.querySelector('#answer textarea')?.offsetParent")
        seen = turns(tab)
        tab.write("#answer textarea", answer)
        tab.click("#send")
        tab.until(f"document.querySelectorAll('.turn').length > {seen}")
    shown = tab.js("document.querySelector('#transcript').innerText")
    assert "I have a cough and a fever" in shown
    assert "For three days" in shown
    assert "No <b>not</b> at all" in shown  # as text
    assert "turn 3, " in shown
    refuse_hidden_notice(tab)
    tab.click("#leave")
    tab.until("document.querySelector('#start')?.offsetParent")


def test_a_case_is_watched_to_its_end_and_rated(tab):
    tab.js("document.querySelectorAll('#what input')[1].click()")
    tab.until("document.querySelector('#case input')?.offsetParent")
    tab.click("#start")
    tab.until("document.querySelector('#rate')?.offsetParent")
    assert "What this patient has: " in tab.js("document.querySelector('#state').innerText")
    assert "Bayes" in tab.js("document.querySelector('#transcript').innerText")
    refuse_hidden_notice(tab)
    tab.js("document.querySelectorAll('#score input')[3].click()")
    tab.until("document.querySelectorAll('#score input')[3].checked")
    tab.click("#rate")
    tab.until("document.querySelector('#state').innerText.includes('Not kept: this doctor has no run')")


def test_one_at_a_time_and_a_closed_tab_frees_the_doctor(tab, address, tmp_path):
    begin(tab)
    tab.until("document.querySelector('#answer textarea')?.offsetParent")
    with chromium.opened(CHROMIUM, tmp_path / "second") as second:
        second.go(address)
        begin(second)
        second.until("document.querySelector('#problem')?.innerText.includes('with another visitor')")
        tab.go("about:blank")
        end = time.monotonic() + 30
        while not second.js("!!document.querySelector('#answer textarea')?.offsetParent"):
            assert time.monotonic() < end, "the doctor is still taken"
            second.js("document.querySelector('#start').offsetParent && document.querySelector('#start').click()")
            time.sleep(1)
        second.click("#leave")
        second.until("document.querySelector('#start')?.offsetParent")


def test_what_can_be_mended_is_a_line(tab):
    tab.click("#start")
    tab.until("document.querySelector('#problem')?.innerText.includes('say what brings you here')")
    call_doctor(tab, "models/no such")
    begin(tab)
    told = "models/no such is neither a folder nor an alias of anamnesis-doctor"
    tab.until(f"document.querySelector('#problem')?.innerText.includes({told!r})")
    call_doctor(tab, "http://127.0.0.1:9/v1")
    tab.click("#start")
    tab.until("document.querySelector('#problem')?.innerText.includes('was not named when this page was started')")
