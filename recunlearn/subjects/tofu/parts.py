"""Which modules of a transformer are the components of its circuit, found by structure and common names."""

import inspect
from collections.abc import Iterator
from typing import Any, Literal

from torch import nn

from recunlearn.foundation.errors import TraceError
from recunlearn.subjects.contract import PlanHints

ATTENTION = ("self_attn", "attn", "attention", "self_attention")
FEED_FORWARD = ("mlp", "feed_forward", "ffn", "block_sparse_moe")
OUT = ("o_proj", "out_proj", "dense", "c_proj", "wo")
APART = {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
TOKEN = "token"
STREAM = "residual"
"""What a layer that adds the residual stream to its own output calls it."""


def components_of(model: Any, attention: Literal["whole", "apart"] = "whole") -> PlanHints:
    """Embedding, output of every attention (split by head) and of every MLP.

    In the residual stream every earlier component reaches every later one; the tracer finds that by itself,
    as well as blocks that run attention and MLP side by side.

    Args:
        model: a causal transformer.
        attention: "apart": query, key and value are components too, and read the stream each for itself.

    Raises:
        TraceError: a model whose layers are not recognised.
    """
    paths = {id(m): name for name, m in model.named_modules()}
    names = {paths[id(model.get_input_embeddings())]: TOKEN}
    heads: dict[str, int] = {}
    for number, layer in enumerate(_layers(model)):
        attend, feed = _child(model, layer, ATTENTION), _child(model, layer, FEED_FORWARD)
        _refuse_stream(model, feed)
        if attention == "apart":
            names |= {paths[id(m)]: f"attention.{number}.{part}" for part, m in _apart(model, attend)}
        out = paths[id(_child(model, attend, OUT))]
        names[out], heads[out] = f"attention.{number}", _count(model)
        names[paths[id(feed)]] = f"mlp.{number}"
    components = tuple(name for name, given in names.items() if given != TOKEN)
    return PlanHints(names=names, components=components, heads=heads)


def _layers(model: nn.Module) -> list[nn.Module]:
    """Blocks of the model: the longest list of modules that have an attention each."""
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m)]
    found = [list(m) for m in lists if all(any(hasattr(layer, a) for a in ATTENTION) for layer in m)]
    if not found:
        raise _unknown(model, f"a list of layers with an attention each ({', '.join(ATTENTION)})")
    return max(found, key=len)


def _child(model: nn.Module, holder: nn.Module, names: tuple[str, ...]) -> nn.Module:
    for name in names:
        found = getattr(holder, name, None)
        if isinstance(found, nn.Module):
            return found
    raise _unknown(model, f"{' or '.join(names)} in {type(holder).__name__}")


def _refuse_stream(model: nn.Module, feed: nn.Module) -> None:
    if STREAM in inspect.signature(feed.forward).parameters:
        raise TraceError(
            f"{type(model).__name__} adds the residual stream inside {type(feed).__name__}, so what earlier "
            "layers wrote cannot be told from what this one did. Choose another model."
        )


def _apart(model: nn.Module, attend: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, part in APART.items():
        found = getattr(attend, name, None)
        if not isinstance(found, nn.Module):
            raise TraceError(
                f"{type(attend).__name__} computes query, key and value in one layer, so its input is one "
                "sink. Set circuits.attention = 'whole'."
            )
        yield part, found


def _count(model: nn.Module) -> int:
    found = getattr(model.config, "num_attention_heads", None)
    if not isinstance(found, int):
        raise _unknown(model, "a number of attention heads in its configuration")
    return found


def _unknown(model: nn.Module, missing: str) -> TraceError:
    return TraceError(
        f"{type(model).__name__} has not the layers of the transformers that are known (Llama, Qwen, Phi, "
        f"GPT-2, Pythia and kin): it lacks {missing}. Choose another model."
    )


__all__ = ["components_of"]
