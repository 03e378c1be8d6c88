"""RecEraser and SISA in a world that trains in a moment: deletion, equality bit for bit, resumption."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from recunlearn.foundation.errors import UsageError
from recunlearn.testing.checkerboard import CheckerboardWorld
from recunlearn.testing.linear import LinearWorld
from recunlearn.unlearning import make
from recunlearn.unlearning.shards import submodels
from recunlearn.unlearning.shards.partition import at_random
from recunlearn.unlearning.shards.submodels import make_parts, read_state, train_parts, write_state

FORGET = np.array([3])
QUICK = {
    "SISA": {"shards": 3},
    "RecEraser": {"shards": 3, "aggregator_batch": 128, "aggregator_steps": 20, "warm_steps": 5},
}


@pytest.fixture(scope="module")
def world():
    return CheckerboardWorld(30, 20, family="pairwise", epochs=30)


def loss(world, model, rows=None):
    with torch.no_grad():
        return float(-world.log_likelihood(model, next(world.batches(rows, batch_size=10_000))).mean())


def same(left, right):
    a, b = left.state_dict(), right.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.fixture
def trained(monkeypatch):
    """Number of samples of every sub-model that is trained."""
    seen, true = [], submodels._train

    def spy(shared, number):
        seen.append(int(shared[1][number].kept.sum()))
        true(shared, number)

    monkeypatch.setattr(submodels, "_train", spy)
    return seen


@pytest.mark.parametrize("name", list(QUICK))
def test_deletion_trains_the_touched_shard_alone(world, tmp_path, trained, name):
    method = make(name, QUICK[name])
    original = method.original(world, folder=tmp_path)
    assert len(trained) == 3
    assert sum(trained) == world.n_samples().sum()
    cost = method.cost(world, FORGET)
    trained.clear()
    done = method.unlearn(world, FORGET, folder=tmp_path)
    assert len(trained) == 1
    assert cost.shards == done.shards == 1
    assert cost.parameters == done.parameters
    assert (cost.steps or 0) == done.steps
    assert f"retrains 1 of 3 shards ({trained[0]:,} of {world.n_samples().sum():,} inter" in cost.sentence
    # The forgotten user, a stranger now, is answered for by the population: near a pairwise loss of log 2.
    assert loss(world, original, FORGET) < 0.4 < loss(world, done.model, FORGET)
    others = np.setdiff1d(np.arange(30), FORGET)
    assert loss(world, done.model, others) < 0.45


@pytest.mark.parametrize("name", list(QUICK))
def test_retrained_shard_is_the_one_trained_without_the_user(world, tmp_path, name):
    method = make(name, QUICK[name])
    method.unlearn(world, FORGET, seed=4, folder=tmp_path)
    owner, item = world.pairs()
    shard = method.partition(world, owner, item)
    mine = shard[owner == 3][0]
    kept = (shard == mine) & (owner != 3)
    s = method.settings
    fresh = world.train_on(kept, seed=4, effort=s.effort, batch=s.batch)
    parts = make_parts(world, shard, owner == 3, seed=4, effort=s.effort, batch=s.batch)
    stored = read_state((tmp_path / "shards") / f"{parts[mine].key}.safetensors")
    assert stored is not None
    assert all(torch.equal(stored[0][k], v) for k, v in fresh.state_dict().items())


def test_exact_deletion_equals_a_system_that_never_saw_the_user(world, tmp_path):
    # Without a warm start nothing of the original's aggregator enters, so a folder that never held the
    # original gives the same model.
    method = make("RecEraser", {**QUICK["RecEraser"], "warm_start": False})
    method.original(world, folder=tmp_path / "known")
    after = method.unlearn(world, FORGET, folder=tmp_path / "known")
    never = method.unlearn(world, FORGET, folder=tmp_path / "never")
    assert same(after.model, never.model)
    assert after.steps == method.cost(world, FORGET).steps


@pytest.mark.parametrize("name", list(QUICK))
def test_results_are_read_back(world, tmp_path, trained, name):
    method = make(name, QUICK[name])
    first = method.unlearn(world, FORGET, folder=tmp_path)
    trained.clear()
    again = method.unlearn(world, FORGET, folder=tmp_path)
    assert trained == []
    assert same(first.model, again.model)
    assert again.seconds >= 0.5 * sum(first.parts[p] for p in ("shards", "combination"))
    assert same(first.model, method.unlearn(world, FORGET).model)
    assert not same(first.model, method.unlearn(world, FORGET, seed=1, folder=tmp_path).model)


def test_a_damaged_file_is_trained_again(world, tmp_path, trained):
    method = make("SISA", QUICK["SISA"])
    first = method.original(world, folder=tmp_path)
    damaged = sorted((tmp_path / "shards").glob("*.safetensors"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-10])
    trained.clear()
    assert same(first, method.original(world, folder=tmp_path))
    assert len(trained) == 1


class _KilledError(BaseException):
    pass


def test_a_killed_run_goes_on_with_the_missing_shards(world, tmp_path, trained):
    owner = world.pairs()[0]
    parts = make_parts(world, at_random(owner, 3), np.zeros(len(owner), dtype=bool), seed=0)

    def kill(done, count):
        if done == 2:
            raise _KilledError

    with pytest.raises(_KilledError):
        train_parts(world, parts, tmp_path, told=kill)
    assert len(trained) == 2
    train_parts(world, parts, tmp_path)
    assert len(trained) == 3


def test_a_killed_aggregator_goes_on(world, tmp_path, monkeypatch):
    monkeypatch.setattr("recunlearn.unlearning.journal.SECONDS_APART", 0.0)
    method = make("RecEraser", QUICK["RecEraser"])
    wanted = method.unlearn(world, FORGET, folder=tmp_path / "whole")

    def kill(title, done, count):
        if title.endswith("aggregator") and done == 2:
            raise _KilledError

    place = tmp_path / "killed"
    for _ in range(2):  # Once in the original's aggregator, once in the one after the deletion.
        with pytest.raises(_KilledError):
            method.unlearn(world, FORGET, folder=place, progress=kill)
    found = method.unlearn(world, FORGET, folder=place)
    assert same(found.model, wanted.model)


def test_sisa_is_the_mean_of_the_scores(world, tmp_path):
    method = make("SISA", QUICK["SISA"])
    model = method.original(world, folder=tmp_path)
    owner = world.pairs()[0]
    shard = at_random(owner, 3)
    user, items = torch.tensor([7]), torch.arange(world.n_items)
    found = []
    for number in range(3):
        part = world.train_on(shard == number, seed=0, effort=method.settings.effort)
        home = shard[owner == 7][0] == number
        # Elsewhere user 7 has the mean of the vectors of those who live there.
        there = np.unique(owner[shard == number])
        table = part.user_embedding.weight
        vector = table[7] if home else table[torch.from_numpy(there)].mean(0)
        found.append(part.out(vector * part.item_embedding.weight).squeeze(1))
    torch.testing.assert_close(model(user[:, None], items[None])[0], sum(found) / 3)


def test_all_users_of_a_shard(world, tmp_path):
    for name, quick in QUICK.items():
        method = make(name, quick)
        owner, item = world.pairs()
        forget = np.unique(owner[method.partition(world, owner, item) == 1])
        done = method.unlearn(world, forget, folder=tmp_path)
        assert done.shards == 1
        assert loss(world, done.model, np.setdiff1d(np.arange(30), forget)) < 0.45


def test_deletions_add_up(world, tmp_path, trained):
    method = make("SISA", QUICK["SISA"])
    method.unlearn(world, FORGET, folder=tmp_path)
    shard = method.partition(world, *world.pairs())
    owner = world.pairs()[0]
    other = next(u for u in range(30) if shard[owner == u][0] != shard[owner == 3][0])
    trained.clear()
    assert method.unlearn(world, np.array([3, other]), folder=tmp_path).shards == 2
    assert len(trained) == 1


@pytest.mark.parametrize("partition", ["inbp", "random"])
def test_partitions_of_interactions(world, tmp_path, partition):
    method = make("RecEraser", {**QUICK["RecEraser"], "partition": partition})
    cost, done = method.cost(world, FORGET), method.unlearn(world, FORGET, folder=tmp_path)
    owner, item = world.pairs()
    touched = len(np.unique(method.partition(world, owner, item)[owner == 3]))
    assert cost.shards == done.shards == touched
    assert partition != "random" or touched == 3


def test_processes_give_the_same_models(world, tmp_path, monkeypatch):
    monkeypatch.setattr("recunlearn.unlearning.shards.parallel.cores", lambda: 2)
    apart = make("SISA", {**QUICK["SISA"], "processes": 2}).original(world, folder=tmp_path)
    assert same(apart, make("SISA", QUICK["SISA"]).original(world))
    assert len(os.listdir(tmp_path / "shards")) == 3


def test_too_many_shards(world):
    for name in QUICK:
        with pytest.raises(UsageError, match=r"at most 30 \(users with training interactions\), but got 31"):
            make(name, {"shards": 31}).cost(world, FORGET)


def test_nobody_and_everybody_are_refused(world):
    for name in QUICK:
        with pytest.raises(UsageError, match="forget set is empty"):
            make(name).cost(world, np.zeros(0, dtype=np.int64))
        with pytest.raises(UsageError, match=r"All users .* nothing is left"):
            make(name).unlearn(world, np.arange(30))


def test_a_subject_without_parts_is_refused(world):
    class Plain:
        entities, family, model = world.entities, world.family, world.model
        n_samples = world.n_samples

    with pytest.raises(UsageError, match="SISA trains on parts of the data"):
        make("SISA").cost(Plain(), FORGET)


def test_inbp_needs_vectors_of_items():
    with pytest.raises(UsageError, match=r"needs vectors of items.*partition = 'ubp'"):
        make("RecEraser", {"shards": 3, "partition": "inbp"}).cost(LinearWorld(), FORGET)


def test_linear_users_keep_their_vectors_in_sisa(tmp_path):
    # Users are independent: in its own shard a user has the original vector, elsewhere the mean of those who
    # live there, so a user's vector is the mean of these three.
    world = LinearWorld()
    model = make("SISA", {"shards": 3}).original(world, folder=tmp_path)
    owner = world.pairs()[0]
    shard = at_random(owner, 3)
    table = world.model.user_embedding.weight.detach()
    wanted = torch.zeros_like(table)
    for number in range(3):
        there = torch.from_numpy(np.unique(owner[shard == number]))
        rows = table[there].mean(0).repeat(len(table), 1)
        rows[there] = table[there]
        wanted += rows / 3
    torch.testing.assert_close(model.user_embedding.weight.detach(), wanted)


def test_states_are_stored_with_their_seconds(tmp_path):
    write_state(tmp_path / "a.safetensors", {"w": torch.ones(2)}, 1.5)
    state = read_state(tmp_path / "a.safetensors")
    assert state is not None
    assert state[1] == 1.5
    assert torch.equal(state[0]["w"], torch.ones(2))
    assert read_state(tmp_path / "b.safetensors") is None


def test_parts_of_other_settings_are_others(world):
    owner = world.pairs()[0]
    shard, nobody = at_random(owner, 3), np.zeros(len(owner), dtype=bool)
    first = make_parts(world, shard, nobody, seed=0)
    for other in ({"seed": 1}, {"seed": 0, "effort": 2.0}, {"seed": 0, "batch": 0.5}):
        assert not {p.key for p in first} & {p.key for p in make_parts(world, shard, nobody, **other)}
    assert [replace(p, kept=0) for p in first] == [
        replace(p, kept=0) for p in make_parts(world, shard, nobody, seed=0)
    ]
