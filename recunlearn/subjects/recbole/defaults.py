"""Default parameters that fit two cores; everything not named here is RecBole's own default."""

from typing import Any

FAMILY_DEFAULTS: dict[str, dict[str, Any]] = {
    "general": {"embedding_size": 64, "train_batch_size": 2048},
    "context-aware": {"embedding_size": 16, "train_batch_size": 2048},
    "sequential": {
        "train_batch_size": 2048,
        "MAX_ITEM_LIST_LENGTH": 20,
        "hidden_size": 32,
        "embedding_size": 32,
        "n_layers": 1,
        "n_heads": 2,
        "inner_size": 64,
        "train_neg_sample_args": None,
    },
}

_NEGATIVE = {"distribution": "uniform", "sample_num": 1, "alpha": 1.0, "dynamic": False, "candidate_num": 0}

DEFAULTS: dict[str, dict[str, Any]] = {
    "NeuMF": {
        "mf_embedding_size": 32,
        "mlp_embedding_size": 32,
        "mlp_hidden_size": [64, 32],
        "learning_rate": 0.002,
    },
    "BPR": {"embedding_size": 64, "learning_rate": 0.002},
    "LightGCN": {"embedding_size": 64, "n_layers": 2, "learning_rate": 0.005},
    "DeepFM": {"embedding_size": 16, "mlp_hidden_size": [64, 64], "learning_rate": 0.002},
    "SASRec": {"hidden_dropout_prob": 0.2, "attn_dropout_prob": 0.2, "learning_rate": 0.003},
    "FEARec": {"n_layers": 2},
    "FPMC": {"train_neg_sample_args": _NEGATIVE},
    "TransRec": {"train_neg_sample_args": _NEGATIVE},
    "DIN": {"train_neg_sample_args": _NEGATIVE},
    "DIEN": {"train_neg_sample_args": _NEGATIVE},
}

BIG_DATA, BIG_BATCH = 500_000, 8192
"""From that many interactions on the default batch is larger: fewer steps, the same quality."""

FAMILY_EPOCHS = {"general": 30, "context-aware": 25, "sequential": 12}
"""Most epochs; early stopping usually ends sooner."""

EPOCHS: dict[str, int] = {}

_OURS = "recunlearn sets it"
CONTROLLED: dict[str, str] = {
    "seed": "use --seed",
    "epochs": "use the setting training.epochs",
    "stopping_step": "use the setting training.patience",
    "gpu_id": "use --device",
    "use_gpu": "use --device",
    "threshold": "use --min-rating",
    "val_interval": "use --min-rating",
    **dict.fromkeys(
        (
            "worker",
            "state",
            "data_path",
            "checkpoint_dir",
            "show_progress",
            "save_dataset",
            "dataset_save_path",
            "save_dataloaders",
            "dataloaders_save_path",
            "log_wandb",
            "wandb_project",
            "eval_args",
            "eval_batch_size",
            "metrics",
            "topk",
            "valid_metric",
            "valid_metric_bigger",
            "metric_decimal_place",
            "repeatable",
            "enable_amp",
            "enable_scaler",
            "field_separator",
            "seq_separator",
            "USER_ID_FIELD",
            "ITEM_ID_FIELD",
            "RATING_FIELD",
            "TIME_FIELD",
            "LABEL_FIELD",
            "NEG_PREFIX",
            "ITEM_LIST_LENGTH_FIELD",
            "LIST_SUFFIX",
            "benchmark_filename",
            "unload_col",
            "unused_col",
            "additional_feat_suffix",
            "preload_weight",
            "rm_dup_inter",
            "filter_inter_by_user_or_item",
            "user_inter_num_interval",
            "item_inter_num_interval",
            "entity_kg_num_interval",
            "relation_kg_num_interval",
            "load_col",
            "alias_of_user_id",
            "alias_of_item_id",
            "alias_of_entity_id",
            "alias_of_relation_id",
            "transform",
            "discretization",
            "seq_len",
            "POSITION_FIELD",
            "HEAD_ENTITY_ID_FIELD",
            "TAIL_ENTITY_ID_FIELD",
            "RELATION_ID_FIELD",
            "ENTITY_ID_FIELD",
        ),
        _OURS,
    ),
}
"""Parameters that are not the user's -> what to do instead."""
