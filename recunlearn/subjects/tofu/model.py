"""Language models of transformers: from a folder, a GGUF file, the hub, or new from a configuration."""

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from torch import nn

from recunlearn.foundation.errors import CheckpointError, RecunlearnError, UsageError, is_memory_error
from recunlearn.subjects.tofu.architecture import configuration, refused

END = "<|end|>"
"""Token that ends an answer, of a tokenizer trained on the rows."""
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
"""What the folder of a language model holds."""
AHEAD = 1e-4
"""Relative change of scores that is rounding error."""


@contextmanager
def quiet_transformers(*, online: bool = True) -> Iterator[None]:
    """Without its progress bars and remarks, and without the network unless ``online``.

    Raises:
        RecunlearnError: the extra ``llm`` is not installed.
    """
    try:
        from huggingface_hub import constants
        from transformers.utils import logging
    except ImportError as error:
        raise RecunlearnError(
            f"Language models need the extra 'llm' ({error}). Install it: pip install recunlearn[llm]"
        ) from None
    level, bars, offline = (
        logging.get_verbosity(),
        logging.is_progress_bar_enabled(),
        constants.HF_HUB_OFFLINE,
    )
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # Some look-ups (adapter_config.json) ask the network even where local files alone were asked for.
    constants.HF_HUB_OFFLINE = offline or not online
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|peft)(\..*)?")
            yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def load_model(source: str, *, online: bool = False) -> tuple[nn.Module, Any]:
    """Model (float32, eval mode) and tokenizer.

    Args:
        source: folder, GGUF file, or name on the hub.
        online: ask the hub; else only what lies in its local cache is found.

    Raises:
        CheckpointError: no such model, one without weights, or one of another kind.
    """
    place, options = _place(source)
    with quiet_transformers(online=online):
        from transformers import AutoModelForCausalLM

        try:
            with redirect_stderr(io.StringIO()):  # the reader of GGUF files has a progress bar of its own
                found, told = AutoModelForCausalLM.from_pretrained(
                    place,
                    dtype=torch.float32,
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,
                    **options,
                )
        except Exception as error:  # whatever the readers of the many formats raise
            if is_memory_error(error):
                raise
            raise CheckpointError(_no_model(source, error, online)) from None
        _refuse_made_up(source, told)
        model = _plain(found) if "gguf_file" in options else found
        return model.eval(), load_tokenizer(source, online=online)


def load_tokenizer(source: str, *, online: bool = False) -> Any:
    """Tokenizer of a model, of a folder or of a name on the hub."""
    place, options = _place(source)
    with quiet_transformers(online=online):
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(place, **options)
        except Exception as error:
            raise CheckpointError(
                f"{source} has no tokenizer that can be read ({_first_line(error)}). Place tokenizer.json "
                "and tokenizer_config.json there, or name another tokenizer."
            ) from None


def new_model(architecture: dict[str, Any], tokenizer: Any, seed: int) -> nn.Module:
    """Untrained model of a configuration, its vocabulary that of the tokenizer.

    Raises:
        UsageError: a configuration that transformers refuses.
    """
    values = {"vocab_size": len(tokenizer), **architecture}
    values |= {k: getattr(tokenizer, k) for k in ("bos_token_id", "eos_token_id")}
    with quiet_transformers(), torch.random.fork_rng(), torch.no_grad():
        from transformers import AutoModelForCausalLM

        config = configuration(values)
        torch.manual_seed(seed)
        try:
            model = AutoModelForCausalLM.from_config(config).float().eval()
            model(input_ids=torch.zeros((1, 2), dtype=torch.long))  # sizes that do not fit each other
        except Exception as error:
            if is_memory_error(error):
                raise
            raise refused(config.model_type, error) from None
    return model


def new_tokenizer(texts: Sequence[str], size: int) -> Any:
    """Byte-pair tokenizer trained on the rows: at most ``size`` tokens, no text is unknown to it."""
    with quiet_transformers():
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
        from transformers import PreTrainedTokenizerFast

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=[END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=None)


def vocabulary_of(model: Any) -> int:
    """Tokens that a model knows."""
    return int(model.get_input_embeddings().weight.shape[0])


