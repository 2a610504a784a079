"""Preference pairs from a file become experience."""

import json

import pytest

from rl.algorithms import make_algorithm
from rl.errors import TrainingError
from rl.preferences import read_preferences
from rl.records import make_records
from tests.recipes import recipe

DIALOGUE = [
    {"role": "assistant", "content": "ask one"},
    {"role": "user", "content": "tell me"},
    {"role": "assistant", "content": "more"},
    {"role": "user", "content": "said"},
]


def write(tmp_path, *rows):
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


def test_texts_and_dialogues(tmp_path, chat):
    """Only the answers' assistant tokens carry loss; a trailing patient message is dropped; the prompt may hold earlier
    turns.
    """
    earlier = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "ask"},
        {"role": "user", "content": "tell"},
    ]
    found = read_preferences(
        write(
            tmp_path,
            {"prompt": "hello", "chosen": "one", "rejected": "question"},
            "",
            {"prompt": earlier, "chosen": DIALOGUE, "rejected": "you"},
        ),
        chat,
    )
    one, other, long, short = found.trajectories
    assert [s.reward for s in found.scores] == [1.0, 0.0, 1.0, 0.0]
    assert (one.group_id, other.group_id, long.group_id) == ("pairs.jsonl:1", "pairs.jsonl:1", "pairs.jsonl:3")
    assert chat.text(one.token_ids[slice(*one.turns[0])]) == "one"
    assert [chat.text(long.token_ids[start:end]) for start, end in long.turns] == ["ask one", "more"]
    assert long.sampled_tokens == sum(end - start for start, end in long.turns)
    assert chat.text(short.token_ids[slice(*short.turns[0])]) == "you"
    lesson = make_algorithm(recipe("dpo", pairs_per_group=1)).signal(
        make_records(found.trajectories, found.scores, None, {}, None)
    )
    assert lesson.units == [(0, 1), (2, 3)]


def test_every_pair_is_in_one_share(tmp_path, chat):
    found = read_preferences(
        write(tmp_path, *({"prompt": "hello", "chosen": "one", "rejected": "question"} for _ in range(7))), chat
    )
    shares = [found.share(step, 3) for step in (1, 2, 3)]
    assert [t.episode_id for trajectories, _ in shares for t in trajectories] == [
        t.episode_id for t in found.trajectories
    ]
    assert [len(trajectories) // 2 for trajectories, _ in shares] == [2, 2, 3]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "Expecting"),
        ({"prompt": "a", "chosen": "b"}, "no 'rejected'"),
        (
            {"prompt": [{"role": "assistant", "content": "x"}], "chosen": "b", "rejected": "c"},
            "a prompt ends with a user message",
        ),
        ({"prompt": "a", "chosen": [], "rejected": "c"}, "an answer begins with an assistant message"),
        ({"prompt": 3, "chosen": "b", "rejected": "c"}, "not iterable"),
        (
            {"prompt": "a", "chosen": [DIALOGUE[0], DIALOGUE[2]], "rejected": "c"},
            "do not take turns: found user, assistant, assistant;",
        ),
        (
            {"prompt": [DIALOGUE[1], *DIALOGUE[:2], DIALOGUE[3]], "chosen": "b", "rejected": "c"},
            "do not take turns: found user, assistant, user, user, assistant;",
        ),
        (
            {"prompt": "a", "chosen": [DIALOGUE[0], {"role": "tool", "content": "x"}, DIALOGUE[2]], "rejected": "c"},
            "do not take turns: found user, assistant, tool, assistant;",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path, chat, line, what):
    with pytest.raises(TrainingError, match=rf"pairs\.jsonl, line 2: .*{what}.*give prompt, chosen and rejected"):
        read_preferences(write(tmp_path, {"prompt": "a", "chosen": "b", "rejected": "c"}, line), chat)


def test_an_empty_file_is_refused(tmp_path, chat):
    with pytest.raises(TrainingError, match="no preference pairs"):
        read_preferences(write(tmp_path, ""), chat)
