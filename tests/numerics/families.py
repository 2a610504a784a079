"""Tiny random models of many families, each with a chat template in its family's manner."""

from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from rl.models import new_tokenizer

WINDOW = 12
SHAPE = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 4, "initializer_range": 0.15,
}  # fmt: skip
MIXED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}
CHATML = (
    "{%- if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{%- endif %}"
    "{%- for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"
)
FORGETS_THOUGHTS = (
    "{%- set last = namespace(user=0) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set last.user = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}{%- set words = m.content %}"
    "{%- if m.role == 'assistant' and '</think>' in words %}{%- set words = words.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
    "{{ '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' and loop.index0 > last.user %}{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{{ words + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"
)
DATED = (
    "{{ '<|begin|>' }}{%- if messages[0].role == 'system' %}{%- set rules = messages[0].content | trim %}{%- set messages = messages[1:] %}{%- else %}{%- set rules = '' %}{%- endif %}"
    "{{ '<|head|>system<|end_head|>\\n\\nToday: ' + strftime_now('%d %b %Y') + '\\n\\n' + rules + '<|eot|>' }}"
    "{%- for m in messages %}{{ '<|head|>' + m.role + '<|end_head|>\\n\\n' + (m.content | trim) + '<|eot|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|head|>assistant<|end_head|>\\n\\n' }}{%- endif %}"
)
RULES_COME_LAST = (
    "{%- if messages[0].role == 'system' %}{%- set rules = messages[0].content %}{%- set messages = messages[1:] %}{%- endif %}{{ '<s>' }}"
    "{%- for m in messages %}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{%- endif %}"
    "{%- if m.role == 'user' %}{{ '[INST]' }}{%- if loop.last and rules is defined %}{{ rules + '\\n\\n' }}{%- endif %}{{ m.content + '[/INST]' }}"
    "{%- else %}{{ m.content + '</s>' }}{%- endif %}{%- endfor %}"
)
NO_RULES = (
    "{{ '<bos>' }}{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{%- endif %}"
    "{%- for m in messages %}{%- set who = 'model' if m.role == 'assistant' else m.role %}"
    "{{ '<start_of_turn>' + who + '\\n' + (m.content | trim) + '<end_of_turn>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{%- endif %}"
)
PLAIN = (
    "{{ BEGIN }}{%- for m in messages %}{{ BEFORE + m.role + AFTER + m.content + END }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ BEFORE + 'assistant' + AFTER }}{%- endif %}"
)


def plain(begin: str, before: str, after: str, end: str) -> str:
    """A template that only puts marks around roles and words."""
    pieces = {"BEGIN": begin, "BEFORE": before, "AFTER": after, "END": end}
    template = PLAIN
    for name, text in pieces.items():
        template = template.replace(name, repr(text))
    return template


CONTROL = {
    CHATML: ["<|im_start|>", "<|im_end|>"], FORGETS_THOUGHTS: ["<|im_start|>", "<|im_end|>"], DATED: ["<|begin|>", "<|head|>", "<|end_head|>", "<|eot|>"],
    RULES_COME_LAST: ["<s>", "</s>", "[INST]", "[/INST]"], NO_RULES: ["<bos>", "<start_of_turn>", "<end_of_turn>"],
    plain("", "<|", "|>\n", "<|stop|>\n"): ["<|stop|>"], plain("<|start_of_text|>", "<|", "|>\n", "<|stop|>\n"): ["<|start_of_text|>", "<|stop|>"],
    plain("", "<|role|>", "<|role_ends|>", "<|text_ends|>\n"): ["<|role|>", "<|role_ends|>", "<|text_ends|>"],
    plain("<BOS>", "<|START|><|", "|>", "<|END|>"): ["<BOS>", "<|START|>", "<|END|>"],
}  # fmt: skip
_, _, _, _, _, PHI, OLMO, GRANITE, COHERE = CONTROL
FAMILIES = {
    "qwen2": (Qwen2Config, {}, CHATML),
    "qwen2-window": (Qwen2Config, {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}, CHATML),
    "qwen3": (Qwen3Config, {"head_dim": 16}, FORGETS_THOUGHTS),
    "qwen3-moe": (Qwen3MoeConfig, EXPERTS, FORGETS_THOUGHTS),
    "llama": (LlamaConfig, {}, DATED),
    "mistral": (MistralConfig, {"sliding_window": None}, RULES_COME_LAST),
    "mistral-window": (MistralConfig, {"sliding_window": WINDOW}, RULES_COME_LAST),
    "gemma2": (Gemma2Config, MIXED | {"head_dim": 16, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}, NO_RULES),
    "gemma3": (Gemma3TextConfig, MIXED | {"head_dim": 16, "query_pre_attn_scalar": 16}, NO_RULES),
    "phi3": (Phi3Config, {"sliding_window": WINDOW}, PHI),
    "olmo2": (Olmo2Config, {}, OLMO),
    "granite": (GraniteConfig, {"logits_scaling": 4.0, "embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2}, GRANITE),
    "cohere": (CohereConfig, {"logit_scale": 0.3}, COHERE),
}  # fmt: skip
WINDOWED = [name for name, (_, numbers, _) in FAMILIES.items() if numbers.get("sliding_window")]


def tokenizer_of(family: str) -> PreTrainedTokenizerBase:
    """A small byte-level tokenizer with the family's template and control tokens."""
    template = FAMILIES[family][2]
    tokenizer = new_tokenizer(["since when does it hurt", "you are a doctor, ask one question"] * 3, 320)
    tokenizer.add_special_tokens({"additional_special_tokens": CONTROL[template]})
    tokenizer.chat_template = template
    return tokenizer


def config_of(family: str, rows: int) -> PreTrainedConfig:
    """Its configuration, with so many rows in the embedding."""
    kind, numbers, _ = FAMILIES[family]
    config: PreTrainedConfig = kind(vocab_size=rows, **(SHAPE | numbers))
    return config


def write_family(family: str, folder: Path, *, rows: int | None = None) -> Path:
    """A model folder; by default the embedding has 13 rows more than the tokenizer has ids."""
    tokenizer = tokenizer_of(family)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config_of(family, rows or len(tokenizer) + 13))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
