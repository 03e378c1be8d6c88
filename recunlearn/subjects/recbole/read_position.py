"""Transformers whose score reads one position: their last layer at that position alone.

RecBole computes the last layer at every position of a sequence and then takes one (``gather_indexes``). The
others have no part in the score, and all gradients there are zero. Here keys and values are still those of
all positions; the query, its row of the attention, the output layer, the norms and all that follows are those
of the position that is read. Nothing of RecBole's computation is written anew: the inputs of some modules are
taken at the position.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from recunlearn.subjects.contract import Batch
from recunlearn.subjects.recbole.item_scores import LENGTH
from recunlearn.subjects.recbole.scoring import replaced

TAKEN_AT = {
    "MultiHeadAttention": ("query", "LayerNorm"),
    "LightMultiHeadAttention": ("dense", "LayerNorm"),
    "HybridAttention": ("dense", "LayerNorm"),
}
"""Class of an attention -> its modules whose inputs the position is taken of: from there on every position is
by itself. Queries of the light one share a softmax, those of the hybrid one a Fourier transform."""


def reads_one_position(metric: Callable[[nn.Module, Batch], Tensor], model: nn.Module, batch: Batch) -> bool:
    """Whether a metric reads the last layers at the last step of each history alone, and the same is found.

    Tried on ``batch``: the gradient at every other position must be zero, and the value must be the same.
    False where all histories are as long as their columns: the last step and the last column are then one.
    """
    layers = last_layers(model)
    if not layers or LENGTH not in batch.columns or not hasattr(model, "gather_indexes"):
        return False
    outputs: list[Tensor] = []
    mode = model.training

    def cut(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        outputs.append(output.detach().requires_grad_())
        return outputs[-1]

    try:
        model.eval()
        with ExitStack() as stack, torch.enable_grad():
            for layer in layers:
                stack.callback(layer.register_forward_hook(cut).remove)
            value = metric(model, batch)
            gradients = torch.autograd.grad(value.sum(), outputs)
        at = position(batch)
        if not all(_zero_elsewhere(g, at) for g in gradients):
            return False
        with torch.no_grad(), at_read_position(model, batch):
            return torch.allclose(metric(model, batch), value, rtol=1e-4, atol=1e-5)
    except (RuntimeError, IndexError):
        return False
    finally:
        model.train(mode)


@contextmanager
def at_read_position(model: nn.Module, batch: Batch) -> Iterator[None]:
    """Let the last layers of a model compute the position that the score of ``batch`` reads, and no other."""
    at = position(batch)
    gather: Any = model.gather_indexes

    def taken(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (_take(inputs[0], at, 1), *inputs[1:])

    def masked(_module: nn.Module, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        hidden, mask = inputs
        return hidden, _take(mask, at, 2)

    def gathered(output: Tensor, index: Tensor) -> Tensor:
        return output.squeeze(1) if output.shape[1] == 1 else gather(output, index)

    with ExitStack() as stack:
        for attention in map(_attention, last_layers(model)):
            names = TAKEN_AT[type(attention).__name__]
            for name in names:
                stack.callback(attention.get_submodule(name).register_forward_pre_hook(taken).remove)
            if "query" in names:
                stack.callback(attention.register_forward_pre_hook(masked).remove)
        stack.enter_context(replaced(model, "gather_indexes", gathered))
        yield


def position(batch: Batch) -> Tensor:
    """``[B]``: place of the last step of each history."""
    return batch.columns[LENGTH] - 1


def last_layers(model: nn.Module) -> list[nn.Module]:
    """Last layer of every encoder whose attention is known here."""
    stacks: list[Any] = [getattr(module, "layer", None) for module in model.modules()]
    last = [layers[-1] for layers in stacks if isinstance(layers, nn.ModuleList) and len(layers)]
    return [layer for layer in last if _attention(layer) is not None]


def _attention(layer: nn.Module) -> Any:
    return next((m for m in layer.children() if type(m).__name__ in TAKEN_AT), None)


def _take(values: Tensor, at: Tensor, axis: int) -> Tensor:
    """``values`` at one place of an axis, which stays, with length 1."""
    if values.shape[axis] == 1:
        return values
    shape = [*values.shape]
    shape[axis] = 1
    return values.gather(axis, at.view(-1, *[1] * (values.dim() - 1)).expand(shape))


def _zero_elsewhere(gradient: Tensor, at: Tensor) -> bool:
    """Whether ``[B, L, d]`` is zero but at the positions, some of which are not the last column."""
    index = at.view(-1, 1, 1).expand(-1, 1, gradient.shape[2])
    return bool((at < gradient.shape[1] - 1).any()) and not gradient.scatter(1, index, 0.0).any()


__all__ = ["at_read_position", "reads_one_position"]
