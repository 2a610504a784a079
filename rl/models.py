"""Language models and tokenizers: loading by id or path, a small one from scratch, and atomic saving."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rl.architectures import attention_of, brings_code, is_here, skeleton, unreadable
from rl.chat_template import pieces_of
from rl.errors import TrainingError
from rl.files import replace_folder
from rl.linear_onednn import speed_up, worthwhile
from rl.logits import know_only
from rl.pace import keep_pace
from rl.ranks import whole

CONTROL_TOKENS = ("<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
NOT_OF_A_MODEL = ("learner.pt", "complete.json")  # what a checkpoint holds besides
GRAMMAR_TOKENS = ("<answer>", "</answer>", "<think>", "</think>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% if m['role'] == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def load_model(name: str, dtype: str, device: str = "cpu") -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a causal language model and its tokenizer by Hugging Face id or local path.

    Args:
        name: id or path.
        dtype: torch's name of the precision of its weights.
        device: torch's name of where they are to lie.

    Raises:
        TrainingError: nothing loadable there, or a kind of model that cannot be trained; the message names the path and
            the fix.
    """
    keep_pace()
    attention = attention_of(skeleton(name))
    tokenizer = load_tokenizer(name)
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            name,
            dtype=getattr(torch, dtype),
            attn_implementation=attention,
            local_files_only=is_here(name),
            trust_remote_code=False,
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise unreadable("the weights", name, error, "a folder with config.json and model.safetensors") from error
    except SafetensorError as error:
        raise TrainingError(
            f"{name}/model.safetensors is damaged ({error}); restore it or run the stage that made it again"
        ) from error
    if device == "cpu" and worthwhile():
        speed_up(model)
    know_only(model, tokenizer)
    return model.to(device), tokenizer


def new_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer with this project's chat template."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(GRAMMAR_TOKENS),
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    core.add_tokens(list(GRAMMAR_TOKENS))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=list(CONTROL_TOKENS[1:4]),
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def new_model(
    tokenizer: PreTrainedTokenizerBase, width: int, layers: int, heads: int, context: int, seed: int
) -> PreTrainedModel:
    """A small Qwen3 with random weights: `heads` query heads, half as many key-value heads, tied embeddings."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=width * 8 // 3 // 32 * 32,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(heads // 2, 1),
        head_dim=width // heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    config._attn_implementation = "sdpa"
    return Qwen3ForCausalLM(config)


def average_folders(folders: Sequence[Path], out: Path) -> None:
    """Write a model whose weights are the mean of those in the folders, complete or absent.

    Source: model soups, arXiv:2203.05482, here of one run.

    Files are read tensor by tensor: no more than one file of weights is in memory. All but the weights, and their
    precision, is the last folder's.

    Raises:
        TrainingError: the folders hold different models, or a file is damaged.
    """
    temporary = out.with_name(f".{out.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(
        folders[-1],
        temporary,
        ignore=lambda folder, names: [
            name
            for name in names
            if Path(folder) == folders[-1] and (name.endswith(".safetensors") or name in NOT_OF_A_MODEL)
        ],
    )
    try:
        places = [_places(folder) for folder in folders]
        if any(place.keys() != places[0].keys() for place in places):
            raise TrainingError(
                f"{folders[0]} and the checkpoints after it hold tensors of other names; they are no checkpoints of one model"
            )
        for file in sorted(set(places[-1].values())):
            names = [name for name, place in places[-1].items() if place == file]
            save_file(
                {name: _mean([_tensor(place[name], name) for place in places]) for name in names},
                temporary / file.name,
                {"format": "pt"},
            )
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"weights in {', '.join(map(str, folders))} cannot be averaged: {error}") from error
    replace_folder(temporary, out)


def _places(folder: Path) -> dict[str, Path]:
    """The file of each tensor: of the one file of weights, else of its shards."""
    whole = folder / "model.safetensors"
    found: dict[str, Path] = {}
    for file in [whole] if whole.exists() else sorted(folder.glob("model-*.safetensors")):
        with safe_open(file, "pt") as opened:
            found |= dict.fromkeys(opened.keys(), file)
    return found


def _tensor(file: Path, name: str) -> torch.Tensor:
    with safe_open(file, "pt") as opened:
        tensor: torch.Tensor = opened.get_tensor(name)
        return tensor


def _mean(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    total = tensors[0].double()
    for tensor in tensors[1:]:
        total += tensor
    return total.div_(len(tensors)).to(tensors[-1].dtype)


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, directory: Path) -> None:
    """Write model (safetensors) and tokenizer so that the folder is either complete or absent."""
    temporary = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    stop_where_turns_end(model, tokenizer)
    model.save_pretrained(temporary, state_dict={name: whole(value) for name, value in model.state_dict().items()})
    tokenizer.save_pretrained(temporary)
    replace_folder(temporary, directory)


def stop_where_turns_end(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Let who serves the model from its folder stop at the end of a turn, too: a model that was not tuned to dialogues
    names the end of a document alone, and would go on with the user's words.
    """
    if not tokenizer.chat_template:
        return
    (end, *_) = tokenizer.encode(pieces_of(tokenizer).after_turn, add_special_tokens=False)
    named = model.generation_config.eos_token_id
    known = [] if named is None else named if isinstance(named, list) else [named]
    if end not in known:
        model.generation_config.eos_token_id = [*known, end]


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a language model alone, by Hugging Face id or local path.

    Raises:
        TrainingError: there is none, or its model or itself is code that the repository brings.
    """
    local, folder = is_here(name), "a folder of a model"
    try:
        AutoConfig.from_pretrained(name, local_files_only=local, trust_remote_code=False)
    except (OSError, ValueError) as error:
        if brings_code(error):  # else there may be a tokenizer without a model
            raise unreadable("the shape", name, error, folder) from error
    try:
        found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            name, local_files_only=local, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise unreadable("the tokenizer", name, error, folder) from error
    return found
