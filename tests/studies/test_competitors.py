import copy
import pkgutil

import numpy as np
import pytest
import torch

from recunlearn.evaluation.membership import References, halves
from recunlearn.foundation.errors import UsageError
from recunlearn.studies.competitors import scores
from recunlearn.studies.competitors.contract import Competitor
from recunlearn.studies.competitors.gradients import can_be_exact, exact_norms, projected_norms
from recunlearn.studies.competitors.registry import find, hardness, known
from recunlearn.studies.competitors.scores.memorisation import leave_out
from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.testing.linear import LinearWorld

FAMILIES = ("pointwise", "pairwise", "softmax")
TRIVIAL = {"activity", "popularity", "log-popularity", "loss", "population-loss", "personalisation-gap"}
TRIVIAL |= {"embedding-norm"}
SEED = 3


def make(name: str) -> Competitor:
    return find(name)(draws=4) if name == "mrd" else find(name)()


@pytest.fixture(scope="module", params=FAMILIES)
def board(request):
    return CheckerboardWorld(n_users=16, n_items=12, density=0.7, epochs=25, family=request.param)


@pytest.fixture(scope="module")
def line():
    return LinearWorld()


def everyone(subject):
    return np.arange(len(subject.entities))


def test_every_file_is_one_competitor_with_a_direction():
    assert len(known()) == len(list(pkgutil.iter_modules(scores.__path__))) == 14
    assert all(find(name).name == name and find(name).direction in (-1, 1) for name in known())
    assert {name for name in known() if find(name).trivial} == TRIVIAL
    assert {name for name in known() if find(name).direction < 0} == {"mrd", "loss"}


def test_mistakes_get_one_sentence(line):
    with pytest.raises(
        UsageError, match=r"Unknown competing score 'el2m'\. Did you mean el2n\? Allowed: act"
    ):
        find("el2m")
    with pytest.raises(UsageError, match=r"rows from 0 to 47 of the subject's entities, but got 48\."):
        find("loss")().values(line, np.array([3, 48]), seed=0)


@pytest.mark.parametrize("name", known())
def test_a_value_is_the_users_own_and_the_model_stays(name, board):
    users, order = everyone(board), np.random.default_rng(0).permutation(len(board.entities))
    before, grads = copy.deepcopy(board.model.state_dict()), [p.grad for p in board.model.parameters()]
    board.model.train()
    whole = make(name).values(board, users, seed=SEED)
    assert board.model.training
    board.model.eval()
    assert np.array_equal(make(name).values(board, order, seed=SEED), whole[order], equal_nan=True)
    some = np.array([7, 2, 7, 11])
    assert make(name).values(board, some, seed=SEED) == pytest.approx(whole[some], rel=1e-5, abs=1e-9)
    assert make(name).values(board, users[:0], seed=SEED).shape == (0,)
    assert np.isfinite(whole).all()
    assert len(np.unique(whole)) > 3
    assert all(torch.equal(v, before[k]) for k, v in board.model.state_dict().items())
    assert [p.grad for p in board.model.parameters()] == grads


@pytest.mark.parametrize("name", known())
def test_threads_and_the_global_generator_play_no_part(name, board):
    users = everyone(board)[3:9]
    once = make(name).values(board, users, seed=SEED)
    torch.manual_seed(99)
    torch.set_num_threads(2)
    try:
        again = make(name).values(board, users, seed=SEED)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert np.array_equal(once, again)


@pytest.mark.parametrize("name", known())
def test_nothing_is_said_of_a_user_without_a_sample(name):
    world = CheckerboardWorld(n_users=12, n_items=6, density=0.5, epochs=5)
    silent = world.n_samples() == 0
    assert 0 < silent.sum() < 6
    assert np.array_equal(np.isnan(make(name).values(world, everyone(world), seed=0)), silent)


