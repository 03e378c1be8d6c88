import numpy as np
import pytest

from recunlearn.studies.pieces import Pieces


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize(
    "harm", [flip, lambda p: p.write_bytes(b""), lambda p: p.write_bytes(p.read_bytes()[:-1])]
)
def test_a_damaged_piece_is_made_again(tmp_path, harm):
    pieces, made = Pieces(tmp_path), []

    def make():
        made.append(1)
        return {"loss": np.array([0.5, 2.0])}

    for expected in (1, 1):
        assert pieces.get("a", make)["loss"].tolist() == [0.5, 2.0]
        assert len(made) == expected
    harm(tmp_path / "a.safetensors")
    assert pieces.get("a", make)["loss"].tolist() == [0.5, 2.0]
    assert len(made) == 2
