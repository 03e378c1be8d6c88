from itertools import combinations

import numpy as np
import pytest

from recunlearn.difficulty.overlap import Overlap, pairwise

FOUR = np.array([[9, 0.5, 0.2, 0.4], [0.5, 9, 0.1, 0.3], [0.2, 0.1, 9, 0.8], [0.4, 0.3, 0.8, 9]])


def test_pairwise_by_hand():
    # 8 edges: the top quarter is 2. Sets {0, 1}, {0, 2}, {0, 1}: Jaccard 1/3, 1, 1/3.
    values = np.zeros((3, 8))
    values[:, :3] = [[3, -4, 0], [3, 0, 4], [-4, 3, 1]]
    found = pairwise(values)
    assert found["overlap_jaccard"] == pytest.approx(
        np.array([[1, 1 / 3, 1], [1 / 3, 1, 1 / 3], [1, 1 / 3, 1]])
    )
    # cosines: 9 / 25; -24 / (5 sqrt 26); (-12 + 4) / (5 sqrt 26)
    root = np.sqrt(26)
    assert found["overlap_cosine"][np.triu_indices(3, 1)] == pytest.approx(
        [9 / 25, -24 / 5 / root, -8 / 5 / root]
    )


def test_means_by_hand():
    overlap = Overlap(FOUR, 2)
    # within easy .5, within hard .8, between (.2 + .4 + .1 + .3) / 4
    assert overlap.means() == pytest.approx((0.5, 0.8, 0.25))
    easy, hard = overlap.members()
    assert easy == pytest.approx(np.array([0.5, 0.5]))
    assert hard == pytest.approx(np.array([0.8, 0.8]))


def world(k=4, n=8, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 12))
    values[:k] += 1.5 * rng.normal(size=12)
    return Overlap(pairwise(values)["overlap_cosine"], k)


@pytest.mark.parametrize("seed", range(3))
def test_p_by_brute_force(seed):
    overlap = world(seed=seed)

    def means(easy):
        hard = [i for i in range(8) if i not in easy]
        inside = [np.mean([overlap.matrix[i, j] for i, j in combinations(g, 2)]) for g in (easy, hard)]
        return (*inside, overlap.matrix[np.ix_(easy, hard)].mean())

    every = [means(list(chosen)) for chosen in combinations(range(8), 4)]
    assert overlap.means() == pytest.approx(every[0])
    less = np.array([hard - easy for easy, hard, _ in every])
    apart = np.array([(easy + hard) / 2 - between for easy, hard, between in every])
    for found, values in ((overlap.p_less_alike(0), less), (overlap.p_apart(0), apart)):
        tails = (values >= values[0] - 1e-9).mean(), (values <= values[0] + 1e-9).mean()
        assert found == pytest.approx(min(1, 2 * min(tails)))


def test_interval_is_repeatable_and_leaves_out_copies_of_oneself():
    # The diagonal is huge: were a redrawn user compared with itself, overlaps would jump above 1.
    rng = np.random.default_rng(0)
    matrix = rng.uniform(size=(24, 24))
    matrix = (matrix + matrix.T) / 2
    same, huge = matrix.copy(), matrix.copy()
    np.fill_diagonal(huge, 1e6)
    assert Overlap(huge, 12).interval(3) == Overlap(same, 12).interval(3)
    low, high = Overlap(same, 12).interval(3)
    assert -1 <= low < high <= 1


def test_a_tight_group_is_told_from_a_loose_one():
    overlap = world(k=15, n=30)
    easy, hard, between = overlap.means()
    assert easy > 0.4 > max(hard, between)
    assert overlap.interval(0)[1] < -0.8
    assert overlap.p_less_alike(0) < 0.001
