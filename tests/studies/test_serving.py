"""Recommendations and exported vectors, against the model's own scores and plain counting."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from recunlearn.data.catalogue import load_interactions
from recunlearn.data.tombstones import bury
from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.settings import ScoreSettings, TrainingSettings
from recunlearn.studies.keys import keys_for
from recunlearn.studies.serving import (
    Served,
    embeddings,
    export_embeddings,
    is_dot_product,
    recommend,
    served,
)
from recunlearn.subjects.recbole.after_deletion import after_deletion
from recunlearn.subjects.recbole.store import save_subject, train_subject

PARAMS = {
    "BPR": {"embedding_size": 4},
    "NeuMF": {"mf_embedding_size": 3, "mlp_embedding_size": 5, "mlp_hidden_size": [8]},
    "LightGCN": {"embedding_size": 4, "n_layers": 1},
    "SASRec": {"hidden_size": 4, "inner_size": 8, "MAX_ITEM_LIST_LENGTH": 5},
}


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """Home with models of 30 users and 25 items; "rare" was bought by the deleted user only."""
    from recunlearn.data.importing import ImportSettings, import_log
    from recunlearn.data.storage import write_data_set
    from recunlearn.foundation import paths

    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(0)
    rows = [(f"u{u}", f"i{i}", t) for u in range(30) for t, i in enumerate(rng.permutation(25)[:12])]
    rows += [("u3", "rare", 99)]
    frame = pd.DataFrame(rows, columns=["user_id", "item_id", "timestamp"])
    frame.to_csv(folder / "log.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUNLEARN_HOME", str(folder / "home"))
        log, _ = import_log("shop", folder / "log.csv", ImportSettings())
        write_data_set(log, paths.data_sets() / "shop")
        models = {}
        for name, params in PARAMS.items():
            training = TrainingSettings(params={**params, "learning_rate": 0.05}, epochs=2)
            settings = ScoreSettings(dataset="shop", model=name, training=training)
            before = train_subject(log, settings, folder=folder / f"{name}-before")
            models[name] = Served(before, log)
        bury("shop", ["u3"], lambda user: f"hash-{len(user)}")
        left = load_interactions("shop")
        for name in ("BPR", "NeuMF"):
            before = models[name].subject
            after = after_deletion(before, before.model, left)
            save_subject(after, folder / f"{name}-after")
            models[f"{name}-after"] = Served(after, left)
    return SimpleNamespace(models=models, folder=folder, home=folder / "home", frame=frame)


@pytest.mark.parametrize("name", PARAMS)
def test_the_best_unseen_items_by_the_models_scores(shop, name):
    model = shop.models[name]
    found = recommend(model, "u5", 6)
    row = model.subject.entities.tolist().index("u5")
    scores = model.subject.item_scores(model.subject.model, np.array([row]))[0].tolist()
    seen = set(shop.frame["item_id"][shop.frame["user_id"] == "u5"])
    ranked = sorted(zip(model.subject.items.tolist(), scores, strict=True), key=lambda pair: -pair[1])
    assert list(found.items) == [item for item, _ in ranked if item not in seen][:6]
    assert found.source == "model"
    assert list(found.scores) == sorted(found.scores, reverse=True)


def test_fewer_items_than_asked_for(shop):
    assert len(recommend(shop.models["BPR"], "u5", 1000).items) == 26 - 12


def popular(shop, model):
    """Training items by count, as pandas counts them; ties in the order of the model's items."""
    _user, item = model.subject.interactions()
    counts = pd.Series(item).value_counts().reindex(range(len(model.subject.items)), fill_value=0)
    order = counts.sort_values(ascending=False, kind="stable").index
    return [str(model.subject.items[i]) for i in order]


@pytest.mark.parametrize(
    ("user", "deleted", "reason"),
    [("nobody", False, "unknown"), ("u3", True, "deleted"), ("u3", False, "unknown")],
)
def test_strangers_get_popular_items_and_never_their_old_list(shop, user, deleted, reason):
    model = shop.models["BPR-after"]
    found = recommend(model, user, 5, deleted=deleted)
    assert (found.source, found.reason) == ("popular", reason)
    assert list(found.items) == popular(shop, model)[:5]
    assert found.items != recommend(shop.models["BPR"], "u3", 5).items


def test_strangers_get_an_error_where_that_is_asked_for(shop):
    with pytest.raises(UsageError, match=r"was deleted \('shop'\)"):
        recommend(shop.models["BPR-after"], "u3", strangers="error", deleted=True)
    with pytest.raises(UsageError, match="is not in the data set"):
        recommend(shop.models["BPR-after"], "nobody", strangers="error")
    with pytest.raises(UsageError, match="at least 1, but got 0"):
        recommend(shop.models["BPR"], "u5", 0)


def test_a_tombstone_is_nobody(shop):
    from recunlearn.data.tombstones import is_tombstone

    model = shop.models["BPR-after"]
    (stone,) = [u for u in model.subject.entities.tolist() if is_tombstone(u)]
    assert recommend(model, stone).reason == "unknown"


def test_items_that_only_the_deleted_had_are_gone(shop):
    before, after = shop.models["BPR"], shop.models["BPR-after"]
    assert "rare" in recommend(before, "u5", 100).items
    assert "rare" not in recommend(after, "u5", 100).items
    assert "rare" in before.subject.items
    assert "rare" in after.subject.items  # its number stays taken
    assert "rare" not in embeddings(after, "items")[0]
    users = embeddings(after, "users")[0].tolist()
    assert sorted(users) == sorted({f"u{n}" for n in range(30)} - {"u3"})


