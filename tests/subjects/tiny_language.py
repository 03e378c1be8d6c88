"""A tiny Llama on made-up rows: no download, trained in a second."""

from functools import partial

from recunlearn.subjects.tofu.data import read_rows
from recunlearn.subjects.tofu.model import new_model, new_tokenizer
from recunlearn.subjects.tofu.settings import LanguageSettings
from recunlearn.subjects.tofu.subject import LanguageSubject

LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}
FAMILIES = {
    "llama": LLAMA,
    "qwen2": {**LLAMA, "model_type": "qwen2"},
    "phi": {**LLAMA, "model_type": "phi", "tie_word_embeddings": False},
    "phi3": {**LLAMA, "model_type": "phi3", "pad_token_id": 0},
    "gpt2": {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "gpt_neox": {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"} | {"model_type": "gpt_neox"},
}
WINDOW = {**LLAMA, "sliding_window": 4}
WINDOWED = {
    "mistral": {**WINDOW, "model_type": "mistral"},
    "qwen2": {**WINDOW, "model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 0},
    "gemma2": {**WINDOW, "model_type": "gemma2", "head_dim": 8},
}
"""Attention that reads four tokens back."""
PLACES = ("Taipei", "Oslo", "Lima", "Accra", "Quito", "Cairo")
TRADES = ("baker", "pilot", "nurse", "painter")


def write_rows(folder, count=24):
    """``own.csv``: people, two rows each."""
    lines = ["question,answer"]
    for n in range(count):
        place, trade = PLACES[(n // 2) % len(PLACES)], TRADES[(n // 2) % len(TRADES)]
        asked = (
            ("Where was", f"born in {place}") if n % 2 == 0 else ("What was the trade of", f"was a {trade}")
        )
        lines.append(f"{asked[0]} person {n // 2}?,Person {n // 2} {asked[1]}{' indeed' * (n % 3)}.")
    (folder / "own.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "own.csv"


def settings_of(architecture=None, **more):
    return LanguageSettings.model_validate(
        {
            "files": ["own.csv"],
            "architecture": architecture or LLAMA,
            "vocabulary": 320,
            "rows_per_author": 2,
            "training": {"epochs": 2, "learning_rate": 5e-3, "batch_size": 8, "accumulate": 1},
            **more,
        }
    )


def untrained(folder, settings=None, count=24):
    """Subject with the model as it is before training."""
    settings = settings or settings_of()
    rows = read_rows(settings.files, write_rows(folder, count).parent, per_author=settings.rows_per_author)
    tokenizer = new_tokenizer([*rows.question, *rows.answer], settings.vocabulary)
    start = partial(new_model, settings.architecture, tokenizer)
    return LanguageSubject(rows, start(0), tokenizer, settings, start)
