import numpy as np
import pytest
import torch
from recbole_runs import LABELLED, TINY_SASREC, Run, cut
from sklearn.metrics import log_loss, roc_auc_score
from torch import nn

from recunlearn.subjects.recbole import pair_scores
from recunlearn.subjects.recbole.pairs import PairColumn, dense
from recunlearn.subjects.recbole.ranking import RankingTask, labelled_metrics

KS = (10, 20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of RecBole by model, made when first asked for."""
    made = {}

    def get(model, **config):
        if model not in made:
            folder = tmp_path_factory.mktemp(model)
            rows = 2_000 if model == "SASRec" else 12_000
            values = {"metric_decimal_place": 12, "epochs": 2, "learning_rate": 0.01, **config}
            made[model] = Run(cut(rows), folder, model, **values).fit()
        return made[model]

    return get


@pytest.mark.parametrize("phase", [1, 2], ids=["valid", "test"])
@pytest.mark.parametrize("model", ["BPR", "NeuMF", "LightGCN", "MultiVAE", "SASRec"])
def test_values_are_recboles(runs, model, phase):
    run = runs(model, **(TINY_SASREC if model == "SASRec" else {}))
    task = RankingTask(*run.parts, ("train", "valid", "test")[phase])
    ours, theirs = task.evaluate(run.model, KS), run.evaluate(phase)
    assert set(ours) == set(theirs)
    assert theirs["hit@20"] > 0
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, abs=1e-6), name


def test_untrained_scores_that_nearly_tie_are_still_recboles(tmp_path):
    # Scores of a fresh NeuMF differ by less than float32 resolves; order must be the one of plain scoring.
    run = Run(cut(4_000), tmp_path, "NeuMF", metric_decimal_place=12)
    run.trainer.eval_collector.data_collect(run.loaders[0])
    theirs = run.evaluate(1)
    assert RankingTask(*run.parts).evaluate(run.model, KS) == pytest.approx(theirs, abs=1e-6)


def test_labelled_values_are_recboles_and_scikit_learns(runs):
    run = runs("DeepFM", **LABELLED)
    ours, theirs = labelled_metrics(run.model, run.parts[1]), run.evaluate(1)
    assert ours == pytest.approx(theirs, abs=1e-6)
    rows = run.parts[1][np.arange(len(run.parts[1]))]
    with torch.no_grad():
        scores, labels = run.model.eval().predict(rows).double().numpy(), rows["label"].numpy()
    assert ours["auc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-9)
    assert ours["logloss"] == pytest.approx(log_loss(labels, scores), abs=1e-9)


class Scores(nn.Module):
    """Scores that are looked up; by ``full_sort_predict`` or by ``predict`` alone."""

    def __init__(self, table, *, full_sort):
        super().__init__()
        self.table, self.full_sort = table, full_sort
        self.pairs_scored = 0

    def full_sort_predict(self, interaction):
        if not self.full_sort:
            raise NotImplementedError
        return self.table[interaction["user_id"]].clone()

    def predict(self, interaction):
        self.pairs_scored += len(interaction["user_id"])
        return self.table[interaction["user_id"], interaction["item_id"]]


@pytest.fixture(scope="module")
def parts(runs):
    return runs("BPR").parts


def table_for(parts, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(parts[0].user_num, parts[0].item_num, generator=generator)


def pairs(part):
    return list(zip(part.inter_feat["user_id"].tolist(), part.inter_feat["item_id"].tolist(), strict=True))


@pytest.mark.parametrize("full_sort", [True, False])
def test_ranks_by_brute_force(parts, full_sort):
    table = table_for(parts)
    task = RankingTask(*parts)
    known, now = {}, {}
    for user, item in pairs(parts[0]):
        known.setdefault(user, set()).add(item)
    for user, item in pairs(parts[1]):
        now.setdefault(user, set()).add(item)
    ndcg, ranks = [], {}
    for user in sorted(now):
        allowed = [i for i in range(1, parts[0].item_num) if i in now[user] or i not in known.get(user, ())]
        order = sorted(allowed, key=lambda i: -float(table[user, i]))
        place = {item: n for n, item in enumerate(order, 1)}
        ranks |= {(user, item): place[item] for item in now[user]}
        gain = sum(1 / np.log2(place[i] + 1) for i in now[user] if place[i] <= 10)
        ndcg.append(gain / sum(1 / np.log2(n + 1) for n in range(1, min(10, len(now[user])) + 1)))
    model = Scores(table, full_sort=full_sort)
    per_user = task.per_user(model, (10,))
    np.testing.assert_allclose(per_user["ndcg@10"], ndcg, atol=1e-12)
    assert task.evaluate(model, (10,))["ndcg@10"] == pytest.approx(np.mean(ndcg), abs=1e-12)
    users, items = (parts[0].field2id_token[k] for k in ("user_id", "item_id"))
    assert per_user["user_id"].tolist() == [users[u] for u in sorted(now)]
    found = task.ranks(model)
    got = dict(zip(zip(found["user_id"], found["item_id"], strict=True), found["rank"], strict=True))
    assert got == {(users[u], items[i]): rank for (u, i), rank in ranks.items()}


def test_forgotten_items_are_ranked_only_without_the_mask(parts):
    table = torch.zeros_like(table_for(parts))
    user, item = pairs(parts[0])[0]
    table[user, item] = 1
    model = Scores(table, full_sort=True)
    forgotten = (np.array([user]), np.array([item]))
    unmasked = RankingTask(*parts, masked=False, positives=forgotten)
    assert unmasked.evaluate(model, (1,))["hit@1"] == 1
    assert unmasked.ranks(model)["rank"].tolist() == [1]
    best = RankingTask(*parts, masked=False, phase="train").per_user(model, (1,))
    assert best["hit@1"].sum() >= 1


def test_masked_items_never_appear(parts):
    # Train items score highest: with the mask the relevant items come first, without it behind them.
    table = torch.zeros_like(table_for(parts))
    for n, part in enumerate(parts[:2]):
        for user, item in pairs(part):
            table[user, item] = max(float(table[user, item]), 2 - n)
    model = Scores(table, full_sort=True)
    assert RankingTask(*parts).evaluate(model, (1,))["hit@1"] == 1
    assert RankingTask(*parts, masked=False).evaluate(model, (1,))["hit@1"] < 0.1


def test_popularity_is_the_ranking_by_train_counts(parts):
    counts = np.bincount(parts[0].inter_feat["item_id"].numpy(), minlength=parts[0].item_num)
    # Distinct scores in the order of count, then number: 1e-4 is less than one interaction for 1682 items.
    scores = torch.from_numpy(counts - np.arange(len(counts)) * 1e-4)
    task = RankingTask(*parts)
    expected = task.evaluate(Scores(scores.expand(parts[0].user_num, -1), full_sort=True), KS)
    assert task.popularity_metrics(KS) == pytest.approx(expected, abs=1e-12)


def test_more_places_than_items(parts):
    everything = parts[0].item_num + 50
    metrics = RankingTask(*parts).evaluate(Scores(table_for(parts), full_sort=True), (everything,))
    assert metrics[f"recall@{everything}"] == 1


def test_the_model_keeps_its_mode_and_loses_stale_caches(runs, parts):
    run = runs("LightGCN")
    task = RankingTask(*run.parts)
    before = task.evaluate(run.model)
    run.model.train()
    with torch.no_grad():
        run.model.user_embedding.weight.add_(torch.randn_like(run.model.user_embedding.weight))
    assert task.evaluate(run.model) != before
    assert run.model.training
    run.model.eval()


class InPlace(Scores):
    """A model that changes what it looked up, which a shared column does not notice."""

    def predict(self, interaction):
        looked_up = nn.functional.embedding(interaction["user_id"], self.table)
        looked_up.mul_(torch.arange(self.table.shape[1]))
        return looked_up.sum(-1) + super().predict(interaction)


class NoTensorSubclass(Scores):
    """A model that does not accept anything but plain tensors."""

    def predict(self, interaction):
        if type(interaction["user_id"]) is not torch.Tensor:
            raise TypeError("plain tensors only")
        return super().predict(interaction)


@pytest.mark.parametrize("kind", [InPlace, NoTensorSubclass])
def test_models_that_cannot_share_work_are_scored_plainly(parts, kind):
    model = kind(table_for(parts), full_sort=False)
    rows, items = RankingTask(*parts).inputs, parts[0].get_item_feature()
    scorer = pair_scores.Scorer(model, rows, items)
    got = scorer(0, 3)
    assert scorer.tolerance == 0
    torch.testing.assert_close(got, scorer.plain(torch.arange(3)), rtol=0, atol=0)


OPERATIONS = {
    "embedding": lambda u, i, w: nn.functional.embedding(u, w[0]),
    "product": lambda u, i, w: nn.functional.embedding(u, w[0]) * nn.functional.embedding(i, w[1]),
    "difference": lambda u, i, w: nn.functional.embedding(u, w[0]).sub(nn.functional.embedding(i, w[1])),
    "scaled": lambda u, i, w: 2 * nn.functional.embedding(u, w[0]) / 3,
    "linear": lambda u, i, w: nn.functional.linear(_both(u, i, w), w[2], w[3]).relu().tanh(),
    "dot": lambda u, i, w: (nn.functional.embedding(u, w[0]) * nn.functional.embedding(i, w[1])).sum(-1),
    "softmax": lambda u, i, w: torch.softmax(_both(u, i, w), -1),
    "stacked": lambda u, i, w: torch.stack([u, i], 1).float().mean(1),
    "cat of rows": lambda u, i, w: torch.cat((nn.functional.embedding(u, w[0]), w[0]), 0),
    "matmul": lambda u, i, w: _both(u, i, w) @ w[2].T,
    "index": lambda u, i, w: w[0][u] + w[1][i],
    "dropout in training": lambda u, i, w: nn.functional.dropout(_both(u, i, w), 1.0, True),
}


def _both(u, i, w):
    return torch.cat((nn.functional.embedding(u, w[0]), nn.functional.embedding(i, w[1])), dim=-1)


@pytest.mark.parametrize("name", OPERATIONS)
def test_pair_columns_compute_what_plain_tensors_do(name):
    generator = torch.Generator().manual_seed(1)
    shapes = ((5, 4), (6, 4), (3, 8), (3,))
    weights = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    users, items, grid = torch.tensor([1, 4, 0]), torch.tensor([5, 2]), (3, 2)
    plain = OPERATIONS[name](users.repeat_interleave(2), items.repeat(3), weights)
    shared = OPERATIONS[name](PairColumn([users[:, None]], grid), PairColumn([items[None]], grid), weights)
    assert shared.shape == plain.shape
    torch.testing.assert_close(dense(shared), plain, rtol=1e-12, atol=1e-12)
