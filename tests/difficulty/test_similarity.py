import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import jaccard_score
from sklearn.metrics.pairwise import cosine_similarity

from recunlearn.difficulty.similarity import edge_scale, resolve, similarity, top_edges
from recunlearn.foundation.settings import SimilaritySettings

rows = arrays(np.float64, (4, 9), elements=st.floats(-5, 5, width=16))


def test_paper_preset():
    paper = resolve(SimilaritySettings(preset="paper", measure="jaccard", edges="standardised", ties=0.1))
    assert (paper.reference, paper.edges, paper.cosine_range) == ("mean", "raw", "clamped")
    assert (paper.measure, paper.ties) == ("jaccard", 0.1)
    default = SimilaritySettings()
    assert resolve(default) is default


def test_top_edges_by_hand():
    values = np.array([[3.0, -4, 0, 1], [0, 0, 0, 2]])
    # half of 4 edges = 2: by size -4 and 3; signed 3 and 1; zeros are never members
    assert top_edges(values, 0.5, "absolute").tolist() == [[1, 1, 0, 0], [0, 0, 0, 1]]
    assert top_edges(values, 0.5, "signed").tolist() == [[1, 0, 0, 1], [0, 0, 0, 1]]


def test_sets_by_hand():
    # top 2 of 4 edges: {0, 1} and {1, 2}: Jaccard 1/3; they differ in 2 of 4 edges: Hamming similarity 1/2
    a, b = np.array([[9.0, 8, 1, 0]]), np.array([[0.0, 8, 9, 1]])
    half = {"top_fraction": 0.5}
    assert similarity(a, b, SimilaritySettings(measure="jaccard", **half))[0, 0] == pytest.approx(1 / 3)
    assert similarity(a, b, SimilaritySettings(measure="hamming", **half))[0, 0] == 0.5
    zero = np.zeros((1, 4))
    assert similarity(zero, zero, SimilaritySettings(measure="jaccard"))[0, 0] == 0


@given(rows, rows)
def test_cosine_is_sklearns(left, right):
    expected = cosine_similarity(left, right)
    mapped = similarity(left, right, SimilaritySettings())
    clamped = similarity(left, right, SimilaritySettings(cosine_range="clamped"))
    assert mapped == pytest.approx((1 + expected) / 2, abs=1e-9)
    assert clamped == pytest.approx(np.maximum(expected, 0), abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(rows, rows, st.sampled_from(["signed", "absolute"]))
def test_sets_are_sklearns(left, right, ranking):
    a, b = (top_edges(v, 0.4, ranking) for v in (left, right))
    found = similarity(left, right, SimilaritySettings(measure="jaccard", top_fraction=0.4, ranking=ranking))
    hamming = similarity(
        left, right, SimilaritySettings(measure="hamming", top_fraction=0.4, ranking=ranking)
    )
    for i in range(4):
        for j in range(4):
            assert found[i, j] == pytest.approx(jaccard_score(a[i], b[j], zero_division=0))
            assert hamming[i, j] == pytest.approx((a[i] == b[j]).mean())


def test_tiny_and_huge_circuits_have_a_direction():
    values = np.array([[1e-200, 1e-200], [1e200, 1e200]])
    assert similarity(values, values, SimilaritySettings()) == pytest.approx(np.ones((2, 2)))


@pytest.mark.parametrize(("users", "edges"), [(50, 8), (20, 60)])
def test_whitening_is_the_inverse_root_of_the_shrunk_covariance(users, edges):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(users, edges)) @ rng.normal(size=(edges, edges))
    plain = edge_scale(values).apply(values)
    covariance = np.cov(plain.T, bias=True)
    mean = np.trace(covariance) / edges
    # (.9 v I + .1 Σ)^(−1/2) · √(.9 v), by scipy
    root = scipy.linalg.sqrtm(0.9 * mean * np.eye(edges) + 0.1 * covariance).real
    expected = plain @ np.linalg.inv(root) * np.sqrt(0.9 * mean)
    np.testing.assert_allclose(edge_scale(values, "whitened").apply(values), expected, atol=1e-9)


def test_whitening_of_independent_edges_changes_no_angle():
    # All directions are alike: orthogonal columns of equal length give Σ = v I, and W = √s I.
    values = scipy.linalg.hadamard(8)[:, 1:].astype(float)
    found = edge_scale(values, "whitened").apply(values)
    np.testing.assert_allclose(found / edge_scale(values).apply(values), np.sqrt(0.9))


def test_whitening_keeps_untraced_rows_apart():
    values = np.random.default_rng(1).normal(size=(30, 5))
    holes = values.copy()
    holes[3] = np.nan
    found = edge_scale(holes, "whitened").apply(holes)
    assert np.isnan(found[3]).all()
    others = np.delete(values, 3, axis=0)
    np.testing.assert_allclose(np.delete(found, 3, axis=0), edge_scale(others, "whitened").apply(others))
