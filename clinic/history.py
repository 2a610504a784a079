"""The general history: what anybody would ask anybody."""

from collections.abc import Mapping
from types import MappingProxyType

GENERAL_HISTORY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "en": (
            "When did it start?",
            "Do you have any other symptoms?",
            "Do you have any medical conditions?",
            "Which medicines do you take?",
            "Do you smoke or drink alcohol?",
            "Does any illness run in your family?",
            "Have you had a fever?",
            "Does anything make it worse?",
            "Have you lost weight or appetite?",
        ),
        "zh": (
            "什么时候开始的？",
            "还有别的不舒服吗？",
            "以前得过什么病吗？",
            "平时吃什么药？",
            "抽烟喝酒吗？",
            "家里人有什么病吗？",
            "发过烧吗？",
            "什么情况下会加重？",
            "体重和胃口有变化吗？",
        ),
    }
)
"""Its questions, by language."""
