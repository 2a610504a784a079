"""What people type beside the flows: exit status, one line for a mistake, nothing written that was not asked for."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from clinic.tables import DoctorTable, Evaluation, Interval, Summary
from commands import attacks, calibration, cases, learn, preferences, profile, resolve, run
from doctor.parameters import ROOT, ParameterError, load_params
from rl.errors import TrainingError


def call(module, monkeypatch, capsys, *words):
    """Exit status, standard output and error of a command."""
    monkeypatch.setattr(sys, "argv", ["command", *map(str, words)])
    status = module.main()
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.parametrize(
    "command", ["run", "learn", "attacks", "calibration", "cases", "plan", "preferences", "profile"]
)
def test_help_comes_in_two_seconds_of_processor(command):
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", f"commands.{command}", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    after = os.times()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: python -m commands.{command}")
    assert after.children_user + after.children_system - before.children_user - before.children_system < 2.0


def earnings(presets, attack):
    """What two consultations paid the honest weak doctor, 0.4 on average, and an attack."""
    honest, paid = np.array([0.3, 0.5]), np.array([attack, attack])
    return {
        "honest: random questions, Bayes decision": dict.fromkeys(presets, honest),
        "an attack": dict.fromkeys(presets, paid),
    }


@pytest.mark.parametrize(("earned", "status"), [(0.5, 1), (0.3, 0)])
def test_attacks_end_with_one_where_an_attack_pays(monkeypatch, capsys, earned, status):
    asked = []
    monkeypatch.setattr(
        "doctor.attacks.on_starter",
        lambda params, count, presets, index: asked.append((count, presets, index)) or earnings(presets, earned),
    )
    found, out, _ = call(attacks, monkeypatch, capsys, "--cases", 7)
    assert found == status
    assert asked == [(7, ("outcome", "doctoragent", "doctoragent_f1", "doctoragent_judge", "weighted"), None)]
    assert ("outcome: 1 of 1 attacks earn as much as an honest doctor: an attack;" in out) == bool(status)
    assert ("outcome: 0 of 1 attacks earn as much as an honest doctor; the honest doctor earns 0.100" in out) != bool(
        status
    )
    assert load_params().reward.preset == "outcome"


def test_attacks_on_a_preset_that_nobody_can_measure_here_is_no_pass(monkeypatch, capsys):
    params = load_params()
    monkeypatch.setattr(
        "doctor.parameters.load_params",
        lambda: params.model_copy(update={"reward": params.reward.model_copy(update={"preset": "human"})}),
    )
    monkeypatch.setattr("doctor.attacks.on_starter", lambda params, count, presets, index: earnings(presets, 0.1))
    status, _, err = call(attacks, monkeypatch, capsys)
    assert status == 1
    assert err == "error: reward.preset human is not measured: it asks a model or people\n"


@pytest.mark.parametrize("imported", ["nothing=x.jsonl", "x.jsonl", "own=x.jsonl", "agentclinic=missing.jsonl"])
def test_attacks_on_what_is_no_set_is_one_line(monkeypatch, capsys, imported):
    status, out, err = call(attacks, monkeypatch, capsys, "--imported", imported)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_attacks_on_a_set_without_its_mapping_say_so(monkeypatch, capsys):
    _, _, err = call(attacks, monkeypatch, capsys, "--imported", "own=x.csv")
    assert err == "error: --imported own=x.csv: format own needs a mapping; write FORMAT=FILE, for own with --mapping\n"


def test_attacks_with_a_folder_that_is_no_index_are_one_line(monkeypatch, capsys, tmp_path):
    status, out, err = call(attacks, monkeypatch, capsys, "--cases", 1, "--index", tmp_path)
    assert (status, out) == (1, "")
    assert err.startswith(f"error: {tmp_path}/manifest.json is missing, so this is no knowledge base")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("module", "words"), [(attacks, ("--cases", 0)), (calibration, ("search", "--count", -3))])
def test_no_cases_are_refused(monkeypatch, capsys, module, words):
    with pytest.raises(SystemExit, match="2"):
        call(module, monkeypatch, capsys, *words)
    assert capsys.readouterr().err.endswith(" is no number of cases; give 1 or more\n")


def test_attacks_on_an_imported_set_do_not_touch_the_starter_clinic(monkeypatch, capsys):
    monkeypatch.setattr(
        "doctor.attacks.on_imported",
        lambda params, source, count, presets: earnings(presets, 0.1),
    )
    status, out, _ = call(attacks, monkeypatch, capsys, "--imported", "agentclinic=x.jsonl")
    assert status == 0
    assert "outcome: 0 of 1 attacks" in out


def test_calibration_of_a_judge_that_is_not_there_is_one_line(monkeypatch, capsys):
    status, out, err = call(calibration, monkeypatch, capsys, "judge")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert "language_models.reward_judge is null" in err


def test_calibration_of_patients_of_public_sets_asks_for_their_folder(monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        call(calibration, monkeypatch, capsys, "orders")
    assert ended.value.code == 2
    assert (
        "orders asks patients of the public case sets; name their folder with --cases FOLDER" in capsys.readouterr().err
    )


def test_calibration_with_what_is_no_set_or_no_model_is_one_line(monkeypatch, capsys):
    status, _, err = call(calibration, monkeypatch, capsys, "questions", "--imported", "x.jsonl")
    assert (status, err.count("\n")) == (1, 1)
    assert err.startswith("error: --imported x.jsonl: Input should be 'own', ")

    def unreadable(*_):
        raise TrainingError("no model")

    monkeypatch.setattr("doctor.search_calibration.search_lines", unreadable)
    assert call(calibration, monkeypatch, capsys, "search", "--model", "x") == (1, "", "error: no model\n")


def test_calibration_prints_its_lines(monkeypatch, capsys):
    monkeypatch.setattr("doctor.calibration.questions", lambda params: ["lexical .9", "hybrid .95"])
    assert call(calibration, monkeypatch, capsys, "questions") == (0, "lexical .9\nhybrid .95\n", "")


@pytest.fixture
def two_files(tmp_path, monkeypatch):
    """A profile that changes one file, wherever it lies."""
    path = tmp_path / "params.yaml"
    path.write_text("seed: 0\n")
    monkeypatch.setattr("doctor.profiles.rewritten", lambda name: {path: "seed: 1\n"})
    monkeypatch.setattr("doctor.profiles.difference", lambda path, text: f"{path.name}: {text}")
    monkeypatch.setattr("commands.profile.plan", lambda changed: "the plan")
    return path


def test_a_profile_is_shown_and_written_only_if_asked(two_files, monkeypatch, capsys):
    status, out, _ = call(profile, monkeypatch, capsys, "x")
    assert (status, two_files.read_text()) == (0, "seed: 0\n")
    assert out == "params.yaml: seed: 1\nthe plan\nnothing was written; add --write\n"
    assert call(profile, monkeypatch, capsys, "x", "--write")[0] == 0
    assert two_files.read_text() == "seed: 1\n"
    assert [path.name for path in two_files.parent.iterdir()] == ["params.yaml"]


def test_an_unknown_profile_is_one_line(monkeypatch, capsys):
    def missing(name):
        raise ParameterError("there is no profile 'nothing'")

    monkeypatch.setattr("doctor.profiles.rewritten", missing)
    assert call(profile, monkeypatch, capsys, "nothing", "--write") == (1, "", "error: there is no profile 'nothing'\n")


def test_pairs_are_written_whole(tmp_path, monkeypatch, capsys):
    rows = [{"prompt": [], "chosen_reward": 1.0, "group": "é"}, {"prompt": [], "chosen_reward": 0.5, "group": "b"}]
    monkeypatch.setattr("doctor.preferences.stored_pairs", lambda steps, margin: rows)
    out = tmp_path / "deep" / "pairs.jsonl"
    assert call(preferences, monkeypatch, capsys, tmp_path, "--margin", 0.1, "--out", out) == (
        0,
        f"2 pairs in {out}\n",
        "",
    )
    assert [json.loads(line) for line in out.read_text().splitlines()] == rows
    assert [path.name for path in out.parent.iterdir()] == ["pairs.jsonl"]


def test_no_pairs_leave_no_file(tmp_path, monkeypatch, capsys):
    def nothing(steps, margin):
        raise TrainingError("no group")

    monkeypatch.setattr("doctor.preferences.stored_pairs", nothing)
    assert call(preferences, monkeypatch, capsys, tmp_path, "--margin", 9, "--out", tmp_path / "p.jsonl") == (
        1,
        "",
        "error: no group\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_pairs_that_have_no_place_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("doctor.preferences.stored_pairs", lambda steps, margin: [{"group": "a"}])
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "pairs.jsonl"
    status, _, err = call(preferences, monkeypatch, capsys, tmp_path, "--margin", 0.1, "--out", out)
    assert (status, err.count("\n")) == (1, 1)
    assert err.startswith(f"error: {out} cannot be written (")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--seeds", "0;1"), "--seeds '0;1' are no whole numbers"),
        (("--algorithms", "grpo,pop"), "--algorithms 'pop' is not in recipes/"),
    ],
)
def test_learn_is_told_a_mistake_before_anything_is_started(monkeypatch, capsys, words, told):
    monkeypatch.setattr(learn, "prefect_server", lambda: pytest.fail("a server was started"))
    status, out, err = call(learn, monkeypatch, capsys, *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: {told}")


def overall(mean, low, high, cases=600):
    return DoctorTable(Summary(cases, {"accuracy": Interval(mean, low, high)}), {})


def test_learn_tells_which_stage_failed(monkeypatch, capsys):
    def failing(*_):
        raise subprocess.CalledProcessError(2, ["python", "-m", "flows.warm_start"])
        yield

    monkeypatch.setattr(learn, "_rows", failing)
    assert call(learn, monkeypatch, capsys) == (
        2,
        "",
        "error: flows.warm_start ended with status 2; run this again to go on from there\n",
    )


@pytest.mark.parametrize("words", ["", "data/starter"])
def test_what_is_no_model_is_resolved_to_none(monkeypatch, capsys, words):
    status, out, err = call(resolve, monkeypatch, capsys, words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "is no model; name champion, challenger or a folder with config.json" in err


@pytest.mark.parametrize(
    ("trained", "passed"),
    [((0.55, 0.51, 0.59), True), ((0.55, 0.40, 0.59), False), ((0.45, 0.44, 0.49), False)],
    ids=["learned", "intervals overlap", "too little of the distance"],
)
def test_learn_says_whether_the_goals_were_met(trained, passed):
    metrics = {
        "trained": overall(*trained),
        "warm_start": overall(0.37, 0.33, 0.41),
        "bayes_optimal": overall(0.66, 0.62, 0.70),
    }
    text, found = learn._report(3, "grpo", Evaluation(doctors=metrics), learn.Cost(10.0, 20.0), 4.0)
    assert found == passed
    assert ("goals met" if passed else "goals MISSED") in text
    assert text.startswith("grpo, seed 3: warm start 0.370")


def test_learn_names_a_doctor_without_figures_and_misses():
    silent = Summary(600, {"accuracy": None}, {str(i): "without a turn" for i in range(30)})
    metrics = {
        "trained": DoctorTable(silent, {}),
        "warm_start": overall(0.37, 0.33, 0.41),
    }
    text, found = learn._report(1, "grpo", Evaluation(doctors=metrics), learn.Cost(10.0, 20.0), 4.0)
    assert not found
    assert text.startswith("grpo, seed 1: trained n/a: 5% without a turn; bayes not evaluated")
    assert text.endswith("goals MISSED")


def test_learn_needs_cases_enough():
    few = {
        "trained": overall(0.6, 0.5, 0.7, cases=100),
        "warm_start": overall(0.3, 0.2, 0.4, cases=100),
        "bayes_optimal": overall(0.66, 0.6, 0.7, cases=100),
    }
    assert not learn._report(0, "grpo", Evaluation(doctors=few), learn.Cost(1.0, 1.0), 4.0)[1]


def test_learn_changes_seed_algorithm_and_name_and_nothing_else(tmp_path):
    path = learn._params(tmp_path / "a" / "params.yaml", 5, "ppo")
    read = YAML(typ="safe")
    changed, committed = read.load(path), read.load(ROOT / "params.yaml")
    assert (changed["seed"], changed["algorithm"]["name"], changed["train_doctor"]["experiment"]) == (
        5,
        "ppo",
        "learn-ppo-5",
    )
    committed["seed"], committed["algorithm"]["name"], committed["train_doctor"]["experiment"] = 5, "ppo", "learn-ppo-5"
    assert changed == committed


TRAPS = "import signal, sys, time; signal.signal(signal.SIGINT, lambda *_: sys.exit(7)); print('ready', flush=True); time.sleep(30)"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_reaches_the_job_as_an_interrupt(default_signals, number):
    job = subprocess.Popen([sys.executable, "-c", TRAPS], stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    signal.setitimer(signal.ITIMER_REAL, 0)
    subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep(.3); os.kill({os.getpid()}, {int(number)})"])
    began = time.monotonic()
    assert run.wait_for(job) == 7
    assert time.monotonic() - began < 20


COUNTS = """
import signal, sys, time
heard = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda told, _: heard.append(told))
print("ready", flush=True)
while not heard:
    time.sleep(0.05)
