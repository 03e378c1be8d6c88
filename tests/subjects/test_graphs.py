"""Fast products with a constant adjacency: the bits of RecBole's own, forwards and backwards."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from recunlearn.subjects.recbole.graphs import Graph, with_fast_graphs


def graph(size=60, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    upper = sp.random(size, size, 0.2, random_state=rng, format="csr", dtype=dtype)
    whole = (upper + upper.T).tocsr()
    whole.sort_indices()
    entries = whole.tocoo()
    place = torch.tensor(np.array([entries.row, entries.col]))
    return torch.sparse_coo_tensor(place, torch.tensor(entries.data), entries.shape, check_invariants=True)


def skewed_twice(size=60, dtype=np.float32):
    """Not symmetric, in no order, places filled twice: diagonals and a graph as torch adds them."""
    diagonal = torch.arange(size).expand(2, -1)
    ones = torch.ones(size, dtype=graph(dtype=dtype).dtype)
    entries = torch.tensor(np.array(sp.random(size, size, 0.3, random_state=2).nonzero()))
    values = torch.linspace(-1, 1, entries.shape[1], dtype=ones.dtype)
    places, numbers = torch.cat([diagonal, diagonal, entries], 1), torch.cat([ones, ones, values])
    return torch.sparse_coo_tensor(places, numbers, (size, size), check_invariants=True)


class Holder(torch.nn.Module):
    def __init__(self, **matrices):
        super().__init__()
        self.table = torch.nn.Embedding(60, 4)
        for name, matrix in matrices.items():
            setattr(self, name, matrix)


@pytest.mark.parametrize("width", [1, 4, 8, 17, 24, 32, 64, 65])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("made_by", [graph, skewed_twice])
def test_products_and_gradients_are_equal_to_the_bit(width, dtype, made_by):
    slow = made_by(dtype=dtype)
    fast = with_fast_graphs(Holder(matrix=slow)).matrix
    assert isinstance(fast, Graph)
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


@pytest.mark.parametrize("made_by", [graph, skewed_twice])
def test_gradients_can_be_differentiated(made_by):
    fast = Graph.of(made_by(dtype=np.float64))
    x = torch.randn(60, 40, dtype=torch.float64, requires_grad=True)
    weight = torch.ones(60, dtype=torch.float64, requires_grad=True)
    first = torch.autograd.grad((weight @ torch.sparse.mm(fast, x) ** 2).sum(), x, create_graph=True)[0]
    along = torch.autograd.grad((first * x.detach()).sum(), weight)[0]
    # d/dw_r of sum_c w_r (A x)_rc^2, along x: 2 (A x)_rc^2
    expected = 2 * (made_by(dtype=np.float64).to_dense() @ x.detach()).square().sum(1)
    assert torch.allclose(along, expected)


@pytest.mark.parametrize("made_by", [graph, skewed_twice])
def test_products_go_by_rows(made_by):
    fast = Graph.of(made_by())
    torch.sparse.mm(fast, torch.ones(60, 64))
    assert fast.same == {64: True}
    assert (fast.columns is fast.rows) == (made_by is graph)


def test_what_is_no_square_sparse_matrix_stays():
    wide = torch.sparse_coo_tensor(
        torch.tensor([[0], [1]]), torch.tensor([1.0]), (2, 3), check_invariants=True
    )
    counts = torch.sparse_coo_tensor(
        torch.tensor([[0], [1]]), torch.tensor([1]), (2, 2), check_invariants=True
    )
    model = with_fast_graphs(Holder(wide=wide, counts=counts, dense=torch.eye(3)))
    assert not any(isinstance(value, Graph) for value in vars(model).values())


def test_the_rest_of_torch_sees_the_matrix_as_it_was():
    slow = graph()
    fast = Graph.of(slow)
    assert fast.is_sparse
    assert torch.equal(fast.to_dense(), slow.to_dense())
    assert torch.equal(torch.sparse.mm(fast, slow).to_dense(), torch.sparse.mm(slow, slow).to_dense())
    assert copy.deepcopy(fast) is fast
