"""What a saved tokenizer renders is what was trained on, whatever its own template does to earlier turns."""

import logging

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rl.chat import ChatFormat
from rl.chat_template import render
from rl.errors import TrainingError
from rl.models import CHAT_TEMPLATE
from tests.numerics.families import CHATML, CONTROL, DATED, FAMILIES, FORGETS_THOUGHTS, NO_RULES, RULES_COME_LAST
from tests.numerics.families import tokenizer_of as tokenizer_of_family
from tests.unit.rl.test_rl_chat import tokenizer_with

RULES, THOUGHT = 'Ask one question, then {{ name }} it\'s "said".', "<think>\nit may be the heart\n</think>\n\n"
TALK = [
    {"role": "user", "content": "my chest hurts"},
    {"role": "assistant", "content": f"{THOUGHT}since when does it hurt?\n"},
    {"role": "user", "content": "two days "},
    {"role": "assistant", "content": "<think>\nodd\n</think>\n\nany fever?"},
    {"role": "user", "content": "no"},
    {"role": "assistant", "content": f"{THOUGHT}<answer>angina</answer>"},
]
WHOLE = [{"role": "system", "content": RULES}, *TALK]
REPLACED = {FORGETS_THOUGHTS, DATED, RULES_COME_LAST, NO_RULES}
families = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture
def tokenizer_of():
    def make(template):
        return tokenizer_of_family(next(name for name, family in FAMILIES.items() if family[2] == template))

    return make


@families
@pytest.mark.parametrize("messages", [WHOLE, TALK, WHOLE[:3]], ids=["with rules", "without", "one turn"])
def test_what_is_served_is_what_was_trained(family, messages, tmp_path):
    chat = ChatFormat(tokenizer_of_family(family))
    chat.tokenizer.save_pretrained(tmp_path)
    served = AutoTokenizer.from_pretrained(tmp_path)
    trained, mask = chat.dialogue_ids(messages)
    ids = served.apply_chat_template(messages, tokenize=True, return_dict=False)
    assert ids[: len(trained)] == trained
    assert served.decode(ids[len(trained) :]).strip() == ""
    for place in (i for i, message in enumerate(messages) if message["role"] == "assistant"):
        asked = served.apply_chat_template(
            messages[:place], tokenize=True, add_generation_prompt=True, return_dict=False
        )
        assert trained[: len(asked)] == asked
        assert mask[len(asked) - 1 : len(asked) + 1] == [0, 1]