time.sleep(1)
sys.exit(10 * len(heard) + (heard[0] == signal.SIGINT))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_a_whole_group_reach_the_job_as_one_interrupt(number):
    """As `timeout` and make give them: to everybody in the foreground, and again to each of their own."""
    waits = (
        "import subprocess, sys; from commands.run import wait_for\n"
        f"job = subprocess.Popen([sys.executable, '-c', {COUNTS!r}], process_group=0)\n"
        "sys.exit(wait_for(job))"
    )
    outer = subprocess.Popen(
        [sys.executable, "-c", waits],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert outer.stdout is not None
    assert outer.stdout.readline() == "ready\n"
    time.sleep(0.5)  # until it listens to signals
    for _ in range(2):
        os.killpg(outer.pid, number)
        time.sleep(0.1)
    assert outer.wait(20) == 11


def test_a_server_that_does_not_start_ends_the_job(monkeypatch, capsys):
    jobs = []
    real = subprocess.Popen

    class Broken:
        def __enter__(self):
            def ready():
                raise SystemExit("error: the Prefect server did not start")

            return "http://127.0.0.1:9/api", ready

        def __exit__(self, *_):
            return False

    def start(command, **options):
        assert options["env"]["PREFECT_API_URL"] == "http://127.0.0.1:9/api"
        jobs.append(real([sys.executable, "-c", "import time; time.sleep(60)"]))
        return jobs[0]

    monkeypatch.setattr(run, "starting_server", Broken)
    monkeypatch.setattr(run.subprocess, "Popen", start)
    with pytest.raises(SystemExit, match="did not start"):
        call(run, monkeypatch, capsys, "patient_cases")
    assert jobs[0].wait(10) != 0
    assert Path(ROOT / "dvc.yaml").exists()


def test_a_misspelt_key_is_told_before_anything_is_started(monkeypatch, capsys):
    def misspelt():
        raise ParameterError("params.yaml: unknown key sed = 0; did you mean seed?")

    monkeypatch.setattr(run, "load_params", misspelt)
    monkeypatch.setattr(run, "starting_server", None)
    status, out, err = call(run, monkeypatch, capsys)
    assert (status, out, err) == (2, "", "error: params.yaml: unknown key sed = 0; did you mean seed?\n")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"algorithm.name": "gropo"}, "params.yaml: algorithm.name is 'gropo' .*; did you mean grpo?"),
        ({"reward.preset": "human"}, "recipes/rewards/human.yaml: path is null, but reward.preset human needs one;"),
    ],
)
def test_an_algorithm_or_a_reward_that_is_none_is_told_before_anything_is_started(monkeypatch, capsys, change, told):
    monkeypatch.setattr(run, "load_params", lambda: load_params(changes=change))
    monkeypatch.setattr(run, "starting_server", None)
    status, out, err = call(run, monkeypatch, capsys)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert re.match(f"error: {told}", err)


