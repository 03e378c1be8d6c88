import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.settings import AnchorSettings
from recunlearn.studies.bilevel import SignSGD, bilevel, project, worst_case_weights
from recunlearn.testing.checkerboard import CheckerboardWorld

SMALL = AnchorSettings(source="bilevel", pool=20, count=4, batch_size=128, learning_rate=0.02, most_steps=40)
vectors = arrays(np.float64, 6, elements=st.floats(-4, 4, width=16))


def test_projection_by_hand():
    # (2, .5, 0) onto Σ w = 1.5: ν = 0 gives 1 + .5 + 0 = 1.5
    assert project(np.array([2.0, 0.5, 0.0]), 1.5) == pytest.approx([1, 0.5, 0])
    # (.9, .5, .4) onto Σ w = 1.2: ν = .2
    assert project(np.array([0.9, 0.5, 0.4]), 1.2) == pytest.approx([0.7, 0.3, 0.2])


@settings(deadline=None)
@given(vectors, st.floats(0, 6))
def test_projection_satisfies_its_conditions(values, total):
    w = project(values, total)
    assert ((w >= 0) & (w <= 1)).all()
    assert w.sum() == pytest.approx(total, abs=1e-9)
    # KKT: one ν with v - w = ν inside, >= ν at 1, <= ν at 0
    excess = values - w
    inside, at_one, at_zero = (w > 1e-9) & (w < 1 - 1e-9), w >= 1 - 1e-9, w <= 1e-9
    lower = max([*excess[inside], *excess[at_zero]], default=-np.inf)
    upper = min([*excess[inside], *excess[at_one]], default=np.inf)
    assert lower <= upper + 1e-6


@settings(max_examples=15, deadline=None)
@given(vectors, st.floats(0.5, 5.5))
def test_projection_is_nearest(values, total):
    found = minimize(
        lambda w: ((w - values) ** 2).sum(),
        np.full(6, total / 6),
        method="SLSQP",
        bounds=[(0, 1)] * 6,
        constraints={"type": "eq", "fun": lambda w: w.sum() - total},
        options={"maxiter": 300, "ftol": 1e-12},
    )
    w = project(values, total)
    assert ((w - values) ** 2).sum() <= found.fun + 1e-6


def test_weights_go_to_what_stays_low_and_to_what_rises():
    # losses that the weights do not change: the worst case is the lowest, the best the highest
    loss = np.array([3.0, 1.0, 2.0, 0.5, 4.0, 2.5])
    hard = worst_case_weights(lambda w: loss, 6, 2.0, sign=1.0, iterations=40)
    easy = worst_case_weights(lambda w: loss, 6, 2.0, sign=-1.0, iterations=40)
    assert set(np.argsort(-hard)[:2]) == {1, 3}
    assert set(np.argsort(-easy)[:2]) == {0, 4}
    assert hard.sum() == pytest.approx(2)
    assert easy.sum() == pytest.approx(2)


def test_equal_losses_leave_the_weights_even():
    weights = worst_case_weights(lambda w: np.ones(5), 5, 2.0, sign=1.0)
    assert weights == pytest.approx(np.full(5, 0.4))


def test_sign_steps_by_hand():
    parameter = torch.nn.Parameter(torch.tensor([1.0, -1.0, 0.0]))
    parameter.grad = torch.tensor([0.001, -50.0, 0.0])
    SignSGD([parameter], lr=0.5).step()
    assert parameter.tolist() == [0.5, -0.5, 0.0]


def test_bilevel_agrees_between_seeds_and_resumes(tmp_path):
    world = CheckerboardWorld(random_users=10)
    parts = []
    anchors = bilevel(world, SMALL, folder=tmp_path, progress=lambda *part: parts.append(part))
    assert anchors.agreement["kendall_w_seeds"] > 0.8
    assert len(anchors.easy) == len(anchors.hard) == 4
    assert not set(anchors.easy) & set(anchors.hard)
    assert ((anchors.hardness >= 0) & (anchors.hardness <= 1)).all()
    assert [done for _, done, _ in parts] == [1, 2]
    stored = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}
    again = bilevel(world, SMALL, folder=tmp_path)
    assert np.array_equal(again.hard, anchors.hard)
    assert all(p.stat().st_mtime_ns == time for p, time in stored.items())


def test_share_left_needs_retrained_models():
    world = CheckerboardWorld(epochs=1)
    with pytest.raises(UsageError, match="'increase' or 'level', but got 'share-left'"):
        bilevel(world, SMALL.model_copy(update={"outcome": "share-left"}))
