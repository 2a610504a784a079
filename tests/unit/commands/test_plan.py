"""`python -m commands.plan`: what it prints of a configuration, and its refusals."""

import json
import subprocess
import sys

import pytest

from commands import plan
from doctor.parameters import ROOT
from tests.unit.commands.test_commands import call

SHAPES = {  # width, layers, heads, key-value heads, intermediate, vocabulary
    "1.5b": (1536, 28, 12, 2, 8960, 151936),
    "7b": (3584, 28, 28, 4, 18944, 152064),
    "70b": (8192, 80, 64, 8, 28672, 128256),
}


@pytest.fixture
def model(tmp_path):
    """A folder with a configuration and no weights."""

    def made(name):
        width, layers, heads, groups, intermediate, vocabulary = SHAPES[name]
        config = {
            "model_type": "qwen2", "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": groups, "intermediate_size": intermediate, "vocab_size": vocabulary,
            "tie_word_embeddings": name == "1.5b",
        }  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        return tmp_path / name

    return made


def rows(out):
    """Of the table: cards that learn, play and answer, and the seconds of rollout, learning, handing over and a step."""
    found = [line.split() for line in out.splitlines() if line.startswith(("in turns", "one step ahead"))]
    return [[float(word) for word in words if word.replace(".", "").isdigit()] for words in found]


def test_all_cards_are_divided_and_a_step_is_the_sum_or_the_longer_part(monkeypatch, capsys, model):
    status, out, _ = call(plan, monkeypatch, capsys, "--cards", 8, "--doctor", model("7b"), "--patient", model("1.5b"))
    assert status == 0
    assert "8 x h100; a doctor of 7.62 billion weights; the patient: a model of 1.54 billion weights" in out
    turns, ahead = rows(out)
    assert sum(turns[:3]) == sum(ahead[:3]) == 8
    assert turns[6] == pytest.approx(sum(turns[3:6]), abs=0.2)
    assert ahead[6] == pytest.approx(max(ahead[3:5]) + ahead[5], abs=0.2)
    assert ahead[6] < turns[6]
    assert "sampler_correction has to be set" in out


def test_shorter_turns_and_a_slow_endpoint_are_what_they_say(monkeypatch, capsys, model):
    words = ("--doctor", model("1.5b"), "--opening-tokens", 100, "--reply-tokens", 10)
    _, long, _ = call(plan, monkeypatch, capsys, *words, "--turns", 8, "--turn-tokens", 40)
    _, short, _ = call(plan, monkeypatch, capsys, *words, "--turns", 8, "--turn-tokens", 10)
    assert "256 consultations of 8 turns and 500 tokens" in long
    assert rows(short)[1][3] < rows(long)[1][3]
    _, slow, _ = call(plan, monkeypatch, capsys, *words, "--turns", 8, "--turn-tokens", 10, "--patient-seconds", 2)
    assert "the patient: an endpoint, 2 s a reply" in slow
    assert rows(slow)[1][3] == pytest.approx(rows(short)[1][3] + 16, abs=1.0)


def test_what_does_not_fit_and_what_cannot_be_played_is_said(monkeypatch, capsys, model):
    large = model("70b")
    status, _, err = call(plan, monkeypatch, capsys, "--cards", 8, "--doctor", large)
    assert status == 1
    assert err == (
        "error: 8 x h100 are too few: 17 to learn (1129 GB of weights, gradients and moments), 8 to play; take more, or train_doctor.lora\n"
    )
    status, out, _ = call(plan, monkeypatch, capsys, "--cards", 64, "--doctor", large)
    assert status == 0
    assert "an engine of this doctor takes 8 cards; rollout workers have one each so far" in out
    assert "so learning waits for the network: raise optimizer.micro_batch_tokens" in out


@pytest.mark.parametrize("name", [path.stem for path in (ROOT / "recipes").glob("*.yaml") if path.stem != "base_model"])
def test_every_algorithm_is_planned_or_refused_in_a_line(monkeypatch, capsys, tmp_path, model, name):
    changed = tmp_path / "params.yaml"
    changed.write_text((ROOT / "params.yaml").read_text().replace("  name: grpo ", f"  name: {name} "))
    status, out, err = call(plan, monkeypatch, capsys, "--doctor", model("1.5b"), "--params-file", changed)
    if name == "ppo_roa":
        assert (status, err) == (
            1,
            "error: params.yaml: the plan knows nothing of the parts of ppo_roa; take another algorithm\n",
        )
    else:
        assert (status, err) == (0, "")
        assert rows(out)[1][6] > 0


def test_a_mistake_is_one_line(monkeypatch, capsys):
    status, _, err = call(plan, monkeypatch, capsys, "--doctor", "/nowhere")
    assert status == 1
    assert err.startswith("error: cannot read the model '/nowhere': no such folder")
    assert err.count("\n") == 1
    done = subprocess.run(
        [sys.executable, "-m", "commands.plan", "--cards", "0"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.endswith("argument --cards: '0' is no number of GPUs\n")
    for wrong in ("0", "-1", "nan", "x"):
        with pytest.raises(SystemExit):
            call(plan, monkeypatch, capsys, "--turns", wrong)
        assert f"argument --turns: '{wrong}' is no number above 0" in capsys.readouterr().err