STORY = "A man of {} comes with a sore knee. It began on Sunday. He denies fever. He takes aspirin."


@pytest.fixture
def table(tmp_path):
    rows = [f'{i},"{STORY.format(i)}",{"Gout" if i % 2 else "Knee sprain"}' for i in range(30, 70)]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["id,story,diagnosis", *rows]) + "\n")
    return path


def test_a_table_is_guessed_and_shown_as_a_doctor_meets_it(monkeypatch, capsys, table):
    status, out, err = call(cases, monkeypatch, capsys, table, "--guess", "--show", 2)
    assert (status, err) == (0, "")
    assert "vignette: story\ndiagnosis: diagnosis\n" in table.with_name("mine.mapping.yaml").read_text()
    assert "40 cases of source 'mine'" in out
    assert "2 different, 0 of them once" in out
    assert out.count("  patient: A man of ") == 2
    assert out.count("  How long have you had this? -> ") == 2
    assert "diagnoses without a known synonym: " in out
    assert "  Knee sprain (20)\n" in out
    assert "charts that leave no room" in out
    assert "are no cases" not in out


def test_a_guess_overwrites_nothing(monkeypatch, capsys, table):
    table.with_name("mine.mapping.yaml").write_text("mine")
    status, out, err = call(cases, monkeypatch, capsys, table, "--guess")
    assert (status, out) == (1, "")
    assert err.endswith("mine.mapping.yaml is there already; --guess overwrites nothing\n")