@families
def test_a_template_that_keeps_turns_stays_and_another_is_replaced_once(family, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    template = FAMILIES[family][2]
    tokenizer = ChatFormat(tokenizer_of_family(family)).tokenizer
    assert (tokenizer.chat_template != template) == (template in REPLACED)
    assert ("one that keeps them takes its place" in caplog.text) == (template in REPLACED)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert ChatFormat(again).tokenizer.chat_template == tokenizer.chat_template


def test_the_bundled_template_stays():
    assert ChatFormat(tokenizer_with(CHAT_TEMPLATE)).tokenizer.chat_template == CHAT_TEMPLATE


@pytest.mark.parametrize("template", REPLACED)
def test_where_the_own_template_changes_nothing_the_new_one_says_the_same(template, tokenizer_of):
    plain = [{"role": ("user", "assistant")[i % 2], "content": f"words {i}"} for i in range(5)]
    rules = [{"role": "system", "content": "be kind"}, plain[0]]
    tokenizer = tokenizer_of(template)
    dialogues = [plain[:1], plain[:3], plain, *([] if template == NO_RULES else [rules])]
    before = [render(tokenizer, dialogue) for dialogue in dialogues]
    tokenizer = ChatFormat(tokenizer).tokenizer
    assert tokenizer.chat_template != template
    assert [render(tokenizer, dialogue) for dialogue in dialogues] == before


def test_instructions_are_folded_into_the_first_user_message_where_there_is_no_system_role(tokenizer_of):
    tokenizer = tokenizer_of(NO_RULES)
    with pytest.raises(TrainingError, match="refuses messages of system, user: System role not supported"):
        render(tokenizer, WHOLE[:2])
    chat = ChatFormat(tokenizer)
    text = f"<bos><start_of_turn>user\n{RULES}\n\nmy chest hurts<end_of_turn>\n<start_of_turn>model\n"
    assert render(chat.tokenizer, WHOLE[:2]) == chat.tokenizer.decode(chat.opening_ids(WHOLE[:2])) == text


def test_a_template_that_forgets_its_rules_folds_them_too():
    silent = CHAT_TEMPLATE.replace("{% for m in messages %}", "{% for m in messages if m['role'] != 'system' %}")
    chat = ChatFormat(tokenizer_with(silent))
    assert RULES in chat.tokenizer.decode(chat.opening_ids(WHOLE[:2]))


def test_rules_stay_at_the_beginning(tokenizer_of):
    text = render(ChatFormat(tokenizer_of(RULES_COME_LAST)).tokenizer, WHOLE[:-1])
    assert text.startswith(f"<s>[INST]{RULES}\n\nmy chest hurts[/INST]<think>")
    assert text.count(RULES) == 1


def test_the_date_stands_still(tokenizer_of):
    assert "strftime_now" not in ChatFormat(tokenizer_of(DATED)).tokenizer.chat_template


def test_a_template_of_odd_marks_is_rebuilt_to_the_letter():
    odd = """it's "{% x %}" {{ y }} \\\\n ｜😀 é """
    around = "{{ ODD }}{% for m in messages %}{{ '<|' + m.role + '|>' + ODD + (m.content | trim) + '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' + ODD }}{% endif %}"
    tokenizer = tokenizer_with("{% set ODD = " + repr(odd) + " %}" + around)
    expected = render(tokenizer, TALK[:1])
    assert odd in expected
    chat = ChatFormat(tokenizer)
    assert "trim" not in chat.tokenizer.chat_template
    assert render(chat.tokenizer, TALK[:1]) == expected


@pytest.mark.parametrize("roles", [["user", "user"], ["assistant"], ["user", "system"], ["user", "tool"]])
def test_messages_out_of_turn_are_refused_in_one_line(roles, tokenizer_of):
    chat = ChatFormat(tokenizer_of(FORGETS_THOUGHTS))
    with pytest.raises(TrainingError, match="user and assistant take turns") as told:
        chat.opening_ids([{"role": role, "content": "x"} for role in roles])
    assert "\n" not in str(told.value)


def test_every_control_token_of_the_families_is_one():
    for family, (_, _, template) in FAMILIES.items():
        tokenizer = tokenizer_of_family(family)
        assert all(len(tokenizer.encode(token, add_special_tokens=False)) == 1 for token in CONTROL[template])
    assert CHATML in CONTROL


def test_a_tokenizer_that_puts_a_space_before_the_first_word_puts_none_behind_a_control_token():
    """As Llama's and Mistral's (sentencepiece) do."""
    core = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    pieces = ["<unk>", "</s>", "[INST]", "[/INST]", *(f"<0x{byte:02X}>" for byte in range(256))]
    core.train_from_iterator(
        ["since when does it hurt"] * 5,
        trainers.BpeTrainer(vocab_size=400, special_tokens=pieces, show_progress=False),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="</s>", additional_special_tokens=["[INST]", "[/INST]"]
    )
    tokenizer.chat_template = "{% for m in messages %}{{ '[INST]' + m.content + '[/INST]' if m.role != 'assistant' else m.content + '</s>' }}{% endfor %}"
    chat = ChatFormat(tokenizer)
    talk = [{"role": ("user", "assistant")[i % 2], "content": "since when"} for i in range(4)]
    assert tokenizer.encode("since", add_special_tokens=False) != chat.content_ids("since")
    assert chat.content_ids("") == []
    assert chat.dialogue_ids(talk)[0] == tokenizer.apply_chat_template(talk, tokenize=True, return_dict=False)
