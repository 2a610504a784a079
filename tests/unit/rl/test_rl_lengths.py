"""What does not fit into an episode is found before it is played, without reading everything."""

import json
import random

import pytest

from rl.config import RolloutParams
from rl.errors import TrainingError
from rl.lengths import READ, fit_openings, longest_turn, open_chat
from rl.models import load_tokenizer
from rl.sft import Example

WORDS = ("you said hello", "ask one question", "tell me more", "hello")


BUDGET = RolloutParams(
    prompts=1,
    response_length=5,
    max_episode_tokens=128,
    slots=4,
    max_failed_share=0.5,
    ahead=0,
    engine={"kind": "transformers", "compile": False},
)


def budget(tokens: int) -> RolloutParams:
    return BUDGET.model_copy(update={"max_episode_tokens": tokens})


def opening(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "ask one question"}, {"role": "user", "content": text}]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Two thousand of 1 to 40 phrases."""
    rng = random.Random(0)
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 40))) for _ in range(2000)]


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 1.0])
def test_the_longest_and_how_many_are_too_long(chat, texts, share):
    """Against reading them all; bytes do not order tokens exactly, so the number may be off by a few."""
    tokens = sorted(len(chat.opening_ids(opening(text))) for text in texts)
    room = tokens[int((1 - share) * (len(tokens) - 1))] if share < 1 else tokens[0] - 1
    asked = []
    fit = fit_openings(
        chat, texts, lambda text: len(text.encode()), lambda t: asked.append(t) or opening(t), budget(room + 6)
    )
    expected = sum(length > room for length in tokens)
    assert fit.openings == 2000
    assert abs(fit.too_long - expected) <= 0.02 * 2000
    assert (fit.too_long == 0) == (expected == 0)
    assert 0 <= tokens[-1] - fit.longest <= 2
    assert fit.needed == fit.longest + 6
    assert len(asked) < READ + 15


def test_what_just_fits_fits_and_one_token_less_does_not(chat):
    length = len(chat.opening_ids(opening("tell me more")))
    for tokens, too_long in ((length + 6, 0), (length + 5, 1)):
        fit = fit_openings(chat, ["tell me more", "hello"], len, opening, budget(tokens))
        assert (fit.too_long, fit.longest) == (too_long, length)
    assert f"1 of 2 take up to {length} tokens" in fit.text(budget(length + 5))
    assert f"max_episode_tokens is {length + 5}; set it to {length + 6} or more" in fit.text(budget(length + 5))
    assert fit_openings(chat, [], len, opening, budget(20)).too_long == 0


def test_the_longest_turn_of_dialogues():
    dialogues = [Example(range(9), [0, 1, 1, 0, 0, 1, 1, 1, 0]), Example(range(4), [1, 1, 0, 1]), Example([1], [0])]
    assert longest_turn(dialogues) == 3
    assert longest_turn(dialogues[2:]) == longest_turn([]) == 0


def test_a_chat_format_is_opened_without_the_weights(tmp_path, tokenizer, chat):
    tokenizer.save_pretrained(tmp_path)
    assert open_chat(str(tmp_path)).opening_ids(opening("hello")) == chat.opening_ids(opening("hello"))


CODE = {"AutoConfig": "code.Config", "AutoTokenizer": ["code.Tokenizer", None]}


@pytest.mark.parametrize("look", [open_chat, load_tokenizer])
@pytest.mark.parametrize("of", ["config.json", "tokenizer_config.json"])
def test_code_of_a_folder_is_neither_run_nor_asked_about(tmp_path, monkeypatch, tokenizer, look, of):
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'it ran')!r}, 'w')\n")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    told = json.loads((tmp_path / of).read_text()) | {"auto_map": CODE}
    told |= {"model_type": "homemade"} if of == "config.json" else {"tokenizer_class": "Tokenizer"}
    (tmp_path / of).write_text(json.dumps(told))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))
    with pytest.raises(TrainingError, match=r"code of its own .*auto_map.* never run") as refused:
        look(str(tmp_path))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "it ran").exists()
