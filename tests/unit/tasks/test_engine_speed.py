"""The measurement of engines plays real consultations."""

import re

import torch

from tasks import engine_speed


def test_it_says_how_fast_and_how_exact(monkeypatch, capsys):
    before = torch.are_deterministic_algorithms_enabled()
    monkeypatch.setattr("sys.argv", ["engine_speed", "--engine", "transformers", "--episodes", "3", "--rollouts", "2"])
    engine_speed.main()
    torch.use_deterministic_algorithms(before)
    shown = capsys.readouterr().out
    assert re.search(r"transformers, rollout 1: 3 episodes, \d+ tokens in \S+ s, \d+ tokens/s", shown)
    assert float(re.search(r"from the model's: (\S+)", shown)[1]) < 1e-4
