"""Real sequence-classification models, made on the spot."""

import shutil

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaConfig,
    LlamaForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from rl.errors import TrainingError
from rl.models import new_tokenizer
from rl.reward_models import RewardModel

TALKS = [
    [{"role": "user", "content": "you said hello"}, {"role": "assistant", "content": "ask one question"}],
    [{"role": "user", "content": "tell me more " * 9}, {"role": "assistant", "content": "you"}],
    [{"role": "user", "content": "hello"}, {"role": "assistant", "content": ""}],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    tokenizer = new_tokenizer(["you said hello", "ask one question", "tell me more"] * 3, 300)
    place = tmp_path_factory.mktemp("reward") / "model"
    for labels, name in ((1, "one"), (3, "three")):
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_labels=labels,
            pad_token_id=tokenizer.pad_token_id,
        )
        model = LlamaForSequenceClassification(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter *= 6
        model.save_pretrained(place / name)
        tokenizer.save_pretrained(place / name)
    return place


def test_batches_change_nothing_and_order_is_kept(folder):
    one_by_one = RewardModel(str(folder / "one"), "float32", 1, 256).score(TALKS)
    together = RewardModel(str(folder / "one"), "float32", 3, 256).score(TALKS)
    assert together == pytest.approx(one_by_one, abs=1e-5)
    assert len({round(score, 4) for score in one_by_one}) == 3
    assert RewardModel(str(folder / "one"), "float32", 2, 256).score(TALKS[::-1]) == pytest.approx(
        one_by_one[::-1], abs=1e-5
    )
    assert RewardModel(str(folder / "one"), "float32", 2, 256).score([]) == []


def test_it_is_the_models_own_output(folder):
    reward = RewardModel(str(folder / "one"), "float32", 1, 256)
    model = AutoModelForSequenceClassification.from_pretrained(folder / "one").eval()
    inputs = reward._tokenizer(reward.render(TALKS[0]), return_tensors="pt")
    with torch.no_grad():
        assert reward.score(TALKS[:1])[0] == pytest.approx(model(**inputs).logits[0, 0].item(), abs=1e-5)


def test_a_long_transcript_keeps_its_end(folder):
    long = [{"role": "user", "content": "tell me more " * 200}, {"role": "assistant", "content": "you said hello"}]
    other = [
        {"role": "user", "content": "hello " + "tell me more " * 200},
        {"role": "assistant", "content": "you said hello"},
    ]
    short = RewardModel(str(folder / "one"), "float32", 1, 16)
    assert short.score([long]) == pytest.approx(short.score([other]))


def test_what_cannot_be_used_is_one_line(folder):
    with pytest.raises(TrainingError, match=r"has 3 outputs; the reward preset model needs one with a single score"):
        RewardModel(str(folder / "three"), "float32", 1, 16)
    with pytest.raises(TrainingError, match=r"cannot read the model '.*nowhere': no such folder"):
        RewardModel(str(folder / "nowhere"), "float32", 1, 16)


def test_a_model_without_a_trained_head_and_scores_that_are_no_numbers(folder, tmp_path):
    scorer = AutoModelForSequenceClassification.from_pretrained(folder / "one")
    scorer.model.save_pretrained(tmp_path / "headless")
    AutoTokenizer.from_pretrained(folder / "one").save_pretrained(tmp_path / "headless")
    with pytest.raises(TrainingError, match=r"has no weights for score\.weight, so its scores would be noise"):
        RewardModel(str(tmp_path / "headless"), "float32", 1, 16)
    model = RewardModel(str(folder / "one"), "float32", 2, 256)
    with torch.no_grad():
        model._model.score.weight[0, 0] = float("nan")
    assert model.score(TALKS) == [None] * 3
    assert (
        RewardModel(str(folder / "one"), "float32", 2, 10**6)._max_tokens == model._model.config.max_position_embeddings
    )


@pytest.mark.parametrize(
    ("file", "content"),
    [("model.safetensors", b"half"), ("model.safetensors", b""), ("tokenizer.json", b'{"version": 1}')],
)
def test_a_damaged_file_is_one_line(folder, tmp_path, file, content):
    shutil.copytree(folder / "one", tmp_path / "one")
    (tmp_path / "one" / file).write_bytes(content)
    with pytest.raises(
        TrainingError, match=r"cannot be loaded .*correct path in recipes/rewards/model\.yaml"
    ) as caught:
        RewardModel(str(tmp_path / "one"), "float32", 1, 16)
    assert "\n" not in str(caught.value)


def test_weights_of_another_shape_are_one_line(folder, tmp_path):
    shutil.copytree(folder / "one", tmp_path / "one")
    LlamaConfig.from_pretrained(tmp_path / "one", hidden_size=64).save_pretrained(tmp_path / "one")
    with pytest.raises(TrainingError, match="cannot be loaded"):
        RewardModel(str(tmp_path / "one"), "float32", 1, 16)


def test_places_that_begin_behind_that_of_padding(folder, tmp_path):
    """As RoBERTa's: a long transcript takes the places that are left."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "one")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        num_labels=1,
        max_position_embeddings=34,
        pad_token_id=tokenizer.pad_token_id,
        **sizes,
    )
    RobertaForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    reward = RewardModel(str(tmp_path), "float32", 2, 256)
    long = [{"role": "user", "content": "tell me more " * 100}]
    assert None not in reward.score([*TALKS, long])
    assert reward._max_tokens == 34 - 1 - tokenizer.pad_token_id


def test_a_template_that_begins_a_text_itself_and_knows_no_system_role(folder, tmp_path):
    """As Gemma's: the token that begins a text is read once, instructions before the first user's words."""
    AutoModelForSequenceClassification.from_pretrained(folder / "one").save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder / "one")
    begin = tokenizer.convert_tokens_to_ids("<|system|>")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|system|> $A", special_tokens=[("<|system|>", begin)]
    )
    tokenizer.chat_template = (
        "<|system|>{% for m in messages %}{% if m['role'] not in ('user', 'assistant') %}{{ raise_exception('no such role') }}"
        "{% endif %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
    )
    tokenizer.save_pretrained(tmp_path)
    reward = RewardModel(str(tmp_path), "float32", 2, 256)
    read = []
    reward._model.register_forward_pre_hook(lambda _module, _, named: read.append(named["input_ids"]), with_kwargs=True)
    rules = {"role": "system", "content": "ask one question"}
    folded = {"role": "user", "content": f"ask one question\n\n{TALKS[0][0]['content']}"}
    assert reward.score([[rules, *TALKS[0]]]) == reward.score([[folded, TALKS[0][1]]])
    assert all((ids == begin).sum() == 1 for ids in read)
    with pytest.raises(TrainingError, match=r"its chat template refuses a transcript of user, judge \(no such role\)"):
        reward.score([[TALKS[0][0], {"role": "judge", "content": "good"}]])
