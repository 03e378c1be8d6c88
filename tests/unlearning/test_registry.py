import pkgutil

import numpy as np
import pytest

from recunlearn.foundation.errors import UsageError
from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.unlearning import Unlearner, find, known, make, methods
from recunlearn.unlearning.request import check_family, checked, rest_of


def test_every_file_is_one_method():
    assert len(known()) == len(list(pkgutil.iter_modules(methods.__path__)))
    assert {"GradAscent", "GradDiff", "NPO", "SimNPO", "UNDIAL", "E2URec", "retrain"} <= set(known())
    assert all(isinstance(make(name), Unlearner) for name in known())


def test_defaults_are_the_papers():
    settings = {name: make(name).settings for name in known()}
    assert settings["NPO"].beta == 0.1
    assert (settings["SimNPO"].beta, settings["SimNPO"].delta, settings["SimNPO"].gamma) == (4.5, 0, 0.125)
    assert settings["UNDIAL"].beta == 10
    e2urec = settings["E2URec"]
    assert (e2urec.rank, e2urec.alpha, e2urec.strength, e2urec.weight) == (16, 32, 2, 0.6)
    assert not find("GradAscent")().retains()
    assert find("GradDiff")().retains()


BAD = {
    ("NPOO", ""): r"Unknown unlearning method 'NPOO'\. Did you mean NPO\? Allowed: E2URec, GradAscent",
    (
        "NPO",
        "betta",
    ): r"Unknown setting 'betta' in the options of NPO\. Did you mean beta\? Allowed here: alpha",
    ("E2URec", "gamma"): r"Unknown setting 'gamma' in the options of E2URec",
    ("retrain", "epochs"): r"Unknown setting 'epochs' in the options of retrain\. Allowed here: none\.",
    ("SimNPO", "beta"): r"Setting 'beta' in the options of SimNPO: .* greater than 0, but got -1\.",
    ("UNDIAL", "until"): r"Setting 'until' in the options of UNDIAL: .*'stranger' or 'steps', but got -1",
}


@pytest.mark.parametrize("case", BAD, ids=lambda c: "-".join(c).strip("-"))
def test_mistakes_get_one_sentence(case):
    name, setting = case
    with pytest.raises(UsageError, match=BAD[case]):
        make(name, {setting: -1} if setting else {}, "the options")


def test_requests_are_sorted_and_named_once():
    world = CheckerboardWorld(n_users=6, n_items=6, density=0.9, epochs=1)
    assert checked(world, np.array([4, 1, 4])).tolist() == [1, 4]
    assert rest_of(world, np.array([1, 4])).tolist() == [0, 2, 3, 5]


def test_users_without_interactions_cannot_be_forgotten():
    world = CheckerboardWorld(n_users=12, n_items=6, density=0.3, epochs=1)
    silent = np.flatnonzero(world.n_samples() == 0)
    assert len(silent)
    with pytest.raises(UsageError, match=f"None of the {len(silent)} users to forget has training"):
        checked(world, silent)
    # beside others they are no mistake
    first = int(np.flatnonzero(world.n_samples())[0])
    some = np.sort([first, *silent])
    assert np.array_equal(checked(world, some), some)
    assert not np.isin(some, rest_of(world, some)).any()


def test_an_unknown_objective_lists_the_known_ones():
    world = CheckerboardWorld(n_users=4, n_items=4, epochs=1)
    with pytest.raises(UsageError, match="NPO works with pairwise models, but this one is 'pointwise'"):
        check_family("NPO", world, ("pairwise",))