def test_values_of_the_linear_world_by_hand(line):
    def of(name):
        return find(name)().values(line, everyone(line), seed=0)

    n = len(line.entities)
    # every interaction scores 2: p = 1 / (1 + e^-2) = .880797, loss = -ln p = .126928
    assert of("loss") == pytest.approx(np.full(n, 0.126928), abs=1e-6)
    assert of("confidence") == pytest.approx(np.full(n, 0.880797), abs=1e-6)
    # sqrt(2) (1 - .880797) = .168579
    assert of("el2n") == pytest.approx(np.full(n, 0.168579), abs=1e-6)
    # 5 items of one kind; 48 users of 8 kinds: 6 users an item, ln 6 = 1.791759
    assert of("activity").tolist() == [5.0] * n
    assert of("popularity").tolist() == [6.0] * n
    assert of("log-popularity") == pytest.approx(np.full(n, 1.791759), abs=1e-6)
    vectors = line.model.get_parameter("user_embedding.weight").detach().double().numpy()
    features = line.model.get_parameter("item_features.weight").double().numpy()[line.kind * 5]
    assert of("embedding-norm") == pytest.approx(np.linalg.norm(vectors, axis=1))
    # d loss / d v = -(1 - p) x, and the features are not trained
    assert of("grand") == pytest.approx((1 - 0.880797) * np.linalg.norm(features, axis=1), rel=1e-5)
    # a stranger has the mean vector of the 47 others
    mean = (vectors.sum(0) - vectors) / (n - 1)
    strange = np.log1p(np.exp(-(mean * features).sum(1)))
    assert of("population-loss") == pytest.approx(strange, rel=1e-5)
    assert of("personalisation-gap") == pytest.approx(strange - 0.126928, abs=1e-5)
    # the others' loss does not read the user's vector, so forgetting costs them nothing
    assert of("cau-gradient") == pytest.approx(np.zeros(n), abs=1e-9)


def test_hardness_is_the_direction_times_the_value(board):
    users = everyone(board)
    assert np.array_equal(hardness("loss", board, users, 0), -find("loss")().values(board, users, seed=0))
    assert np.array_equal(hardness("el2n", board, users, 0), find("el2n")().values(board, users, seed=0))


def test_embedding_difficulty_is_the_mean_cosine_with_everyone_else(board):
    vectors = board.model.get_parameter("user_embedding.weight").detach().double().numpy()
    n = len(vectors)

    def cosine(a, b):
        return a @ b / np.sqrt((a @ a) * (b @ b))

    expected = [np.mean([cosine(vectors[u], vectors[v]) for v in range(n) if v != u]) for u in range(n)]
    assert find("cau-embedding")().values(board, everyone(board), seed=0) == pytest.approx(expected)


def test_error_vectors_one_by_one(board):
    expected = []
    for user in everyone(board):
        batch = next(board.batches(np.array([user]), batch_size=100, seed=SEED))
        with torch.no_grad():
            chance = board.class_scores(board.model, batch).double().softmax(1).numpy()
        own = (
            batch.columns["item_id"].numpy() if board.family == "softmax" else np.ones(len(batch), dtype=int)
        )
        errors = chance - np.eye(chance.shape[1])[own]
        expected.append(np.sqrt((errors**2).sum(1)).mean())
    found = find("el2n")().values(board, everyone(board), seed=SEED)
    assert found == pytest.approx(expected, rel=1e-5)
    if board.family != "softmax":  # then EL2N says the opposite of confidence, and nothing else
        sure = find("confidence")().values(board, everyone(board), seed=SEED)
        assert found == pytest.approx(np.sqrt(2) * (1 - sure), abs=1e-6)


def gradients(subject, batch):
    """Gradient of every sample's loss, one backward pass each: [B, P]."""
    found = []
    for n in range(len(batch)):
        model = copy.deepcopy(subject.model)
        (-subject.log_likelihood(model, batch[slice(n, n + 1)]).sum()).backward()
        found.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]).double().numpy())
    return np.array(found)


def test_gradient_norms_one_by_one(board):
    expected = []
    for user in everyone(board):
        batch = next(board.batches(np.array([user]), batch_size=100, seed=SEED))
        expected.append(np.linalg.norm(gradients(board, batch), axis=1).mean())
    found = find("grand")().values(board, everyone(board), seed=SEED)
    assert found == pytest.approx(expected, rel=1e-4)


def test_gradient_norms_of_some_samples_of_each_user(board):
    batch = next(board.batches(batch_size=1000, per_entity=1, seed=SEED))
    found = find("grand")(per_user=1).values(board, everyone(board), seed=SEED)
    assert found == pytest.approx(np.linalg.norm(gradients(board, batch), axis=1), rel=1e-4)


def test_projections_estimate_the_same_norms(board):
    batch = next(board.batches(batch_size=40, seed=SEED))
    exact = exact_norms(board, batch).numpy()
    assert can_be_exact(board)
    # relative standard deviation 1 / sqrt(2 * 500) = .032; the largest of 40 stays below 4.5 of them
    estimated = projected_norms(board, batch, 500, SEED).numpy()
    assert np.abs(estimated / exact - 1).max() < 0.14
    few = projected_norms(board, batch, 8, SEED).numpy()
    assert 0.02 < np.abs(few / exact - 1).mean() < 0.4


