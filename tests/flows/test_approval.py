"""A worker ends a run as soon as it is suspended: what a person answers with has to be there by then."""

import subprocess
import sys

import pytest

from doctor.parameters import ROOT

pytestmark = pytest.mark.slow

ASKED = """
from types import SimpleNamespace
from unittest import mock

from prefect import flow
from prefect.input import read_flow_run_input
from prefect.input.run_input import keyset_from_paused_state
from prefect.states import Suspended

from flows import retrain


def suspend(wait_for_input, timeout, key):
    keys = keyset_from_paused_state(Suspended(pause_key=key))
    form = read_flow_run_input(keys["schema"])
    print("form:", sorted(form["properties"]), form["properties"]["promote"]["default"])
    print("of:", read_flow_run_input(keys["description"]))
    wait_for_input.save(keys)  # Prefect's own, after it has suspended the run


@flow
def asking():
    with (
        mock.patch.object(retrain, "suspend_flow_run", suspend),
        mock.patch.object(retrain, "markdown", lambda _decision, _promoted, told: f"the decision: {told}"),
        mock.patch.object(retrain, "about", lambda challenger, commit: {"commit": commit}),
    ):
        retrain._ask(None, SimpleNamespace(sha256="ab" * 32), "c0ffee")


asking()
"""


def test_the_form_is_there_before_the_run_is_suspended(environment: dict[str, str]) -> None:
    deployed = {"PREFECT__RUNTIME__DEPLOYMENT__ID": "00000000-0000-0000-0000-000000000001"}
    ran = subprocess.run(
        [sys.executable, "-c", ASKED], cwd=ROOT, env=environment | deployed, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "form: ['promote', 'why'] True" in ran.stdout
    assert "of: the decision: {'waiting for': 'your word', 'commit': 'c0ffee'}" in ran.stdout
