"""Keys of a deployment: Ed25519 signs receipts, HMAC-SHA256 stands for ids that may not be kept."""

import base64
import hashlib
import hmac
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from recunlearn.foundation import paths
from recunlearn.foundation.errors import RecunlearnError, UsageError
from recunlearn.foundation.store import explain_os_errors

SIGNING, PUBLIC, SECRET = "signing.pem", "public.pem", "hmac.key"
SECRET_BYTES = 32


@dataclass(frozen=True)
class KeyRing:
    """Both keys.

    Args:
        signing: private key of the receipts' signatures.
        secret: of keyed hashes and of the ledger's chain, 32 bytes.
    """

    signing: Ed25519PrivateKey
    secret: bytes

    def keyed_hash(self, *parts: str) -> str:
        """HMAC-SHA256 of texts, 64 hex digits; lengths keep ``("ab", "c")`` and ``("a", "bc")`` apart."""
        data = b"".join(f"{len(p.encode())}:".encode() + p.encode() for p in parts)
        return hmac.new(self.secret, data, hashlib.sha256).hexdigest()

    def of_user(self, dataset: str) -> Callable[[str], str]:
        """Keyed hash of a user's id in a data set."""
        return lambda user: self.keyed_hash("user", dataset, user)

    def sign(self, data: bytes) -> str:
        """Ed25519 signature in base64."""
        return base64.b64encode(self.signing.sign(data)).decode()

    @property
    def public(self) -> bytes:
        """Raw public key, 32 bytes."""
        return raw(self.signing.public_key())


def raw(key: Ed25519PublicKey) -> bytes:
    """32 bytes of a public key."""
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def holds(public: bytes, signature: str, data: bytes) -> bool:
    """Tell whether ``signature`` (base64) of ``data`` was made with the key of ``public``."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(base64.b64decode(signature, validate=True), data)
    except (InvalidSignature, ValueError):
        return False
    return True


def canonical(value: Any) -> bytes:
    r"""Bytes of a plain value that do not depend on the order of keys or on white space.

    >>> canonical({"b": 1, "a": "é"})
    b'{"a":"\\u00e9","b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def default_folder() -> Path:
    """Where keys lie unless ``--keys`` says otherwise."""
    return paths.home() / "keys"


def make_keys(folder: Path | None = None) -> Path:
    """Make new keys, mode 0600 in a folder of mode 0700; all files or none.

    Raises:
        UsageError: there are keys already.
        RecunlearnError: the folder cannot be written.
    """
    folder = folder or default_folder()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} exists already. New keys would make every receipt, and the ledger's hashes, "
            "impossible to check: name another folder with --keys."
        )
    with explain_os_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
        try:
            for name, data in _new_files().items():
                _write_private(temporary / name, data)
            os.replace(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _new_files() -> dict[str, bytes]:
    signing = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    return {
        SIGNING: signing.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        PUBLIC: signing.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo),
        SECRET: secrets.token_hex(SECRET_BYTES).encode() + b"\n",
    }


def _write_private(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_keys(folder: Path | None = None) -> KeyRing:
    """Read both keys.

    Raises:
        RecunlearnError: they are missing, damaged or may not be read.
    """
    folder = folder or default_folder()
    signing, text = _read(folder / SIGNING), _read(folder / SECRET).strip()
    try:
        key = serialization.load_pem_private_key(signing, password=None)
        secret = bytes.fromhex(text.decode("ascii"))
    except (ValueError, TypeError):
        raise _unusable(folder, "a file is damaged") from None
    if not isinstance(key, Ed25519PrivateKey) or len(secret) != SECRET_BYTES:
        raise _unusable(folder, "they are no keys of `keys init`")
    return KeyRing(key, secret)


def read_public(file: Path | None = None) -> bytes:
    """Raw public key from a PEM file, which is all that checking a signature needs.

    Raises:
        RecunlearnError: missing, damaged, or no Ed25519 key.
    """
    file = file or default_folder() / PUBLIC
    try:
        key = serialization.load_pem_public_key(_read(file))
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise RecunlearnError(f"{file} is no public key of `keys init`. Name its public.pem with --public.")
    return raw(key)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise RecunlearnError(
            f"There is no key {path}. Make keys once with: keys init. If there were keys before, restore "
            "them from a backup: hashes and signatures made with lost keys cannot be made again."
        ) from None
    except OSError as error:
        raise RecunlearnError(f"The key {path} cannot be read ({error.strerror}).") from None


def _unusable(folder: Path, why: str) -> RecunlearnError:
    return RecunlearnError(f"The keys in {folder} cannot be used: {why}. Restore them from a backup.")
