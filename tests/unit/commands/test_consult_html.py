"""What is shown in the browser of a consultation, and a page without gradio."""

from commands.consult_html import notice, problem, transcript
from commands.consult_page import main
from doctor.told import NOTICE
from doctor.visit import Told


def test_what_people_and_models_write_is_text():
    told = [Told(1, 7, [("Doctor", "<script>alert(1)</script>")]), Told(1, 7, [("Patient", 'a "quoted" & <b>')])]
    shown = transcript("<img src=x>", told)
    assert "<script" not in shown
    assert "<img" not in shown
    assert "&lt;img src=x&gt;" in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" in shown  # the label
    assert "<i" not in problem("<i>")


def test_a_turn_stands_together_with_what_is_left():
    told = [
        Told(1, 7, [("thinks", "flu?"), ("Doctor", "Fever?")]),
        Told(1, 7, [("Patient", "No.")]),
        Told(2, 6, [("Doctor [test]", "X-ray")]),
    ]
    shown = transcript("I cough", told)
    assert shown.count('<div class="turn">') == 3  # the complaint, and two turns
    assert shown.index("turn 1, 7 left") < shown.index("No.") < shown.index("turn 2, 6 left") < shown.index("X-ray")


def test_the_notice_is_told_in_every_language():
    assert all(text in notice() for text in NOTICE.values())


def test_without_gradio_the_page_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["consult_page"])
    assert main() == 2
    assert capsys.readouterr().err == "error: the page needs gradio; install it with: pip install -e '.[page]'\n"
