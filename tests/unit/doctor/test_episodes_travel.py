"""Episodes are data: made in one process, seated and played in another."""

import pickle

from clinic.starter import draw_cases
from doctor.environments import open_factory
from doctor.parameters import ROOT, load_params
from rl.machine import Place
from rl.workers.local import LocalSession

LARGEST = 40_000  # bytes of one episode; a chart of the starter clinic is about a quarter of it


def test_what_was_sent_plays_as_what_was_not(tmp_path):
    """Also after the factory has matched a question and loaded what it needs, none of which travels."""
    params = load_params()
    factory = open_factory(params, tmp_path)
    cases = list(draw_cases(factory.clinic, 2, 0, params.patient_cases.split, keep=("train",)))
    rollout = params.rollout.model_copy(update={"slots": 4})
    here = factory.episodes(cases, 2, 0, 1)
    session = LocalSession(str(ROOT / "models/base"), Place(), rollout, None, 0, seat=factory.seat)
    played = session.rollout(here, 1.0)
    sent = [pickle.dumps(spec) for spec in factory.episodes(cases, 2, 0, 1)]
    assert max(map(len, sent)) < LARGEST
    there = [pickle.loads(one) for one in sent]  # noqa: S301  written two lines above
    assert there == here
    other = LocalSession(str(ROOT / "models/base"), Place(), rollout, None, 0, seat=open_factory(params, tmp_path).seat)
    again = other.rollout(there, 1.0)
    assert [(t.token_ids, t.events) for t in again] == [(t.token_ids, t.events) for t in played]
