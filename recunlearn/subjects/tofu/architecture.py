"""Configurations of new language models, by the names of transformers: checked before a model is made."""

from collections.abc import Mapping
from typing import Any

from recunlearn.foundation.errors import UsageError, near_miss

EXAMPLES = "llama, qwen2, phi, gpt2, gpt_neox"


def configuration(architecture: Mapping[str, Any]) -> Any:
    """Configuration of transformers for a causal language model.

    Args:
        architecture: ``model_type``, and values by transformers' names.

    Raises:
        UsageError: an unknown kind of model, one that is no causal language model, a name that has no effect,
            or a value that transformers refuses.
    """
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    own = dict(architecture)
    kind = str(own.pop("model_type"))
    known = list(CONFIG_MAPPING.keys())
    if kind not in known:
        raise UsageError(
            f"[architecture] names the unknown model_type '{kind}'.{near_miss(kind, known)} Give one of the "
            f"{len(known)} that transformers has, such as {EXAMPLES}."
        )
    if CONFIG_MAPPING[kind] not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UsageError(
            f"[architecture] names the model_type '{kind}', which is no causal language model. Give one such "
            f"as {EXAMPLES}."
        )
    for name in own:
        _refuse_unknown(kind, own, name)
    try:
        return CONFIG_MAPPING[kind](**own)
    except Exception as error:
        raise refused(kind, error) from None


def _refuse_unknown(kind: str, own: Mapping[str, Any], name: str) -> None:
    """Refuse a name that no default has and that changes nothing but itself: transformers ignores it."""
    from transformers import CONFIG_MAPPING

    usual = CONFIG_MAPPING[kind]()
    if hasattr(usual, name) or hasattr(usual, f"_{name}"):
        return
    try:
        with_it = CONFIG_MAPPING[kind](**own).to_dict()
        without = CONFIG_MAPPING[kind](**{k: v for k, v in own.items() if k != name}).to_dict()
    except Exception as error:
        raise refused(kind, error) from None
    if {k: v for k, v in with_it.items() if k != name} == without:
        raise UsageError(
            f"The [architecture] of a {kind} model has no '{name}'.{near_miss(name, usual.to_dict())} "
            "Correct the name, or leave it out."
        )


def refused(kind: str, error: Exception) -> UsageError:
    """Sentence for values that transformers refuses."""
    text = " ".join(str(error).split()) or type(error).__name__
    return UsageError(
        f"The [architecture] of a {kind} model is refused by transformers: {text.rstrip('. ')}. Correct its "
        "values."
    )


__all__ = ["configuration", "refused"]
