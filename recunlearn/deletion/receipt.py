"""The receipt of a request: plain JSON, signed, without an id; and what is wrong with a changed one."""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from recunlearn.deletion.ledger import Ledger, now
from recunlearn.deletion.rows import Job, Row
from recunlearn.deletion.signing import KeyRing, canonical, holds
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.store import read_json
from recunlearn.studies.keys import read_checkpoint

FORMAT = 1
VERSIONS = ("recunlearn", "torch", "recbole", "numpy")
FOLDER = "receipts"


class ReceiptError(RecunlearnError):
    """A receipt that does not hold; the exit code says what is wrong."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.exit_code = code


TAMPERED, UNSIGNED, WRONG_KEY, BROKEN_CHAIN, OTHER_MODEL = 3, 4, 5, 6, 7
"""Exit codes of ``verify``."""


def make_receipt(row: Row, job: Job, previous: str, keys: KeyRing) -> dict[str, Any]:
    """Receipt of one request of a job, signed.

    Args:
        row: of the request.
        job: whose facts hold what was done.
        previous: hash of the data set's receipt before this one; "" for the first.
        keys: that sign.
    """
    f = job.facts
    done = {
        "format": FORMAT,
        "reference": row.reference,
        "dataset": row.dataset,
        "scope": row.scope,
        "erased": row.who,
        "requested_at": row.requested_at,
        "received_at": row.received_at,
        "issued_at": now(),
        "job": {
            "name": job.name,
            "requests": f["requests"],
            "users": f["plan"]["users"],
            "scores": f["scores"],
        },
        "data": {"before": f["before"]["data_hash"], "after": f["after"]["data_hash"]},
        "interactions": {k: f["plan"][k] for k in ("interactions", "trained")},
        "model": {
            "name": f["after"]["model"],
            "before": f["before"]["weights_hash"],
            "after": f["after"]["weights_hash"],
        },
        **{k: f["accepted"][k] for k in ("method", "settings", "seed", "verified", "figures")},
        "limits": f["limits"],
        "refused": [{k: a[k] for k in ("method", "violations", "figures")} for a in f["refused"]],
        "seconds": f["seconds"],
        "drift": f["drift"],
        "purged": f["purged"],
        "versions": {name: version(name) for name in VERSIONS},
        "previous": previous,
        "public_key": base64.b64encode(keys.public).decode(),
    }
    return {**done, "signature": keys.sign(canonical(done))}


def receipt_hash(receipt: Mapping[str, Any]) -> str:
    """SHA-256 of a receipt with its signature, 64 hex digits."""
    return hashlib.sha256(canonical(dict(receipt))).hexdigest()


def receipt_path(out: Path, reference: str) -> Path:
    """File of a receipt; references that could leave the folder were refused when they were read."""
    return out / FOLDER / f"{reference}.json"


@dataclass(frozen=True)
class Verified:
    """What holds.

    Args:
        reference: of the request.
        signature, chain, model: a few words each; "not checked" says why.
    """

    reference: str
    signature: str
    chain: str
    model: str

    @property
    def sentence(self) -> str:
        """One line."""
        return (
            f"The receipt {self.reference} holds: signature {self.signature}, chain {self.chain}, model "
            f"{self.model}."
        )


def verify(
    file: Path, public: bytes, *, ledger: Ledger | None = None, checkpoint: Path | None = None
) -> Verified:
    """Check signature, chain and, with a checkpoint, the model.

    Args:
        file: receipt.
        public: raw key that it should be signed with.
        ledger: holds every receipt's hash; None: the chain is looked for in the file's folder.
        checkpoint: folder of the model after the deletion.

    Raises:
        ReceiptError: what does not hold, each with an exit code of its own.
    """
    receipt = _read(file)
    _check_signature(file, receipt, public)
    chain = _chain_in_ledger(receipt, ledger) if ledger else _chain_in_folder(file, receipt)
    model = "not checked (name it with --checkpoint)"
    if checkpoint is not None:
        model = _check_model(receipt, checkpoint)
    return Verified(str(receipt["reference"]), "valid", chain, model)


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise RecunlearnError(
            f"There is no receipt {file}. Receipts lie in receipts/ of the home, or of --out."
        )
    try:
        receipt = json.loads(file.read_bytes(), object_pairs_hook=_once, parse_constant=_refuse)
    except OSError as error:
        raise RecunlearnError(f"{file} cannot be read ({error.strerror}). Check its permissions.") from None
    except (ValueError, RecursionError) as error:
        raise ReceiptError(f"{file} is no receipt of a deletion: {error}.", TAMPERED) from None
    kept = receipt if isinstance(receipt, dict) else {}
    if isinstance(kept.get("format"), int) and kept["format"] > FORMAT:
        raise RecunlearnError(
            f"{file} was written by a newer version (format {kept['format']}, here {FORMAT}). Update."
        )
    if not {"reference", "dataset", "model", "previous"} <= kept.keys():
        raise ReceiptError(f"{file} is no receipt of a deletion.", TAMPERED)
    return kept


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Object without a repeated key, of which readers would show one value or the other."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _check_signature(file: Path, receipt: Mapping[str, Any], public: bytes) -> None:
    signature = receipt.get("signature")
    if not signature:
        raise ReceiptError(f"UNSIGNED: {file} has no signature, so it proves nothing.", UNSIGNED)
    data = canonical({k: v for k, v in receipt.items() if k != "signature"})
    if holds(public, str(signature), data):
        return
    try:
        own = base64.b64decode(str(receipt.get("public_key", "")), validate=True)
    except ValueError:
        own = b""
    if own != public and holds(own, str(signature), data):
        raise ReceiptError(
            f"WRONG KEY: {file} is signed, but by another key than the one it is checked with. Name the "
            "signer's public key with --public.",
            WRONG_KEY,
        )
    raise ReceiptError(f"TAMPERED: {file} was changed after it was signed.", TAMPERED)


def _chain_in_ledger(receipt: Mapping[str, Any], ledger: Ledger) -> str:
    known = list(ledger.receipts(str(receipt["dataset"])))
    own = receipt_hash(receipt)
    if own not in known:
        raise ReceiptError(
            f"BROKEN CHAIN: the ledger knows another receipt of {receipt['reference']}, or none.",
            BROKEN_CHAIN,
        )
    place = known.index(own)
    if receipt["previous"] != (known[place - 1] if place else ""):
        raise ReceiptError(
            f"BROKEN CHAIN: the receipt before {receipt['reference']} is not the one it names.", BROKEN_CHAIN
        )
    if problems := ledger.problems():
        raise ReceiptError(f"BROKEN CHAIN: the ledger was edited. {problems[0]}", BROKEN_CHAIN)
    return f"intact (receipt {place + 1} of {len(known)} in the ledger)"


def _chain_in_folder(file: Path, receipt: Mapping[str, Any]) -> str:
    previous = receipt.get("previous")
    if not previous:
        return "begins here"
    for other in file.parent.glob("*.json"):
        try:
            if receipt_hash(read_json(other)) == previous:
                return f"intact (follows {other.name})"
        except (RecunlearnError, TypeError, ValueError):
            continue
    return "not checked (no ledger, and the receipt before is not in the folder)"


def _check_model(receipt: Mapping[str, Any], checkpoint: Path) -> str:
    from recunlearn.foundation.store import file_hash

    manifest = read_checkpoint(checkpoint)
    weights = checkpoint / "weights.safetensors"
    found = file_hash(weights) if weights.is_file() else ""
    if found == receipt["model"]["after"] == manifest["weights_hash"]:
        return "the one that was made"
    which = "the model before the deletion" if found == receipt["model"]["before"] else "another model"
    raise ReceiptError(
        f"OTHER MODEL: {checkpoint} holds {which}, not the one of {receipt['reference']}. Later deletions "
        "make new models: check the last receipt.",
        OTHER_MODEL,
    )
