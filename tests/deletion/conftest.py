"""Keys, a ledger, and a home with a small trained model."""

import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from recunlearn.data.catalogue import load_interactions
from recunlearn.deletion.ledger import Ledger
from recunlearn.deletion.signing import make_keys, read_keys
from recunlearn.foundation.settings import ScoreSettings

TRAINING = {"epochs": 40, "params": {"embedding_size": 8, "learning_rate": 0.03}}


@pytest.fixture(scope="session")
def key_ring(tmp_path_factory):
    """One pair of keys for all tests."""
    return read_keys(make_keys(tmp_path_factory.mktemp("keyring") / "keys"))


@pytest.fixture
def ledger(home, key_ring):
    """An empty ledger in the home."""
    with Ledger(Ledger.default_path(), key_ring) as made:
        yield made


@pytest.fixture(scope="session")
def small_home(tmp_path_factory):
    """Home with 50 users of ml-100k under the name "shop" and a trained BPR; copied by ``shop``."""
    folder = tmp_path_factory.mktemp("deletion")
    log = load_interactions("ml-100k")
    rows = (log.user < 50) & (log.item < 150)
    frame = pd.DataFrame({"user_id": log.users[log.user], "item_id": log.items[log.item], "time": log.time})
    frame[rows].to_csv(folder / "shop.csv", index=False)
    settings = ScoreSettings(dataset="shop", model="BPR", training=TRAINING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUNLEARN_HOME", str(folder / "home"))
        from recunlearn.commands.app import run
        from recunlearn.studies.keys import keys_for
        from recunlearn.subjects.recbole.store import train_subject

        assert run(["data", "add", "shop", "--file", str(folder / "shop.csv"), "--time-col", "time"]) == 0
        assert run(["keys", "init"]) == 0
        train_subject(load_interactions("shop"), settings, folder=keys_for(settings).model)
    return SimpleNamespace(folder=folder, home=folder / "home", settings=settings, frame=frame[rows])


@pytest.fixture
def shop(small_home, home):
    """The small home, in a copy of its own; ``users`` by number of interactions, the fewest first."""
    shutil.copytree(small_home.home, home)
    counts = small_home.frame["user_id"].value_counts()
    users = [str(u) for u in counts.index[np.argsort(counts.to_numpy(), kind="stable")]]
    return SimpleNamespace(**{**vars(small_home), "home": home, "users": users, "keys": read_keys()})
