import pytest
import torch

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.settings import METHODS
from recunlearn.studies.methods import REGISTRY, find
from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.unlearning.methods.npo import npo
from recunlearn.unlearning.methods.simnpo import simnpo


def test_the_probe_knows_the_methods_of_its_settings():
    assert tuple(REGISTRY) == METHODS
    assert [m.name for m in REGISTRY.values() if not m.retains] == ["GradAscent"]


def test_strengths_suit_single_interactions():
    """docs/metrics/outcomes.md: β is 1 for NPO and SimNPO, and every interaction is a sequence of its own."""
    world = CheckerboardWorld(n_users=8, n_items=10, epochs=5)
    batch = next(world.batches(batch_size=30))
    other = world.retrain(torch.arange(1).numpy(), seed=1)
    with torch.no_grad():
        ll, reference = (world.log_likelihood(m, batch) for m in (other, world.model))
        found = [find(n).forget(world, other, world.model, batch) for n in ("NPO", "SimNPO")]
    assert found[0] == npo(ll, reference, 1.0)
    assert found[1] == simnpo(ll, 1.0)


@pytest.mark.parametrize("name", REGISTRY)
@pytest.mark.parametrize("family", ["pointwise", "pairwise", "softmax"])
def test_a_step_of_every_method_forgets(name, family):
    world = CheckerboardWorld(n_users=8, n_items=10, epochs=5, family=family)
    batch = next(world.batches(batch_size=30))
    ll = world.log_likelihood(world.model, batch)
    gradients = torch.autograd.grad(ll.mean(), list(world.model.parameters()))
    loss = find(name).forget(world, world.model, world.model, batch)
    steps = torch.autograd.grad(loss, list(world.model.parameters()))
    # going down the loss goes down the log-likelihood
    assert sum((a * b).sum() for a, b in zip(gradients, steps, strict=True)) > 0


def test_unknown_method():
    with pytest.raises(
        UsageError, match=r"Unknown unlearning method 'NPOO'\. Did you mean NPO\? Allowed: Grad"
    ):
        find("NPOO")
