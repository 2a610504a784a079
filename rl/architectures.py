"""Which kinds of model can be trained here, told from the configuration before any weight is read."""

from pathlib import Path

import torch
from huggingface_hub import try_to_load_from_cache
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from rl.errors import TrainingError, first_line

ADVICE = (
    "choose a decoder with rotary positions and a plain key-value cache: Qwen2, Qwen3, Llama, Mistral, Gemma, Phi-3, "
    "OLMo-2, Granite, Cohere"
)
LAYERS = {"full_attention", "sliding_attention"}


def skeleton(name: str) -> PreTrainedModel:
    """A causal language model without weights (torch's meta device), by Hugging Face id or local path.

    Raises:
        TrainingError: nothing readable there, or a kind of model that cannot be trained here; the message says what to
            do.
    """
    local = is_here(name)
    try:
        config = AutoConfig.from_pretrained(name, local_files_only=local, trust_remote_code=False)
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise unreadable("the shape", name, error, "a folder with config.json") from error
    if reason := why_not(model):
        raise TrainingError(f"{name!r} ({config.model_type}) cannot be trained here: {reason}; {ADVICE}")
    return model


def is_here(name: str) -> bool:
    """Whether a model is a folder of this machine, and no Hugging Face id.

    Raises:
        TrainingError: it can only be a folder, and is not there: asking a hub for it takes minutes where there is none.
    """
    path = Path(name)
    if path.exists():
        return True
    if name.startswith((".", "/", "~")) or len(path.parts) > 2:
        raise TrainingError(
            f"cannot read the model {name!r}: no such folder (give a Hugging Face id or a folder of a model)"
        )
    if len(path.parts) == 2 and path.parent.is_dir() and try_to_load_from_cache(name, "config.json") is None:
        raise TrainingError(
            f"cannot read the model {name!r}: the folder {path.parent} has no {path.name} (if it is a Hugging Face id, fetch"
            f" it first: hf download {name})"
        )
    return False


def unreadable(what: str, name: str, error: Exception, folder: str) -> TrainingError:
    """What is said, in one line, of something that transformers cannot read, or only by running a repository's code.

    Args:
        what: was to be read.
        name: Hugging Face id or local path.
        error: of transformers.
        folder: that would do.
    """
    if brings_code(error):
        place = "config.json or tokenizer_config.json"
        return TrainingError(f"{name!r} brings code of its own (auto_map in its {place}), which is never run; {ADVICE}")
    return TrainingError(f"cannot read {what} of {name!r}: {first_line(error)} (give a Hugging Face id or {folder})")


def brings_code(error: Exception) -> bool:
    """Whether transformers would have to run code of a repository."""
    return "trust_remote_code" in str(error)


def why_not(model: PreTrainedModel) -> str | None:
    """What of a model the trainer or the engine has no arithmetic for; None: nothing that is known of."""
    config = model.config.get_text_config()
    if getattr(config, "kv_lora_rank", None):
        return "its key-value cache is compressed (multi-head latent attention)"
    if getattr(model, "_is_stateful", False):
        return "it keeps a state instead of keys and values"
    if getattr(config, "rope_parameters", None) is None:
        return "its positions are learned or added to the attention scores, not rotary (no rope_parameters)"
    if getattr(config, "num_key_value_heads", None) is None:
        return "its configuration does not say how many key-value heads it has (num_key_value_heads)"
    if other := sorted(set(getattr(config, "layer_types", None) or ()) - LAYERS):
        return f"it has layers of kind {', '.join(other)}"
    if any(name.rpartition(".")[2] == "sinks" for name, _ in model.named_parameters()):
        return "its attention has learned sinks"
    if getattr(config, "use_bidirectional_attention", None):
        return "its attention looks ahead (use_bidirectional_attention)"
    return None


def attention_of(model: PreTrainedModel) -> str:
    """The implementation of attention that computes what a model's configuration says: only eager caps scores."""
    capped = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
    return "eager" if capped else "sdpa"
