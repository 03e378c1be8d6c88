"""Keys, keyed hashes and signatures."""

import hashlib
import hmac
import stat

import pytest

from recunlearn.deletion import signing
from recunlearn.foundation.errors import RecunlearnError, UsageError


def test_keys_are_private_and_read_back(tmp_path):
    folder = signing.make_keys(tmp_path / "keys")
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()}
    assert modes == {"signing.pem": 0o600, "public.pem": 0o600, "hmac.key": 0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    ring = signing.read_keys(folder)
    assert signing.read_public(folder / "public.pem") == ring.public
    assert signing.holds(ring.public, ring.sign(b"text"), b"text")
    assert not signing.holds(ring.public, ring.sign(b"text"), b"test")
    assert not signing.holds(ring.public, "no base64!", b"text")


def test_keys_are_never_overwritten(tmp_path):
    folder = signing.make_keys(tmp_path / "keys")
    before = (folder / "signing.pem").read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        signing.make_keys(folder)
    assert (folder / "signing.pem").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["keys"]


def test_keyed_hash_is_an_hmac_of_parts_with_their_lengths(tmp_path):
    ring = signing.read_keys(signing.make_keys(tmp_path / "keys"))
    assert ring.keyed_hash("ab", "ü") == hmac.new(ring.secret, "2:ab2:ü".encode(), hashlib.sha256).hexdigest()
    assert ring.keyed_hash("ab", "c") != ring.keyed_hash("a", "bc")
    assert ring.of_user("one")("7") != ring.of_user("two")("7")


def test_lost_and_damaged_keys_get_a_sentence(tmp_path):
    with pytest.raises(RecunlearnError, match=r"There is no key .*keys init"):
        signing.read_keys(tmp_path)
    folder = signing.make_keys(tmp_path / "keys")
    (folder / "hmac.key").write_text("12")
    with pytest.raises(RecunlearnError, match="they are no keys"):
        signing.read_keys(folder)
    (folder / "signing.pem").write_text("nonsense")
    with pytest.raises(RecunlearnError, match="a file is damaged"):
        signing.read_keys(folder)
    with pytest.raises(RecunlearnError, match="is no public key"):
        signing.read_public(folder / "signing.pem")
