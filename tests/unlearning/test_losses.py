"""Every forget loss against values worked out by hand, its limits, and the words of torch."""

import pytest
import torch
import torch.nn.functional as F

from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.unlearning.gradient import kl_divergence
from recunlearn.unlearning.methods.grad_ascent import grad_ascent
from recunlearn.unlearning.methods.npo import npo
from recunlearn.unlearning.methods.simnpo import by_entity, simnpo
from recunlearn.unlearning.methods.undial import undial


def gradient(loss, value):
    value = value.clone().requires_grad_()
    loss(value).backward()
    return value.grad


LL = torch.tensor([-0.5, -2.0], dtype=torch.float64)
REFERENCE = torch.tensor([-0.4, -1.0], dtype=torch.float64)


def test_grad_ascent_by_hand():
    # mean of -.5 and -2
    assert grad_ascent(LL).item() == pytest.approx(-1.25)


def test_npo_by_hand():
    # β = 2: β (ℓ - ℓ_ref) = .2 and 2; -(2/2) · mean(log σ(.2), log σ(2)) = (.598139 + .126928) / 2
    assert npo(LL, REFERENCE, beta=2.0).item() == pytest.approx((0.598139 + 0.126928) / 2, abs=1e-6)


def test_npo_becomes_grad_ascent_as_beta_vanishes():
    assert gradient(lambda ll: npo(ll, REFERENCE, beta=1e-6), LL) == pytest.approx(
        gradient(grad_ascent, LL), abs=1e-5
    )


def test_npo_weight_by_hand():
    # ∂NPO/∂ll = 2 (1 - σ(β (ℓ - ℓ_ref))) / B: what is forgotten already is pushed less
    weights = gradient(lambda ll: npo(ll, REFERENCE, beta=1.0), LL)
    assert weights == pytest.approx(torch.sigmoid(torch.tensor([-0.1, -1.0])).double(), abs=1e-6)


def test_simnpo_by_hand():
    # β = 1, δ = 0: -2 · mean(log σ(.5), log σ(2)) = .474077 + .126928
    assert simnpo(LL, beta=1.0).item() == pytest.approx(0.474077 + 0.126928, abs=1e-6)
    # δ = .5: -2 · mean(log σ(0), log σ(1.5)) = .693147 + .201413
    assert simnpo(LL, beta=1.0, delta=0.5).item() == pytest.approx(0.693147 + 0.201413, abs=1e-6)


def test_simnpo_is_npo_without_a_reference():
    assert simnpo(LL, beta=1.5) == npo(LL, torch.zeros(2), beta=1.5)


def test_undial_with_two_classes_is_a_lowered_target():
    # target σ(s_ref - β): cross-entropy to it, in the words of torch
    s, original = torch.tensor([0.3, -1.0, 2.0]), torch.tensor([1.0, 2.0, -3.0])
    two = lambda x: torch.stack([torch.zeros_like(x), x], 1)  # noqa: E731
    found = undial(two(s), two(original), torch.ones(3, dtype=torch.long), beta=3.0)
    expected = F.binary_cross_entropy_with_logits(s, torch.sigmoid(original - 3.0))
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)


def test_undial_softmax_is_cross_entropy_to_the_lowered_distribution():
    torch.manual_seed(0)
    z, original, y = torch.randn(4, 6), torch.randn(4, 6), torch.tensor([0, 3, 5, 2])
    target = (original - 10.0 * F.one_hot(y, 6)).softmax(1)
    assert undial(z, original, y, beta=10.0).item() == pytest.approx(
        F.cross_entropy(z, target).item(), abs=1e-6
    )


def test_undial_rests_where_the_target_is_met():
    torch.manual_seed(0)
    original, y = torch.randn(4, 6), torch.tensor([0, 3, 5, 2])
    there = original - 10.0 * F.one_hot(y, 6)
    assert gradient(lambda z: undial(z, original, y, beta=10.0), there).abs().max() < 1e-7


@pytest.mark.parametrize("family", ["pointwise", "pairwise", "softmax"])
def test_predictions_name_the_item(family):
    world = CheckerboardWorld(n_users=8, n_items=10, epochs=5, family=family)
    batch = next(world.batches(batch_size=30))
    column = world.predictions(batch).column
    expected = batch.columns["item_id"] if family == "softmax" else torch.ones(len(batch), dtype=torch.long)
    assert torch.equal(column, expected)


def test_users_count_once_by_hand():
    # user 4: (-1 - 3) / 2 = -2; user 9: -5
    ll, entity = torch.tensor([-1.0, -5.0, -3.0]), torch.tensor([4, 9, 4])
    assert by_entity(ll, entity).tolist() == [-2.0, -5.0]


def test_kl_divergence_by_hand_and_by_torch():
    # KL(½, ½ ‖ ¼, ¾) = ½ log 2 + ½ log ⅔ = ½ log 4/3
    half, other = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    assert kl_divergence(half, other).item() == pytest.approx(0.5 * 0.287682, abs=1e-6)
    torch.manual_seed(0)
    p, q = torch.randn(5, 7).log_softmax(1), torch.randn(5, 7).log_softmax(1)
    assert kl_divergence(p, q).item() == pytest.approx(
        F.kl_div(q, p, reduction="batchmean", log_target=True).item()
    )
    # a class that is never kept adds nothing
    assert kl_divergence(torch.tensor([[0.0, -torch.inf]]), half).item() == pytest.approx(0.693147, abs=1e-6)
