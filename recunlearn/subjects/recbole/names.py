"""Which RecBole models there are, read from the installed sources: imports neither torch nor recbole."""

import ast
import importlib.util
import warnings
from functools import cache
from pathlib import Path

from recunlearn.foundation.errors import RecunlearnError, UsageError, near_miss

FAMILIES = {
    "general": "general_recommender",
    "context-aware": "context_aware_recommender",
    "sequential": "sequential_recommender",
}

NO_GRADIENT = "is computed in closed form or by counting, not trained by gradient descent"
OWN_PROCEDURE = {
    "GRU4RecKG": "needs pre-trained entity embeddings of a knowledge graph",
    "KD_DAGFM": "needs a teacher model that was trained before",
    "KSR": "needs pre-trained entity embeddings of a knowledge graph",
    "LDiffRec": "needs item clusters from a model that was trained before",
    "NCEPLRec": NO_GRADIENT,
    "NCL": "alternates training with clustering by faiss",
    "RaCT": "is trained in three phases (actor, critic, both)",
    "RecVAE": "alternates between two optimisers",
    "S3Rec": "needs a pre-training phase",
}


def recbole_folder() -> Path:
    """Folder of the installed recbole package.

    Raises:
        RecunlearnError: recbole is not installed.
    """
    spec = importlib.util.find_spec("recbole")
    if spec is None or spec.origin is None:
        raise RecunlearnError(
            "The package recbole is not installed. Run: pip install -c constraints.txt recbole==1.2.1."
        )
    return Path(spec.origin).parent


@cache
def _scan() -> tuple[dict[str, str], dict[str, str]]:
    """Names of trainable models with their family, and of the others with the reason."""
    trainable, refused = {}, dict(OWN_PROCEDURE)
    for family, folder in FAMILIES.items():
        for file in sorted((recbole_folder() / "model" / folder).glob("*.py")):
            found = _model_class(file)
            if found is None:
                continue
            if _is_traditional(found):
                refused[found.name] = NO_GRADIENT
            elif found.name not in refused:
                trainable[found.name] = family
    return trainable, refused


def _model_class(file: Path) -> ast.ClassDef | None:
    """Return the class that RecBole takes from a file: the one named like it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escape sequences in RecBole's docstrings
        body = ast.parse(file.read_text(encoding="utf-8")).body
    classes = (n for n in body if isinstance(n, ast.ClassDef))
    return next((c for c in classes if c.name.lower() == file.stem), None)


def _is_traditional(found: ast.ClassDef) -> bool:
    values = (n.value for n in found.body if isinstance(n, ast.Assign))
    return any(isinstance(v, ast.Attribute) and v.attr == "TRADITIONAL" for v in values)


def list_models() -> dict[str, str]:
    """Trainable models by name -> "general", "context-aware" or "sequential"."""
    return dict(_scan()[0])


def untrainable_models() -> dict[str, str]:
    """RecBole models that this program does not train -> why."""
    return dict(_scan()[1])


def family_of(model: str) -> str:
    """Family of a model by its exact name.

    Raises:
        UsageError: the model is unknown (with the near miss and the list) or cannot be trained here (why).
    """
    trainable, refused = _scan()
    if model in trainable:
        return trainable[model]
    if model in refused:
        raise UsageError(
            f"The model {model} {refused[model]}. Choose one of: {', '.join(sorted(trainable))}."
        )
    hint = near_miss(model, trainable)
    raise UsageError(f"Unknown model '{model}'.{hint} Choose one of: {', '.join(sorted(trainable))}.")
