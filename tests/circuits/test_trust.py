"""Models that the engine does not fit are refused, and awkward ones that it does fit are not."""

import pytest
import torch
from torch import Tensor, nn

from recunlearn.circuits.attribution import EdgeAttribution
from recunlearn.circuits.discovery import discover
from recunlearn.circuits.subject import ModuleSubject
from recunlearn.circuits.trust import check_trust
from recunlearn.foundation.errors import TraceError
from recunlearn.subjects.contract import Batch


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.user, self.item = nn.Embedding(9, 4), nn.Embedding(9, 4)
        self.hidden, self.out = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return self.out(torch.tanh(self.hidden(self.user(user) * self.item(item)))).squeeze(1)


class Mixing(Base):
    """The score of a sample depends on the batch."""

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        x = self.user(user)
        return ((x - x.mean(0)) * self.item(item)).sum(1)


class Hiding(Base):
    """Half of what the user contributes is hidden from autograd."""

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        x = self.user(user)
        return (x * self.item(item)).sum(1) + 5 * x.detach().tanh().sum(1)


class Writing(Base):
    """Overwrites a part of its activations."""

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        x = self.hidden(self.user(user))
        x[:, 0] = 0.5
        y = self.item(item)
        y += 1
        return (x * y).sum(1)


class Sorting(Base):
    """Runs a layer in another order than that of the samples, as packed sequences do."""

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        x, order = self.user(user), torch.argsort(item, descending=True)
        x = torch.tanh(self.hidden(x[order]))[torch.argsort(order)]
        return (x * self.item(item)).sum(1)


class Spectral(Base):
    """Filters in the frequency domain: complex numbers between two products."""

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        waves = torch.fft.rfft(self.user(user)) * torch.fft.rfft(self.item(item))
        return self.out(torch.fft.irfft(waves, n=4)).squeeze(1)


def subject(kind: type[Base]) -> tuple[ModuleSubject, Batch]:
    batch = Batch(
        {"user_id": torch.tensor([3, 1, 4, 2, 5]), "item_id": torch.tensor([6, 5, 3, 8, 7])}, torch.arange(5)
    )
    return ModuleSubject(kind().eval(), lambda m, b: m(*b.columns.values())), batch


def engine(kind: type[Base]) -> tuple[EdgeAttribution, Batch]:
    traced, batch = subject(kind)
    return EdgeAttribution(traced, discover(traced, batch, groups=1), baseline="zero"), batch


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Mixing, "edges of a sample depend on the other samples"),
        (Hiding, "do not add up to the change of its score"),
    ],
)
def test_refused(kind: type[Base], reason: str):
    with pytest.raises(TraceError, match=f"{kind.__name__} cannot be traced: .*{reason}"):
        check_trust(*engine(kind))


def test_a_pass_that_gives_another_score_is_refused(monkeypatch: pytest.MonkeyPatch):
    tried, batch = engine(Base)
    plain = tried.metric
    other = EdgeAttribution(subject(Base)[0], tried.plan)
    monkeypatch.setattr(tried, "ends", other.ends)
    monkeypatch.setattr(tried, "metric", lambda m, b: plain(m, b) + 0.1)
    with pytest.raises(TraceError, match="does not give its own score"):
        check_trust(tried, batch)


@pytest.mark.parametrize("kind", [Base, Writing, Sorting, Spectral])
def test_trusted_and_complete(kind: type[Base]):
    tried, batch = engine(kind)
    check_trust(tried, batch)
    found = tried.explain(batch, n_steps=64)
    assert found.change.abs().min() > 1e-3
    assert found.delta.abs().max() < 1e-5
    torch.testing.assert_close(found.value, tried.metric(tried.model, batch).detach())


def test_a_layer_in_another_order_is_not_cut():
    tried, _ = engine(Sorting)
    assert [c.name for c in tried.plan.components] == ["user", "item", "score"]


def test_leaves_survive_a_model_that_writes():
    """The starting values and the leaves of one pass are the same in the next."""
    tried, batch = engine(Writing)
    names = [c.name for c in tried.plan.components]
    assert {names[i] for i in tried.plan.written} == {
        "hidden",
        "item",
    }  # not the user's rows: nobody writes there
    first = tried.explain(batch, n_steps=4)
    torch.testing.assert_close(tried.explain(batch, n_steps=4).edges, first.edges, rtol=0, atol=0)