@pytest.mark.parametrize(
    ("name", "dot"), [("BPR", True), ("LightGCN", True), ("NeuMF", False), ("SASRec", False)]
)
def test_vectors_are_those_of_the_score(shop, name, dot):
    model = shop.models[name]
    assert is_dot_product(model) is dot
    ids, items = embeddings(model, "items")
    assert ids.tolist() == model.subject.items.tolist()
    assert items.shape == (26, 8 if name == "NeuMF" else 4)
    if dot:
        _, users = embeddings(model, "users")
        scores = model.subject.item_scores(model.subject.model, np.arange(30))
        torch.testing.assert_close(torch.from_numpy(users @ items.T), scores, rtol=1e-4, atol=1e-5)


def test_models_without_user_vectors_say_so(shop, tmp_path):
    with pytest.raises(UsageError, match="SASRec has no vector for each of its users"):
        export_embeddings(shop.models["SASRec"], tmp_path / "x.npz", ("items", "users"))
    assert list(tmp_path.iterdir()) == []


def test_files_hold_ids_vectors_and_what_made_them(shop, tmp_path):
    model = shop.models["BPR-after"]
    counts = export_embeddings(model, tmp_path / "both.parquet", ("items", "users"))
    assert counts == {"items": 25, "users": 29}
    export_embeddings(model, tmp_path / "items.npz")
    table = pd.read_parquet(tmp_path / "both.parquet")
    ids, items = embeddings(model, "items")
    assert table["id"][table["kind"] == "item"].tolist() == ids.tolist()
    assert np.array_equal(np.stack(table["vector"][:25]), items)
    with np.load(tmp_path / "items.npz") as arrays:
        assert arrays["item_ids"].tolist() == ids.tolist()
        assert np.array_equal(arrays["items"], items)
        facts = json.loads(str(arrays["facts"]))
    assert facts["weights_hash"] == model.subject.weights_hash
    assert facts["dot_product"] == "true"
    assert "u3" not in set(table["id"])


def test_refused_files(shop, tmp_path):
    with pytest.raises(UsageError, match=r"\.parquet or \.npz"):
        export_embeddings(shop.models["BPR"], tmp_path / "x.csv")


def test_a_model_that_is_not_there_is_not_trained(shop, monkeypatch):
    monkeypatch.setenv("RECUNLEARN_HOME", str(shop.home))
    asked = keys_for(ScoreSettings(dataset="shop", model="FISM"))
    with pytest.raises(UsageError, match="no trained FISM of 'shop' with these settings"):
        served(asked)
    from shutil import copytree

    for name in ("BPR-before", "BPR-after"):
        copytree(shop.folder / name, shop.home / "models" / name, dirs_exist_ok=True)
    with pytest.raises(UsageError, match=r"name a --checkpoint: \S+/BPR-after\.$"):
        served(asked)


class TestCommands:
    @pytest.fixture
    def call(self, shop, run_cli, monkeypatch):
        monkeypatch.setenv("RECUNLEARN_HOME", str(shop.home))
        return run_cli

    def named(self, shop, name):
        return ["--dataset", "shop", "--checkpoint", shop.folder / name]

    def test_recommend(self, shop, call):
        done = call(
            "recommend", "--user", "u5", "-k", "3", "--format", "json", *self.named(shop, "BPR-after")
        )
        assert done.code == 0, done.err
        told = json.loads(done.out)
        expected = recommend(shop.models["BPR-after"], "u5", 3)
        assert [row["item_id"] for row in told["items"]] == list(expected.items)
        assert (told["source"], told["model"]) == ("model", "BPR")

    def test_recommend_to_a_stranger(self, shop, call):
        done = call("recommend", "--user", "nobody", "--format", "csv", *self.named(shop, "BPR-after"))
        assert done.code == 0, done.err
        assert done.out.splitlines()[0] == "rank,item_id,score"
        assert "not in the data" in done.err
        done = call("recommend", "--user", "nobody", "--strangers", "error", *self.named(shop, "BPR-after"))
        assert (done.code, done.out) == (2, "")

    def test_the_old_checkpoint_is_of_other_data(self, shop, call):
        done = call("recommend", "--user", "u3", *self.named(shop, "BPR-before"))
        assert done.code == 1
        assert "other contents" in done.err
        assert done.out == ""

    def test_exports(self, shop, call, tmp_path):
        done = call("export-embeddings", "--out", tmp_path / "x.parquet", *self.named(shop, "NeuMF-after"))
        assert done.code == 0, done.err
        assert "25 items" in done.out
        done = call("export-recbole", shop.folder / "NeuMF-after", "--out", tmp_path / "x.pth")
        assert done.code == 0, done.err
        assert sorted(p.name for p in tmp_path.iterdir()) == ["x-data", "x.parquet", "x.pth"]

    def test_a_damaged_checkpoint(self, shop, call, tmp_path):
        import shutil

        broken = shutil.copytree(shop.folder / "BPR-after", tmp_path / "broken")
        (broken / "weights.safetensors").write_bytes(b"x")
        done = call("recommend", "--user", "u5", "--dataset", "shop", "--checkpoint", broken)
        assert done.code == 1
        assert "truncated or was altered" in done.err
