"""Checkpoints that belong to the data after a deletion: ids, numbers, rows and scores."""

import json

import numpy as np
import pytest
import torch
from test_recbole_subject import make, small_data

from recunlearn.data.tombstones import Erasure, is_tombstone, survivors
from recunlearn.foundation.errors import CheckpointError
from recunlearn.subjects.recbole.after_deletion import after_deletion
from recunlearn.subjects.recbole.store import load_subject, save_subject

CANARY, AGE = "canary-7f3a", "age-of-the-canary"


def data_with_a_canary():
    data = small_data()
    data.users.setflags(write=True)
    users = data.users.astype("U20")
    users[6] = CANARY
    table = data.user_features.copy()
    table["user_id"] = users
    table.loc[6, "age"] = AGE
    from dataclasses import replace

    return replace(data, users=users, user_features=table)


@pytest.fixture(scope="module", params=["NeuMF", "DeepFM", "SASRec", "LightGCN", "MultiVAE"])
def deleted(request, tmp_path_factory):
    """A model before, the same one after two users were deleted, its folder and the data."""
    folder = tmp_path_factory.mktemp("deleted")
    data = data_with_a_canary()
    before = make(request.param, folder, data, epochs=1)
    left = survivors(data, [Erasure(CANARY), Erasure("01")])
    after = after_deletion(before, before.model, left)
    save_subject(after, folder / "after")
    return request.param, before, after, folder / "after", left


def test_the_others_keep_numbers_and_scores(deleted):
    model, before, after, _, left = deleted
    dead = np.isin(before.entities, [CANARY, "01"])
    assert after.entities[~dead].tolist() == before.entities[~dead].tolist()
    assert [is_tombstone(u) for u in after.entities] == dead.tolist()
    assert after.items.tolist() == before.items.tolist()
    assert after.n_samples()[~dead].tolist() == before.n_samples()[~dead].tolist()
    assert not after.n_samples()[dead].any()
    alive = np.flatnonzero(~dead)
    scores = [s.item_scores(s.model, alive) for s in (before, after)]
    if model != "LightGCN":  # its propagation is that of the graph without the deleted
        torch.testing.assert_close(scores[1], scores[0])
    assert after.metrics["test"].keys() == before.metrics["test"].keys()
    assert after.bundle.facts["data_hash"] == left.hash


def test_rows_of_the_deleted_are_the_mean_of_the_others(deleted):
    model, before, after, _, _ = deleted
    vectors = after.user_vectors(after.model)
    if model in ("SASRec", "MultiVAE"):
        return
    dead = torch.from_numpy(np.isin(before.entities, [CANARY, "01"]))
    if model == "LightGCN":
        vectors = after.model.user_embedding.weight[1:]
    torch.testing.assert_close(vectors[dead], vectors[~dead].mean(0).expand(2, -1))


def test_no_file_of_the_checkpoint_holds_the_deleted(deleted):
    _, _, _, folder, _ = deleted
    content = b"".join(p.read_bytes() for p in folder.iterdir())
    assert CANARY.encode() not in content
    assert AGE.encode() not in content
    id_map = json.loads((folder / "idmap.json").read_text())
    assert len(id_map["users"]) == 30
    assert "01" not in id_map["users"]


def test_it_loads_on_the_data_after_and_on_no_other(deleted):
    _, _, after, folder, left = deleted
    loaded = load_subject(folder, left)
    assert dict(loaded.describe()) == dict(after.describe())
    users = np.flatnonzero(after.n_samples())[:5]
    assert torch.equal(loaded.item_scores(loaded.model, users), after.item_scores(after.model, users))
    with pytest.raises(CheckpointError, match="other contents"):
        load_subject(folder, data_with_a_canary())


def test_a_second_deletion_goes_on_top(deleted, tmp_path):
    _, _, after, _, left = deleted
    again = after_deletion(after, after.model, survivors(left, [Erasure("03")]))
    assert sum(map(is_tombstone, again.entities)) == 3
    assert again.entities[[is_tombstone(u) for u in after.entities]].tolist() == [
        u for u in after.entities if is_tombstone(u)
    ]
    save_subject(again, tmp_path / "again")
    assert load_subject(tmp_path / "again", survivors(left, [Erasure("03")])).weights_hash


def test_an_erased_part_of_a_history_keeps_the_user(tmp_path):
    data = small_data()
    before = make("BPR", tmp_path, data, epochs=1)
    item = str(data.items[data.item[data.user == 3][0]])
    after = after_deletion(before, before.model, survivors(data, [Erasure(str(data.users[3]), item)]))
    assert after.entities.tolist() == before.entities.tolist()
    assert torch.equal(after.model.user_embedding.weight, before.model.user_embedding.weight)
    quick = after_deletion(before, before.model, survivors(data, [Erasure("01")]), phases=("test",))
    assert (quick.metrics["valid"], quick.popularity_metrics["valid"]) == ({}, {})
    assert quick.metrics["test"].keys() == before.metrics["test"].keys()


def test_an_unlearned_graph_model_may_have_become_plain_tables(tmp_path):
    data = small_data()
    before = make("LightGCN", tmp_path, data, epochs=1)
    after = after_deletion(before, before.vectors(before.model).model, survivors(data, [Erasure("01")]))
    assert after.describe()["model"] == "BPR"


def test_a_damaged_id_map(deleted, tmp_path):
    import shutil

    _, _, _, folder, left = deleted
    copied = shutil.copytree(folder, tmp_path / "copy")
    id_map = json.loads((copied / "idmap.json").read_text())
    id_map["users"].reverse()
    (copied / "idmap.json").write_text(json.dumps(id_map))
    with pytest.raises(CheckpointError, match=r"idmap.json is damaged"):
        load_subject(copied, left)
