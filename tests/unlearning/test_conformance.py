"""Every method that one model is enough for, on every world, under the tests that ship with the package."""

import pytest

from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.testing.linear import LinearWorld
from recunlearn.testing.unlearner_contract import UnlearnerContract
from recunlearn.unlearning.registry import make

LOOP = {"batch_size": 64, "learning_rate": 0.03, "steps": 14, "until": "steps"}
METHODS = {
    **dict.fromkeys(("GradAscent", "GradDiff", "NPO", "SimNPO", "UNDIAL"), LOOP),
    "E2URec": {**LOOP, "augment_epochs": 10},
    "retrain": {},
}
FAMILIES = ("pointwise", "pairwise", "softmax")


class TestCheckerboard(UnlearnerContract):
    @pytest.fixture(scope="class", params=METHODS)
    @classmethod
    def unlearner(cls, request):
        return make(request.param, METHODS[request.param])

    @pytest.fixture(scope="class", params=FAMILIES)
    @classmethod
    def subject(cls, request):
        return CheckerboardWorld(n_users=20, n_items=16, epochs=40, family=request.param)


class TestLinear(UnlearnerContract):
    """Without E2URec: the vectors are no minimum of the training loss, so training further raises nothing."""

    @pytest.fixture(scope="class", params=sorted(METHODS.keys() - {"E2URec"}))
    @classmethod
    def unlearner(cls, request):
        return make(request.param, METHODS[request.param])

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        return LinearWorld(n_users=16)
