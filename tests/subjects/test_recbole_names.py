"""Models by name and parameters by name, without torch."""

import subprocess
import sys

import pytest

from recunlearn.foundation.errors import UsageError
from recunlearn.foundation.settings import ScoreSettings, TrainingSettings
from recunlearn.subjects.recbole.names import family_of, list_models, untrainable_models
from recunlearn.subjects.recbole.parameters import epochs_of, model_key, recbole_defaults, resolve


def test_families():
    models = list_models()
    assert {m: models[m] for m in ("NeuMF", "LightGCN", "DeepFM", "xDeepFM", "SASRec", "BERT4Rec")} == {
        "NeuMF": "general",
        "LightGCN": "general",
        "DeepFM": "context-aware",
        "xDeepFM": "context-aware",
        "SASRec": "sequential",
        "BERT4Rec": "sequential",
    }
    assert len(models) >= 60


def test_models_without_gradients_are_refused_with_the_reason():
    assert not set(untrainable_models()) & set(list_models())
    with pytest.raises(UsageError, match="ItemKNN is computed in closed form or by counting"):
        family_of("ItemKNN")


def test_unknown_models_get_the_near_miss_and_the_list():
    with pytest.raises(
        UsageError, match=r"Unknown model 'neumf'. Did you mean NeuMF\? Choose one of: AFM, .*FM"
    ):
        family_of("neumf")


@pytest.mark.parametrize("model", sorted(list_models()))
def test_our_defaults_are_known_parameters_of_the_right_kind(model):
    ours = resolve(model, {})
    assert set(ours) <= set(recbole_defaults(model))
    assert resolve(model, ours) == ours


def test_exponents_without_a_point_are_numbers():
    assert recbole_defaults("LightGCN")["reg_weight"] == 1e-5


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"learning_rat": 1}, r"Unknown parameter 'learning_rat' of NeuMF. Did you mean learning_rate\?"),
        ({"n_layers": 2}, "Unknown parameter 'n_layers' of NeuMF"),
        ({"mf_embedding_size": 8.5}, "must be a whole number such as 64, but got 8.5"),
        ({"mf_embedding_size": True}, "must be a whole number such as 64, but got True"),
        ({"mlp_hidden_size": 64}, r"must be a list such as \[128, 64\], but got 64"),
        ({"mlp_hidden_size": ["a"]}, "must be a list"),
        ({"learning_rate": "fast"}, "must be a number such as 0.001, but got 'fast'"),
        ({"mf_train": 1}, "must be true or false such as True, but got 1"),
        ({"seed": 3}, "not passed to RecBole: use --seed"),
        ({"epochs": 3}, "use the setting training.epochs"),
        ({"data_path": "/"}, "recunlearn sets it"),
        ({"load_col": {}}, "recunlearn sets it"),
        ({"mf_embedding_size": 0}, "'mf_embedding_size' of NeuMF must be 1 or more, but got 0"),
        ({"mlp_hidden_size": [8, -1]}, r"must be 1 or more, but got \[8, -1\]"),
        ({"train_batch_size": 0}, "must be 1 or more"),
        ({"learning_rate": float("nan")}, "must be finite, but got nan"),
        ({"learning_rate": 0}, "must be above 0"),
        ({"weight_decay": -1}, "must be 0 or more"),
        ({"train_neg_sample_args": {"uniform": 1}}, r"must be a table such as \{'distribution'"),
        ({"train_neg_sample_args": {"sample_num": 0}}, "must have a sample_num of 1 or more"),
        ({"train_neg_sample_args": {"distribution": "x"}}, "uniform, popularity or none"),
        ({"clip_grad_norm": "x"}, r"must be a table such as \{max_norm=5, norm_type=2\}"),
        ({"clip_grad_norm": {"max_norm": -1}}, "with numbers above 0"),
        ({"clip_grad_norm": {"norm_type": 2}}, "with numbers above 0"),
    ],
)
def test_wrong_parameters(params, sentence):
    with pytest.raises(UsageError, match=sentence):
        resolve("NeuMF", params)


def test_good_tables_are_taken():
    params = {"clip_grad_norm": {"max_norm": 5.0}, "train_neg_sample_args": {"distribution": "popularity"}}
    assert resolve("NeuMF", params).items() >= params.items()


def test_whole_numbers_are_numbers():
    assert resolve("NeuMF", {"dropout_prob": 0})["dropout_prob"] == 0


def test_bpr_loss_brings_negatives_to_sequential_models():
    assert resolve("SASRec", {})["train_neg_sample_args"] is None
    assert resolve("SASRec", {"loss_type": "BPR"})["train_neg_sample_args"]["sample_num"] == 1


def test_model_key_tells_what_makes_another_model():
    base = ScoreSettings()
    others = [
        base.model_copy(update=change)
        for change in (
            {"model": "BPR"},
            {"seed": 1},
            {"min_rating": 4.0},
            {"training": TrainingSettings(epochs=3)},
            {"training": TrainingSettings(patience=9)},
            {"training": TrainingSettings(params={"learning_rate": 0.5})},
        )
    ]
    keys = [model_key("data", s) for s in (base, *others)] + [model_key("other", base)]
    assert len(set(keys)) == len(keys)
    same = base.model_copy(update={"device": "cpu", "threads": 1})
    assert model_key("data", same) == model_key("data", base)


def test_epochs_are_the_users_or_the_defaults():
    assert epochs_of(ScoreSettings(training=TrainingSettings(epochs=3))) == 3
    assert epochs_of(ScoreSettings(model="SASRec")) >= 5


def test_names_and_keys_import_no_torch():
    code = (
        "import sys; from recunlearn.subjects.recbole.parameters import model_key;"
        "from recunlearn.foundation.settings import ScoreSettings; model_key('x', ScoreSettings());"
        "print([m for m in ('torch', 'recbole', 'lightning', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
