"""Fast products with a symmetric adjacency: the bits of RecBole's own, forwards and backwards."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from recunlearn.subjects.recbole.graphs import SymmetricGraph, with_fast_graphs


def graph(size=60, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    upper = sp.random(size, size, 0.2, random_state=rng, format="csr", dtype=dtype)
    whole = (upper + upper.T).tocsr()
    whole.sort_indices()
    entries = whole.tocoo()
    place = torch.tensor(np.array([entries.row, entries.col]))
    return torch.sparse_coo_tensor(place, torch.tensor(entries.data), entries.shape, check_invariants=True)


class Holder(torch.nn.Module):
    def __init__(self, **matrices):
        super().__init__()
        self.table = torch.nn.Embedding(60, 4)
        for name, matrix in matrices.items():
            setattr(self, name, matrix)


@pytest.mark.parametrize("width", [1, 4, 8, 17, 24, 32, 64, 65])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_and_gradients_are_equal_to_the_bit(width, dtype):
    slow = graph(dtype=dtype)
    fast = with_fast_graphs(Holder(matrix=slow)).matrix
    assert isinstance(fast, SymmetricGraph)
    generator = torch.Generator().manual_seed(width)
    made, given = (torch.randn(60, width, generator=generator, dtype=slow.dtype) for _ in range(2))
    found = []
    for matrix in (slow, fast):
        x = made.clone().requires_grad_()
        twice = torch.sparse.mm(matrix, torch.sparse.mm(matrix, x))
        twice.backward(given)
        found.append((twice.detach(), x.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def test_gradients_can_be_differentiated():
    fast = SymmetricGraph.of(graph(dtype=np.float64))
    x = torch.randn(60, 40, dtype=torch.float64, requires_grad=True)
    weight = torch.ones(60, dtype=torch.float64, requires_grad=True)
    first = torch.autograd.grad((weight @ torch.sparse.mm(fast, x) ** 2).sum(), x, create_graph=True)[0]
    along = torch.autograd.grad((first * x.detach()).sum(), weight)[0]
    # d/dw_r of sum_c w_r (A x)_rc^2, along x: 2 (A x)_rc^2
    expected = 2 * (graph(dtype=np.float64).to_dense() @ x.detach()).square().sum(1)
    assert torch.allclose(along, expected)


def test_matrices_that_are_no_symmetric_graph_stay():
    skewed = torch.sparse_coo_tensor(
        torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 2.0]), (2, 2), check_invariants=True
    )
    unsorted = torch.sparse_coo_tensor(
        torch.tensor([[1, 0], [0, 1]]), torch.tensor([1.0, 1.0]), (2, 2), check_invariants=True
    )
    wide = torch.sparse_coo_tensor(
        torch.tensor([[0], [1]]), torch.tensor([1.0]), (2, 3), check_invariants=True
    )
    model = with_fast_graphs(Holder(skewed=skewed, unsorted=unsorted, wide=wide, dense=torch.eye(3)))
    assert not any(isinstance(value, SymmetricGraph) for value in vars(model).values())


def test_the_rest_of_torch_sees_the_matrix_as_it_was():
    slow = graph()
    fast = SymmetricGraph.of(slow)
    assert fast.is_sparse
    assert torch.equal(fast.to_dense(), slow.to_dense())
    assert torch.equal(torch.sparse.mm(fast, slow).to_dense(), torch.sparse.mm(slow, slow).to_dense())
    assert copy.deepcopy(fast) is fast