def test_a_table_without_a_diagnosis_cannot_be_guessed(monkeypatch, capsys, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    status, _, err = call(cases, monkeypatch, capsys, path, "--guess")
    assert status == 1
    assert (
        "x.csv: no column looks like a diagnosis; write the mapping by hand (docs/reference/mapping.md). It has: a, b"
        in err
    )
    assert not list(tmp_path.glob("*.yaml"))


def test_rejected_rows_are_counted_by_reason_and_too_many_end_with_one(monkeypatch, capsys, table):
    mapping = table.with_name("m.yaml")
    mapping.write_text("name: mine\ncase_id: id\nvignette: story\ndiagnosis: diagnosis\n")
    with table.open("a") as file:
        file.write('30,Again. And again.,Gout\n99,"A man has pain. It is bad.",\n98,"A man has pain. It is bad.",\n')
    status, out, err = call(cases, monkeypatch, capsys, table, "--mapping", mapping, "--show", 0)
    assert status == 1
    assert (
        "mine.csv: 3 of 43 records are no cases\n  2 x no diagnosis: column 'diagnosis' is empty (lines 43, 44)\n  1 x case id '30'"
        in out
    )
    assert "3 of 43 records are no cases, more than patient_cases.max_rejected_share = 0.05" in err
    assert "  patient:" not in out


def test_charts_that_do_not_fit_are_counted(monkeypatch, capsys, tmp_path):
    path = tmp_path / "long.csv"
    text = "A man has pain. " + " ".join(f"On day {i} he felt a little worse than before." for i in range(60))
    path.write_text(f"vignette,dx\n{text},Gout\n")
    status, out, _ = call(cases, monkeypatch, capsys, path, "--guess", "--show", 0)
    assert status == 0
    assert "(448): 1 of 1; all fit from " in out


def test_a_table_that_is_not_there_is_one_line(monkeypatch, capsys, tmp_path):
    status, out, err = call(cases, monkeypatch, capsys, tmp_path / "gone.csv")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "gone.csv does not exist; give the path of a table" in err


def test_what_a_mapping_never_meets_is_told(monkeypatch, capsys, table):
    mapping = table.with_name("m.yaml")
    mapping.write_text(
        "name: mine\nvignette: story\ndiagnosis: diagnosis\ncorrections: {gout: Gout, Knee sprian: Knee sprain}\n"
    )
    status, out, _ = call(cases, monkeypatch, capsys, table, "--mapping", mapping, "--show", 0)
    assert status == 0
    assert "  corrections of diagnoses that no row has: 'Knee sprian'\n" in out


def test_a_mapping_that_has_no_place_is_one_line_and_no_file(monkeypatch, capsys, table):
    place = table.parent / "gone" / "m.yaml"
    status, out, err = call(cases, monkeypatch, capsys, table, "--guess", "--mapping", place)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "m.yaml cannot be written (No such file or directory); give --mapping a place that can" in err
    place = table.parent / "m.yaml"
    monkeypatch.setattr("doctor.case_preview.guess_mapping", lambda *_: "a" * 100_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        status, out, err = call(cases, monkeypatch, capsys, table, "--guess", "--mapping", place)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "m.yaml cannot be written (File too large)" in err
    assert not place.exists()


def test_who_reads_no_further_is_told_nothing():
    long = "import commands, sys\nprint('a\\n' * 100000)"
    with subprocess.Popen(
        [sys.executable, "-c", long], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as printing:
        printing.stdout.close()
        assert printing.stderr.read() == ""
    assert printing.returncode == 1


def test_a_disk_that_refuses_is_one_line():
    refused = "import commands, errno\nraise OSError(errno.EROFS, 'Read-only file system', '/srv/x')"
    done = subprocess.run([sys.executable, "-c", refused], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error: /srv/x: Read-only file system; let this user")
