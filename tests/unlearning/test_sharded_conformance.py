"""RecEraser and SISA under the tests that ship with the package."""

import pytest

from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.testing.linear import LinearWorld
from recunlearn.testing.unlearner_contract import UnlearnerContract
from recunlearn.unlearning.registry import make

QUICK = {"shards": 2, "aggregator_steps": 20, "warm_steps": 10, "aggregator_batch": 128}
METHODS = {
    "SISA": ("SISA", {"shards": 2}),
    "RecEraser": ("RecEraser", QUICK),
    "RecEraser exact": ("RecEraser", {**QUICK, "warm_start": False}),
    "RecEraser inbp": ("RecEraser", {**QUICK, "partition": "inbp"}),
}


class TestCheckerboard(UnlearnerContract):
    @pytest.fixture(scope="class", params=METHODS)
    @classmethod
    def unlearner(cls, request):
        return make(*METHODS[request.param])

    @pytest.fixture(scope="class", params=("pairwise", "softmax"))
    @classmethod
    def subject(cls, request):
        return CheckerboardWorld(n_users=20, n_items=16, epochs=20, family=request.param)


class TestLinear(UnlearnerContract):
    @pytest.fixture(scope="class", params=("SISA", "RecEraser"))
    @classmethod
    def unlearner(cls, request):
        return make(*METHODS[request.param])

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        return LinearWorld(n_users=16)
