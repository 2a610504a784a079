"""A sequence-classification model as reward: any Hugging Face id or folder with one output, batched."""

import math
from collections.abc import Mapping, Sequence

import torch
from jinja2 import TemplateError
from safetensors import SafetensorError
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel

from rl.architectures import is_here
from rl.chat_template import FOLDED
from rl.errors import TrainingError


class RewardModel:
    """Scores transcripts. The tokenizer's chat template renders them where it has one, else "role: text" lines."""

    def __init__(self, path: str, dtype: str, batch_size: int, max_tokens: int, device: str = "cpu") -> None:
        """Load the model.

        Args:
            path: folder or Hugging Face id.
            dtype: torch dtype name.
            batch_size: transcripts in one forward pass.
            max_tokens: a longer transcript keeps its end; never more than the model has places for.
            device: torch's name of where it is to lie.

        Raises:
            TrainingError: it cannot be loaded, lacks a trained head, or has another number of outputs than one.
        """
        self._path = path
        local = is_here(path)
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(
                path, truncation_side="left", local_files_only=local, trust_remote_code=False
            )
            model, loaded = AutoModelForSequenceClassification.from_pretrained(
                path,
                dtype=getattr(torch, dtype),
                output_loading_info=True,
                local_files_only=local,
                trust_remote_code=False,
            )
        # damaged files of weights and of tokenizers fail in ways of their own
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise TrainingError(
                f"reward model {path!r} cannot be loaded ({' '.join(str(error).split())[:200]}); correct path in recipes/rewards/model.yaml, or fetch it again"
            ) from error
        self._model = model.to(device).eval()
        if loaded["missing_keys"]:
            missing = sorted(loaded["missing_keys"])[0]
            raise TrainingError(
                f"reward model {path!r} has no weights for {missing}, so its scores would be noise; name a trained sequence-classification model"
            )
        if self._model.config.num_labels != 1:
            raise TrainingError(
                f"reward model {path!r} has {self._model.config.num_labels} outputs; the reward preset model needs one with a single score"
            )
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        self._model.config.pad_token_id = self._tokenizer.pad_token_id
        self._batch_size, self._max_tokens = batch_size, min(max_tokens, _places(self._model, max_tokens))

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """A transcript as the model reads it; a template that knows no system role finds its words before the user's."""
        if not self._tokenizer.chat_template:
            return "\n".join(f"{message['role']}: {message['content']}" for message in messages)
        said = [dict(message) for message in messages]
        try:
            return str(self._tokenizer.apply_chat_template(said, tokenize=False))
        except TemplateError as error:
            if len(said) < 2 or said[0]["role"] != "system":
                raise TrainingError(
                    f"reward model {self._path!r}: its chat template refuses a transcript of {', '.join(m['role'] for m in said)} ({error}); name another model"
                ) from error
            first = said[1] | {"content": f"{said[0]['content']}{FOLDED}{said[1]['content']}"}
            return self.render([first, *said[2:]])

    @torch.inference_mode()
    def score(self, transcripts: Sequence[Sequence[Mapping[str, str]]]) -> list[float | None]:
        """The model's output for each transcript, in order, None where it is no number; batches are cut by length so
        that little is padded.
        """
        texts = [self.render(messages) for messages in transcripts]
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        scores: list[float | None] = [None] * len(texts)
        for start in range(0, len(order), self._batch_size):
            rows = order[start : start + self._batch_size]
            inputs = self._tokenizer(
                [texts[i] for i in rows],
                return_tensors="pt",
                padding=True,
                truncation=True,
                max_length=self._max_tokens,
                add_special_tokens=not self._tokenizer.chat_template,  # a template writes them itself
            ).to(self._model.device)
            for i, value in zip(rows, self._model(**inputs).logits[:, 0].float().tolist(), strict=True):
                scores[i] = value if math.isfinite(value) else None
        return scores


def _places(model: PreTrainedModel, most: int) -> int:
    """Tokens that a model has places for; RoBERTa's kin count theirs from behind the one of padding."""
    places = getattr(model.config.get_text_config(), "max_position_embeddings", most)
    padding = [
        module.padding_idx
        for name, module in model.named_modules()
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding)
    ]
    return int(places) - max((place + 1 for place in padding if place is not None), default=0)