def test_price_of_forgetting_by_the_definition(board):
    size = int(board.n_samples().sum())
    drawn = board.draw(
        np.flatnonzero(board.n_samples()), size, torch.Generator().manual_seed(SEED), negatives=True
    )
    training, owner = gradients(board, drawn), drawn.entity.numpy()
    found = find("cau-gradient")().values(board, everyone(board), seed=SEED)
    for user in everyone(board):
        own = gradients(board, next(board.batches(np.array([user]), batch_size=100, seed=SEED))).mean(0)
        others = training[owner != user].mean(0)
        assert found[user] == pytest.approx(own @ others / (own @ own), rel=1e-3, abs=1e-6)


def test_price_is_the_others_loss_for_each_unit_of_the_users(board):
    user = 5
    price = find("cau-gradient")().values(board, np.array([user]), seed=SEED)[0]
    size = int(board.n_samples().sum())
    drawn = board.draw(
        np.flatnonzero(board.n_samples()), size, torch.Generator().manual_seed(SEED), negatives=True
    )
    rest = drawn[drawn.entity != user]
    own = next(board.batches(np.array([user]), batch_size=100, seed=SEED))
    model = copy.deepcopy(board.model).double()
    (-board.log_likelihood(model, own).mean()).backward()
    losses = []
    for side in (-1, 1):
        moved = copy.deepcopy(model)
        with torch.no_grad():
            for parameter, at in zip(moved.parameters(), model.parameters(), strict=True):
                parameter.add_(side * 1e-5 * at.grad)
            losses.append([-board.log_likelihood(moved, b).mean().item() for b in (rest, own)])
    (rest_low, own_low), (rest_high, own_high) = losses
    assert (rest_high - rest_low) / (own_high - own_low) == pytest.approx(price, rel=1e-3)


def test_mrd_by_a_direct_loop(board):
    draws, sigma, generator = 6, 0.01, torch.Generator().manual_seed(SEED)
    steps = [
        [sigma * torch.randn(p.shape, generator=generator) for p in board.model.parameters()]
        for _ in range(draws)
    ]
    found = find("mrd")(draws=draws, sigma=sigma).values(board, everyone(board), seed=SEED)
    for user in (0, 5, 9):
        batch = next(board.batches(np.array([user]), batch_size=100, seed=SEED))
        total = 0.0
        for step in steps:
            moved = copy.deepcopy(board.model)
            for parameter, change in zip(moved.parameters(), step, strict=True):
                parameter.data += change
            for t in range(len(batch)):
                one = batch[slice(t, t + 1)]
                p, q = (board.log_likelihood(m, one).item() for m in (board.model, moved))
                total += (p - q) / p
        assert found[user] == pytest.approx(abs(total / draws), rel=1e-3, abs=1e-6)


def test_mrd_has_the_papers_settings():
    assert (find("mrd")().draws, find("mrd")().sigma) == (100, 1e-5)


def test_memorisation_by_hand():
    # p of two users under four models; the first is in models 0 and 1, the second in 0 and 3, the third never
    chance = np.array([[0.8, 0.5, 0.5], [0.6, 0.5, 0.5], [0.3, 0.4, 0.5], [0.1, 0.9, 0.5]])
    inside = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0]], dtype=bool)
    # (.8 + .6) / 2 - (.3 + .1) / 2 = .5; (.5 + .9) / 2 - (.5 + .4) / 2 = .25
    found = leave_out(References(-np.log(chance), inside))
    assert found[:2] == pytest.approx([0.5, 0.25])
    assert np.isnan(found[2])


def test_memorisation_of_independent_users(line):
    # in: p = .880797 always; out: the vector is the mean over those who are in
    vectors = line.model.get_parameter("user_embedding.weight").detach().double().numpy()
    features = line.model.get_parameter("item_features.weight").double().numpy()[line.kind * 5]
    inside, expected = halves(len(vectors), 8, SEED), []
    for user in everyone(line):
        absent = [k for k in range(8) if not inside[k, user]]
        scores = [vectors[inside[k]].mean(0) @ features[user] for k in absent]
        expected.append(0.880797 - np.mean([1 / (1 + np.exp(-s)) for s in scores]))
    found = find("memorisation")().values(line, everyone(line), seed=SEED)
    assert found == pytest.approx(expected, abs=1e-5)
    assert found.min() > 0


def test_models_of_membership_inference_serve_memorisation(board, tmp_path, monkeypatch):
    from recunlearn.studies.references import membership_references

    references = membership_references(board, 8, seed=SEED, folder=tmp_path)
    monkeypatch.setattr(board, "retrain", None)  # nothing is trained again
    found = find("memorisation")(folder=tmp_path).values(board, everyone(board), seed=SEED)
    assert np.array_equal(found, leave_out(references))
