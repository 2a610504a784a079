"""The report of the committed figures in a real browser, on a desk and on a phone."""

import json
from collections.abc import Iterator

import pytest

from clinic.tables import Evaluation
from doctor.parameters import ROOT
from tests import chromium
from tracking.report_page import write_report

CHROMIUM = chromium.find()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]
TABLE = "document.querySelector('table.others')"
ACCURACIES = f"[...{TABLE}.tBodies[0].rows].map(row => row.querySelector('td.number'))"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Tab]:
    """The page is open."""
    folder = tmp_path_factory.mktemp("report")
    figures = Evaluation.from_json(json.loads((ROOT / "metrics/evaluate_doctor.json").read_text()))
    write_report(folder / "report.html", "Doctor", {"seed": "0"}, figures, [], [])
    assert CHROMIUM is not None
    with chromium.opened(CHROMIUM, folder / "profile") as tab:
        tab.go((folder / "report.html").as_uri())
        yield tab
        assert [url for url in tab.requested if not url.startswith("file:")] == []


def test_the_main_table_is_whole_on_a_desk(report: chromium.Tab) -> None:
    report.width(1280)
    assert report.js(f"{TABLE}.tBodies[0].rows.length") >= 5
    frame = f"{TABLE}.closest('.scroll')"
    assert report.js(f"{frame}.scrollWidth") <= report.js(f"{frame}.clientWidth")
    assert report.js("document.documentElement.scrollWidth") <= 1280


def test_a_phone_shows_every_accuracy_without_scrolling_sideways(report: chromium.Tab) -> None:
    report.width(390)
    assert report.js("document.documentElement.scrollWidth") <= 390
    places = report.js(f"{ACCURACIES}.map(cell => cell.getBoundingClientRect().toJSON())")
    assert len(places) >= 5
    assert all(0 <= box["left"] < box["right"] <= 390 for box in places)
    assert report.js(f"parseFloat({ACCURACIES}[0].innerText)") > 0