def context_of(model: nn.Module) -> int | None:
    """Most tokens that a model reads; None where its configuration does not say.

    A model with two sets of rotations (``longrope``) takes the second for a whole batch as soon as one row is
    longer than it was first trained on: that length is its context here, so that no row depends on others.
    """
    config: Any = model.config
    found = getattr(config, "max_position_embeddings", None)
    rotations = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if "longrope" in (rotations.get("rope_type"), rotations.get("type")):
        found = rotations.get("original_max_position_embeddings") or config.original_max_position_embeddings
    return None if found is None else int(found)


@torch.no_grad()
def refuse_reading_ahead(model: nn.Module) -> None:
    """Refuse a model whose scores depend on what follows: it would read the answers that it is asked for.

    Raises:
        UsageError: another last token changes the scores of earlier ones.
    """
    device = next(model.parameters()).device
    tokens = torch.tensor([[3, 4, 5, 6], [3, 4, 5, 7]], device=device)
    scores = model(input_ids=tokens, use_cache=False).logits[:, :-1].float()
    if float((scores[0] - scores[1]).abs().max()) > AHEAD * float(scores.abs().max()):
        raise UsageError(
            f"{type(model).__name__} reads tokens that follow, so it would see the answers that it is asked "
            "for. Choose a causal model, such as Llama, Qwen, Phi, GPT-2 or Pythia."
        )


def _place(source: str) -> tuple[str, dict[str, Any]]:
    path = Path(source)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise CheckpointError(f"{path} does not exist. Correct the path of the GGUF file.")
        return str(path.parent), {"gguf_file": path.name}
    if path.is_dir():
        files = sorted(p.name for p in path.glob("*.gguf"))
        if (path / "config.json").is_file() or not files:
            return str(path), {}
        if len(files) > 1:
            raise CheckpointError(f"{path} holds {len(files)} GGUF files. Name one: {path / files[0]}")
        return str(path), {"gguf_file": files[0]}
    if path.is_file():
        raise CheckpointError(
            f"{path} is a file. Name a folder of transformers, or a file that ends in .gguf."
        )
    if path.is_absolute() or source.startswith(".") or source.count("/") > 1:
        raise CheckpointError(f"{path} does not exist. Correct the path of the model.")
    return source, {}


def _no_model(source: str, error: Exception, online: bool) -> str:
    path = Path(source)
    if path.is_dir():
        held = ", ".join(sorted(p.name for p in path.iterdir())[:8]) or "nothing"
        return (
            f"{path} holds no language model with weights ({_first_line(error)}). A folder needs config.json "
            f"and model.safetensors, or one GGUF file, but this one holds: {held}."
        )
    if path.suffix == ".gguf":
        return f"{path} cannot be read as a GGUF model ({_first_line(error)}). Give another file."
    if online and not os.environ.get("HF_HUB_OFFLINE"):
        return (
            f"The model '{source}' could not be fetched from the hub ({_first_line(error)}). Fetch "
            f"{', '.join(FILES)} on another machine and name their folder."
        )
    return (
        f"The model '{source}' is no folder here and not in the hub's local cache. Name a folder with "
        f"{', '.join(FILES)}, or add --download where the network allows."
    )


def _refuse_made_up(source: str, told: dict[str, Any]) -> None:
    """Refuse weights that the files do not have: transformers draws them at random."""
    others = [name for name, *_ in told["mismatched_keys"]]
    made_up = sorted({*told["missing_keys"], *others})
    if made_up:
        size = " in this size" if others else ""
        raise CheckpointError(
            f"{source} lacks {len(made_up)} of the weights that its configuration describes{size}, such as "
            f"{made_up[0]}. Place config.json and weights of one model there, or name another."
        )


def _plain(quantised: nn.Module) -> nn.Module:
    """The same weights in a model that knows nothing of the quantised file it came from."""
    from transformers import AutoModelForCausalLM

    config = quantised.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config).float()
    model.load_state_dict(quantised.state_dict())
    model.generation_config = quantised.generation_config
    return model


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".: ")


__all__ = [
    "context_of",
    "load_model",
    "load_tokenizer",
    "new_model",
    "new_tokenizer",
    "quiet_transformers",
    "refuse_reading_ahead",
    "vocabulary_of",
]
