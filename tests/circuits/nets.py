"""Tiny networks with an explicit graph, so that every edge can be computed by hand."""

import torch
from torch import Tensor, nn

from recunlearn.subjects.contract import Batch


class TinyNeuMF(nn.Module):
    """Two towers, one product, one hidden layer: the shape of NeuMF."""

    def __init__(self, smooth: bool = True, d: int = 4, rows: int = 7) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(rows, d), nn.Embedding(rows, d)
        self.user_mlp, self.item_mlp = nn.Embedding(rows, d), nn.Embedding(rows, d)
        self.hidden, self.out = nn.Linear(2 * d, 3), nn.Linear(d + 3, 1)
        self.act = nn.Tanh() if smooth else nn.ReLU()

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        product = self.user(user) * self.item(item)
        hidden = self.act(self.hidden(torch.cat([self.user_mlp(user), self.item_mlp(item)], -1)))
        return self.out(torch.cat([product, hidden], -1)).squeeze(-1)


class TinyAttention(nn.Module):
    """Positions, a residual, a norm and one attention head: the shape of SASRec."""

    def __init__(self, d: int = 4, rows: int = 7, length: int = 5) -> None:
        super().__init__()
        self.item, self.position = nn.Embedding(rows, d, padding_idx=0), nn.Embedding(length, d)
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)

    def forward(self, seq: Tensor, target: Tensor) -> Tensor:
        x = self.item(seq) + self.position(torch.arange(seq.shape[1]).expand_as(seq))
        weights = torch.softmax(self.q(x) @ self.k(x).transpose(1, 2) + -1e4 * (seq == 0).unsqueeze(1), -1)
        x = self.norm(x + weights @ self.v(x))
        return (x[:, -1] * self.item(target)).sum(-1)


def neumf(smooth: bool = True, dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[nn.Module, Batch]:
    torch.manual_seed(seed)
    batch = Batch({"user": torch.arange(6), "item": torch.tensor([1, 4, 2, 2, 6, 3])}, torch.arange(6))
    return TinyNeuMF(smooth).to(dtype).eval(), batch


def attention(dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[nn.Module, Batch]:
    torch.manual_seed(seed)
    seq = torch.tensor([[0, 0, 1, 2, 3], [1, 2, 3, 4, 5], [0, 6, 2, 1, 5]])
    return TinyAttention().to(dtype).eval(), Batch(
        {"seq": seq, "target": torch.tensor([4, 6, 3])}, torch.arange(3)
    )


def score(model: nn.Module, batch: Batch) -> Tensor:
    return torch.nn.functional.logsigmoid(model(*batch.columns.values()))
