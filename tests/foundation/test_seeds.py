import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from recunlearn.foundation.seeds import mix, uniform

MASK = (1 << 64) - 1
uint64 = st.integers(0, MASK)
seeds = st.integers(0, 2**31 - 1)


def unshift(value: int, shift: int) -> int:
    """Invert ``z ^ (z >> shift)``."""
    out = value
    for _ in range(64 // shift + 1):
        out = value ^ (out >> shift)
    return out


def unmix(value: int, seed: int) -> int:
    """Inverse of SplitMix64 in Python integers: each step undone in reverse order."""
    z = unshift(value, 31)
    z = unshift(z * pow(0x94D049BB133111EB, -1, 1 << 64) & MASK, 27)
    z = unshift(z * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & MASK, 30)
    return (z - 0x9E3779B97F4A7C15 * (2 * seed + 1)) & MASK


@given(st.lists(uint64, min_size=1, max_size=50), seeds)
def test_mix_is_a_bijection(values, seed):
    mixed = mix(np.array(values, dtype=np.uint64), seed)
    assert [unmix(int(m), seed) for m in mixed] == values


def test_mix_is_splitmix64():
    # First output of the published generator for state 0 (it adds the golden ratio once): 0xE220A8397B1DCDAF.
    assert int(mix(np.zeros(1, dtype=np.uint64), 0)[0]) == 0xE220A8397B1DCDAF


@given(st.lists(uint64, min_size=1, max_size=20), seeds)
def test_a_value_does_not_depend_on_its_neighbours(values, seed):
    together = uniform(np.array(values, dtype=np.uint64), seed)
    alone = [uniform(np.array([v], dtype=np.uint64), seed)[0] for v in values]
    assert together.tolist() == alone
    assert ((together >= 0) & (together < 1)).all()


def test_consecutive_numbers_become_uniform_and_seeds_independent():
    numbers = np.arange(20_000, dtype=np.uint64)
    first, second = uniform(numbers, 0), uniform(numbers, 1)
    assert stats.kstest(first, "uniform").pvalue > 0.01
    assert stats.kstest(second, "uniform").pvalue > 0.01
    # Standard error of a correlation of 20,000 pairs: 1 / sqrt(20,000) = 0.007; four of them.
    assert abs(stats.spearmanr(first, second).statistic) < 0.028
    assert abs(stats.spearmanr(first[:-1], first[1:]).statistic) < 0.028
